// Rows and planes, done without a lease as the rows of which they consist (unleased_access.h).
//
// Threading: any.
#pragma once

#include <cstdint>
#include <optional>

#include "src/cuda/driver_types.h"
#include "src/cuda/graph_types.h"
#include "src/shim/swap/unleased_access.h"

namespace tandem::shim {

// Where rows of one length lie.
struct Rows {
  uint64_t begin = 0;                         // of the first
  uint64_t pitch = 0;                         // from a row to the next
  uint64_t plane = 0;                         // from a plane to the next
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;  // unified: what the address says
};

struct RowCopy {
  Rows from, to;
  uint64_t width = 0;   // bytes of a row
  uint64_t height = 0;  // rows of a plane
  uint64_t depth = 0;   // planes
};

// None where arrays take part, or the driver might have something to say about it.
std::optional<RowCopy> RowsOf(const CUDA_MEMCPY2D& copy);
std::optional<RowCopy> RowsOf(const CUDA_MEMCPY3D& copy);

// As UnleasedAccess's: all done, or the driver's affair.
bool CopyRows(UnleasedAccess* access, RowCopy copy);
// `width`: in patterns.
bool FillRows(UnleasedAccess* access, const Rows& rows, UnleasedAccess::Pattern pattern,
              uint64_t width, uint64_t height);

}  // namespace tandem::shim
