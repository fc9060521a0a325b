// ShareableMemory: physical memory that other processes may map: a memfd of its own, which carries
// what it is behind its bytes, so that the descriptor is all that has to be passed.
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

#include "src/cuda/driver_types.h"
#include "src/softgpu/address_space.h"
#include "src/softgpu/kept_fd.h"

namespace tandem::soft {

class ShareableMemory {
 public:
  // Null if the system refuses. `bytes` a multiple of the page size.
  static std::shared_ptr<ShareableMemory> Create(uint64_t bytes, const CUuuid& device);
  // What the descriptor is, if it is one of these; null if not. The descriptor stays the caller's.
  static std::shared_ptr<ShareableMemory> Import(int fd);
  ~ShareableMemory();
  ShareableMemory(const ShareableMemory&) = delete;
  ShareableMemory& operator=(const ShareableMemory&) = delete;

  uint64_t size() const { return size_; }
  const CUuuid& device() const { return device_; }
  bool MapAt(AddressSpace& space, uint64_t address) const {
    return space.Map(address, window_, size_);
  }
  // A new descriptor of it; negative if the system refuses, or if the program closed ours.
  int Duplicate() const { return file_.Duplicate(); }

 private:
  ShareableMemory(UniqueFd fd, void* window, uint64_t size, const CUuuid& device);

  const KeptFd file_;
  void* const window_;
  const uint64_t size_;
  const CUuuid device_;
};

}  // namespace tandem::soft
