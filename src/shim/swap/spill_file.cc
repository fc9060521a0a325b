#include "src/shim/swap/spill_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <utility>

namespace tandem::shim {
namespace {

constexpr uint64_t kPage = 4096;

}  // namespace

void SpillFile::Offer(OwnFd file, std::function<Bytes()> promised) {
  next_ = std::move(file);
  promised_ = std::move(promised);
}

// No file is longer afterwards: that would be bound by the program's own limit for files, and end
// the program there.
bool SpillFile::Reserve(uint64_t offset, uint64_t bytes) {
  return fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                   static_cast<off_t>(bytes)) == 0;
}

void SpillFile::UseNext() {
  if (mapped_ != 0 || !next_.intact()) return;
  file_ = std::exchange(next_, OwnFd());
  struct stat status {};
  fstat(file_.get(), &status);
  free_ = status.st_size > 0 ? RangeAllocator(0, static_cast<uint64_t>(status.st_size))
                             : RangeAllocator();
}

std::optional<SpillFile::Piece> SpillFile::Map(uint64_t bytes) {
  UseNext();
  if (!file_.intact()) return std::nullopt;
  const auto offset = free_.Take(bytes, kPage);
  if (!offset.has_value()) return std::nullopt;
  void* const begin = Reserve(*offset, bytes) ? MapThere(*offset, bytes) : nullptr;
  if (begin == nullptr) {
    static_cast<void>(free_.Give(*offset, bytes));
    return std::nullopt;
  }
  mapped_ += bytes;
  return Piece{reinterpret_cast<uint64_t>(begin), *offset, bytes};
}

// Null where that fails, or the descriptor has become another file's meanwhile.
void* SpillFile::MapThere(uint64_t offset, uint64_t bytes) const {
  void* const begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(),
                           static_cast<off_t>(offset));
  if (begin == MAP_FAILED) return nullptr;
  if (!file_.intact()) {
    munmap(begin, bytes);
    return nullptr;
  }
  // As what lies in memory: of no child, and in no core dump.
  madvise(begin, bytes, MADV_DONTFORK);
  madvise(begin, bytes, MADV_DONTDUMP);
  return begin;
}

void SpillFile::Unmap(const Piece& piece) {
  madvise(PointerAt(piece.begin), piece.bytes, MADV_REMOVE);
  munmap(PointerAt(piece.begin), piece.bytes);
  mapped_ -= piece.bytes;
  static_cast<void>(free_.Give(piece.offset, piece.bytes));
}

// What is dropped need not be written to the disk, as zeroes would, nor be read for what is written
// next.
bool SpillFile::Zero(const Piece& part) {
  if (file_.intact() && madvise(PointerAt(part.begin), part.bytes, MADV_REMOVE) == 0) {
    return Reserve(part.offset, part.bytes);
  }
  std::memset(PointerAt(part.begin), 0, part.bytes);
  return true;
}

void SpillFile::AbandonInChild() {
  file_ = OwnFd();
  next_ = OwnFd();
}

}  // namespace tandem::shim
