// RealDriver: the functions of the libcuda.so.1 that really does the work, be it NVIDIA's or the
// software GPU, as a table of pointers. The shim and the daemon's probe call the driver through it;
// tests fill the table with doubles.
//
// Threading: filled once, then read-only.
// Invariant: a pointer is null exactly when the library does not export the symbol.
#pragma once

#include "src/base/result.h"
#include "src/cuda/driver_api.h"

namespace tandem::cuda {

struct RealDriver {
#define CU(symbol, base, since, shim, soft, parameters, arguments) Fn_##symbol symbol = nullptr;
#include "src/cuda/driver_api.def"
#undef CU
};

using SymbolLookup = void* (*)(void* library, const char* symbol);

// Fills the table by `lookup` from an open library. The shim passes the true dlsym, because the
// dlsym it sees is its own.
RealDriver LoadRealDriver(void* library, SymbolLookup lookup);

// Whether driver_api.def has a row of that symbol.
bool IsListed(const char* symbol);

// The row that answers a cuGetProcAddress query.
struct ProcAddress {
  const char* symbol = nullptr;  // null: there is none of that version
  int since = 0;                 // of the row
  bool known = false;            // some version of the name exists
};

// Of the rows of `base` the one with the greatest `since` not above `version`, or with `per_thread`
// its variant for per-thread default streams where it has one. `exists`, if not null, says which
// symbols count.
ProcAddress ResolveProcAddress(const char* base, int version, bool per_thread,
                               bool (*exists)(const char* symbol) = nullptr);

// "CUDA_ERROR_OUT_OF_MEMORY"; "CUDA_ERROR_UNKNOWN (12345)" has no name and gives null.
const char* ErrorName(CUresult error);
// The driver's one-line description; null for a code it does not know.
const char* ErrorText(CUresult error);

}  // namespace tandem::cuda
