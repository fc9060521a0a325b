// UnleasedCall: tries to do a copy or a fill for a thread that the gate would hold back
// (unleased_access.h). Called with the arguments of the driver's function; false: the call waits at
// the gate.
#pragma once

#include <cstddef>

#include "src/shim/program/process.h"
#include "src/shim/swap/unleased_access.h"
#include "src/shim/swap/unleased_rows.h"

namespace tandem::shim {

class UnleasedCall {
 public:
  // `stream`: that the call is for.
  explicit UnleasedCall(CUstream stream) : stream_(stream) {}

  bool operator()(void* to, CUdeviceptr from, size_t bytes, CUstream = nullptr) const;
  bool operator()(CUdeviceptr to, const void* from, size_t bytes, CUstream = nullptr) const;
  // What either is the address says.
  bool operator()(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream = nullptr) const;
  bool operator()(CUdeviceptr to, unsigned char value, size_t count, CUstream = nullptr) const {
    return Fill(to, {value, sizeof(value)}, count);
  }
  bool operator()(CUdeviceptr to, unsigned short value, size_t count, CUstream = nullptr) const {
    return Fill(to, {value, sizeof(value)}, count);
  }
  bool operator()(CUdeviceptr to, unsigned int value, size_t count, CUstream = nullptr) const {
    return Fill(to, {value, sizeof(value)}, count);
  }
  bool operator()(const CUDA_MEMCPY2D* copy, CUstream = nullptr) const { return Copy(copy); }
  bool operator()(const CUDA_MEMCPY3D* copy, CUstream = nullptr) const { return Copy(copy); }
  bool operator()(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                  CUstream = nullptr) const {
    return Fill({to, pitch}, {value, sizeof(value)}, width, height);
  }
  bool operator()(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                  CUstream = nullptr) const {
    return Fill({to, pitch}, {value, sizeof(value)}, width, height);
  }
  bool operator()(CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
                  CUstream = nullptr) const {
    return Fill({to, pitch}, {value, sizeof(value)}, width, height);
  }
  // Others, of batches and between devices, wait.
  template <typename... Arguments>
  bool operator()(Arguments...) const {
    return false;
  }

 private:
  bool Fill(CUdeviceptr to, UnleasedAccess::Pattern pattern, size_t count) const;
  bool Fill(const Rows& rows, UnleasedAccess::Pattern pattern, size_t width, size_t height) const;
  template <typename Planes>
  bool Copy(const Planes* copy) const {
    const auto rows = copy == nullptr ? std::nullopt : RowsOf(*copy);
    UnleasedAccess* const server = rows.has_value() ? Server() : nullptr;
    return server != nullptr && CopyRows(server, *rows);
  }
  // Where it might be done, or null.
  UnleasedAccess* Server() const;

  const CUstream stream_;
};

}  // namespace tandem::shim
