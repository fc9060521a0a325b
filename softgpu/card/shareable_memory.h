// ShareableMemory: memory that other processes may map: a memfd, mapped once as a window, which
// carries what it is behind its bytes, so that the descriptor is all that has to be passed.
//
// Threading: immutable once made.
//
// Invariants:
// 1. The file is sealed against changes of its size, so that no other process can make its pages
//    go away. One that is not is refused.
// 2. Forked children inherit no mapping of it.
#pragma once

#include <cstdint>
#include <memory>

#include "softgpu/card/address_space.h"
#include "softgpu/card/kept_fd.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

class ShareableMemory {
 public:
  // What a descriptor is for, so that it is taken for nothing else.
  enum class Use : uint64_t { kDevice, kMemory, kPool };

  // Null if the system refuses. `bytes` a multiple of the page size.
  static std::shared_ptr<ShareableMemory> Create(Use use, uint64_t bytes, const CUuuid& device);
  // What the descriptor is, if it is one for this use; null if not. It stays the caller's.
  static std::shared_ptr<ShareableMemory> Import(Use use, int fd);
  ~ShareableMemory();
  ShareableMemory(const ShareableMemory&) = delete;
  ShareableMemory& operator=(const ShareableMemory&) = delete;

  uint64_t size() const { return size_; }
  const CUuuid& device() const { return device_; }
  uint8_t* window() const { return window_; }
  const KeptFd& file() const { return file_; }
  // A new descriptor of it; negative if the system refuses, or if the program closed ours.
  int Duplicate() const { return file_.Duplicate(); }

 private:
  ShareableMemory(UniqueFd fd, uint8_t* window, uint64_t size, const CUuuid& device);

  const KeptFd file_;
  uint8_t* const window_;
  const uint64_t size_;
  const CUuuid device_;
};

}  // namespace tandem::soft
