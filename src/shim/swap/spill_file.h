// SpillFile: a nameless file of this process's own, from the daemon, for memory that the host has
// no room for: as long as it may ever be, and empty. The kernel writes pages to it when it needs
// their memory.
//
// Threading: none of its own; AbandonInChild is for a forked child.
// Invariant: mapped memory has room on the disk, so that writing to it never fails for lack of it.
// What destroys anything goes through a mapping, never through the descriptor, which the program
// may close and use for a file of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>

#include "src/base/bytes.h"
#include "src/base/ranges.h"
#include "src/shim/os/own_fd.h"

namespace tandem::shim {

class SpillFile {
 public:
  struct Piece {
    uint64_t begin = 0;  // in memory
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  SpillFile() = default;
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Used once nothing is mapped of the one before. `promised`: how much the daemon lets the files
  // hold now; it ends a program whose files hold more.
  void Offer(OwnFd file, std::function<Bytes()> promised = {});
  Bytes promised() const {
    return promised_ ? promised_() : Bytes(std::numeric_limits<uint64_t>::max());
  }
  // All zero. None where there is no file, or no room on its disk. REQUIRES: bytes in whole pages.
  std::optional<Piece> Map(uint64_t bytes);
  // Gives the room on the disk back.
  void Unmap(const Piece& piece);
  // Forgets what a part of a mapped piece holds. Whether there is still room for it on the disk; if
  // not it must not be written to.
  bool Zero(const Piece& part);
  void AbandonInChild();

 private:
  void UseNext();
  bool Reserve(uint64_t offset, uint64_t bytes);
  void* MapThere(uint64_t offset, uint64_t bytes) const;

  OwnFd file_;
  OwnFd next_;
  std::function<Bytes()> promised_;
  RangeAllocator free_;  // of file_
  uint64_t mapped_ = 0;  // bytes
};

}  // namespace tandem::shim
