#include "src/shim/swap/unleased_access.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include "src/shim/driver/capture_mode.h"

namespace tandem::shim {
namespace {

// What is copied with the lock held: a few milliseconds' work.
constexpr uint64_t kMostHeld = uint64_t{16} << 20;
// The agent, woken, gets the lock in this time; without it the next step would have it again.
constexpr Duration kPause = Microseconds(1);
// What memory that was never written to is read as.
constexpr std::byte kZeros[uint64_t{64} << 10] = {};

bool IsDefault(CUstream stream) {
  return reinterpret_cast<uintptr_t>(stream) <= CU_STREAM_PER_THREAD_VALUE;
}

// The kernel copies to and from where the program says, so that a bad address is an answer, and not
// the end of the program: what the driver makes of it, the driver has to say.
bool CopyToProgram(void* to, const std::byte* from, uint64_t bytes) {
  const iovec ours = {const_cast<std::byte*>(from), bytes};
  const iovec theirs = {to, bytes};
  return process_vm_writev(getpid(), &ours, 1, &theirs, 1, 0) == static_cast<ssize_t>(bytes);
}

bool CopyFromProgram(std::byte* to, const void* from, uint64_t bytes) {
  const iovec ours = {to, bytes};
  const iovec theirs = {const_cast<void*>(from), bytes};
  return process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0) == static_cast<ssize_t>(bytes);
}

bool ZeroForProgram(std::byte* to, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes; done += sizeof(kZeros)) {
    if (!CopyToProgram(to + done, kZeros, std::min<uint64_t>(sizeof(kZeros), bytes - done))) {
      return false;
    }
  }
  return true;
}

// The place and the bytes left to do are multiples of the width, as chunks are.
void Repeat(UnleasedAccess::Pattern pattern, std::byte* to, uint64_t bytes) {
  if (pattern.width == 1) {
    std::memset(to, static_cast<int>(pattern.value), bytes);
  } else if (pattern.width == 2) {
    std::fill_n(reinterpret_cast<uint16_t*>(to), bytes / 2, static_cast<uint16_t>(pattern.value));
  } else {
    std::fill_n(reinterpret_cast<uint32_t*>(to), bytes / 4, pattern.value);
  }
}

// How far a step came.
struct Stride {
  uint64_t bytes = 0;  // 0: nothing could be done
  bool again = false;  // but may be, next time
};

}  // namespace

// A place in the parts, that moves on.
class UnleasedAccess::Place {
 public:
  explicit Place(const Parts& parts) : parts_(parts) {}

  CUdeviceptr address() const { return parts_[part_].begin + offset_; }
  uint64_t left() const { return parts_[part_].size - offset_; }  // of the part
  bool at_end() const { return part_ == parts_.size(); }
  // REQUIRES: bytes <= left().
  void Advance(uint64_t bytes) {
    offset_ += bytes;
    if (offset_ < parts_[part_].size) return;
    offset_ = 0;
    ++part_;
  }

 private:
  const Parts& parts_;
  size_t part_ = 0;
  uint64_t offset_ = 0;
};

bool UnleasedAccess::MayServe(CUstream stream) const {
  const cuda::RealDriver& real = *source_.real;
  // Where a capture is under way, or a context has been found broken, the driver has a say.
  if (source_.tracker->MayRefuse() || !source_.drained()) return false;
  const RelaxedCapture relaxed(&real);  // one that begins just now must not break
  CUcontext current = nullptr, its = nullptr;
  if (real.cuCtxGetCurrent(&current) != CUDA_SUCCESS) return false;
  if (!IsDefault(stream) && (real.cuStreamGetCtx(stream, &its) != CUDA_SUCCESS || its != current)) {
    return false;
  }
  return real.cuStreamQuery(stream) == CUDA_SUCCESS;
}

// Whether it is the host's, to the driver too, or nothing to the driver. What the program itself
// has mapped of ours may be cold, and so the host's to the driver, but not the program's to touch.
bool UnleasedAccess::IsPlainHost(const void* pointer, uint64_t bytes) const {
  const auto first = reinterpret_cast<CUdeviceptr>(pointer);
  if (first + bytes < first) return false;
  for (const CUdeviceptr at : {first, first + bytes - 1}) {
    if (source_.memory->Owns(at) || source_.find(at, 1).has_value()) return false;
    unsigned int type = 0, managed = 0;
    const CUresult result =
        source_.real->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
    if (result == CUDA_ERROR_INVALID_VALUE) continue;
    if (result != CUDA_SUCCESS || type != CU_MEMORYTYPE_HOST) return false;
    source_.real->cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
    if (managed != 0) return false;
  }
  return true;
}

// Looked at first, so that little is done in vain. `off_card`: nothing of it may be there.
bool UnleasedAccess::MayReach(const Parts& parts, bool to_write, bool off_card) {
  MutexLock lock(source_.swapper->mutex());
  if (!source_.drained()) return false;
  Bytes unwritten;
  for (Place place(parts); !place.at_end();) {
    const std::optional<Piece> piece = source_.swapper->Find(place.address());
    if (!piece.has_value() || (off_card && piece->here)) return false;
    if (!piece->here && piece->host == nullptr) unwritten += Bytes(piece->size);
    place.Advance(std::min(piece->size, place.left()));
  }
  return !to_write || unwritten == Bytes() ||
         source_.memory->GetView().swapped + unwritten <= source_.host_share().total();
}

// Takes steps until all bytes are done. A step gets how many to do at most, and has the lock.
template <typename Step>
bool UnleasedAccess::InSteps(uint64_t bytes, Step step) {
  const timespec pause = {0, kPause.ns};
  while (bytes != 0) {
    {
      MutexLock lock(source_.swapper->mutex());
      if (!source_.drained()) return false;
      for (uint64_t held = 0; bytes != 0 && held < kMostHeld;) {
        const Stride stride = step(std::min(bytes, kMostHeld - held));
        if (stride.bytes == 0 && !stride.again) return false;
        if (stride.bytes == 0) break;
        held += stride.bytes;
        bytes -= stride.bytes;
      }
    }
    if (bytes != 0) nanosleep(&pause, nullptr);
  }
  return true;
}

std::optional<Swapper::Piece> UnleasedAccess::PieceToWrite(const Place& place, bool* more) {
  const HostShare share = source_.host_share();
  *more = false;
  const std::optional<Piece> piece = source_.swapper->FindToWrite(place.address(), share.total());
  // What the agent makes ahead need not be there yet: its next step is taken here.
  if (!piece.has_value() && source_.swapper->Find(place.address())) {
    *more = source_.swapper->PrepareHostMemory(share);
  }
  return piece;
}

bool UnleasedAccess::ReadPiece(const Piece& piece, std::byte* to, uint64_t bytes) {
  if (piece.here) return source_.swapper->CopyOut(to, piece.address, bytes) == CUDA_SUCCESS;
  return piece.host == nullptr ? ZeroForProgram(to, bytes) : CopyToProgram(to, piece.host, bytes);
}

bool UnleasedAccess::Read(void* to, CUdeviceptr from, uint64_t bytes) {
  const std::optional<Parts> parts = source_.find(from, bytes);
  if (!parts.has_value() || !IsPlainHost(to, bytes) || !MayReach(*parts, false, false)) {
    return false;
  }
  auto* target = static_cast<std::byte*>(to);
  Place place(*parts);
  return InSteps(bytes, [&](uint64_t most) REQUIRES_LOCK(source_.swapper->mutex()) {
    const std::optional<Piece> piece = source_.swapper->Find(place.address());
    if (!piece.has_value()) return Stride{};
    const uint64_t size = std::min({piece->size, place.left(), most});
    if (!ReadPiece(*piece, target, size)) return Stride{};
    target += size;
    place.Advance(size);
    return Stride{size};
  });
}

bool UnleasedAccess::Write(CUdeviceptr to, const void* from, uint64_t bytes) {
  const std::optional<Parts> parts = source_.find(to, bytes);
  if (!parts.has_value() || !IsPlainHost(from, bytes) || !MayReach(*parts, true, false)) {
    return false;
  }
  const auto* source = static_cast<const std::byte*>(from);
  Place place(*parts);
  return InSteps(bytes, [&](uint64_t most) REQUIRES_LOCK(source_.swapper->mutex()) {
    bool more = false;
    const std::optional<Piece> piece = PieceToWrite(place, &more);
    if (!piece.has_value()) return Stride{0, more};
    const uint64_t size = std::min({piece->size, place.left(), most});
    const bool copied = piece->here
                            ? source_.swapper->CopyIn(piece->address, source, size) == CUDA_SUCCESS
                            : CopyFromProgram(piece->host, source, size);
    if (!copied) return Stride{};
    source += size;
    place.Advance(size);
    return Stride{size};
  });
}

bool UnleasedAccess::Move(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  const std::optional<Parts> target = source_.find(to, bytes);
  const std::optional<Parts> source = source_.find(from, bytes);
  if (!target.has_value() || !source.has_value()) return false;
  if (!MayReach(*source, false, true) || !MayReach(*target, true, true)) return false;
  Place there(*target), here(*source);
  return InSteps(bytes, [&](uint64_t most) REQUIRES_LOCK(source_.swapper->mutex()) {
    bool more = false;
    const std::optional<Piece> written = PieceToWrite(there, &more);
    if (!written.has_value() || written->here) return Stride{0, more};
    const std::optional<Piece> read = source_.swapper->Find(here.address());
    if (!read.has_value() || read->here) return Stride{};
    const uint64_t size = std::min({written->size, there.left(), read->size, here.left(), most});
    if (read->host == nullptr) {
      std::memset(written->host, 0, size);
    } else {
      std::memmove(written->host, read->host, size);
    }
    there.Advance(size);
    here.Advance(size);
    return Stride{size};
  });
}

bool UnleasedAccess::Fill(CUdeviceptr to, Pattern pattern, uint64_t count) {
  uint64_t bytes = 0;
  if (to % pattern.width != 0 || __builtin_mul_overflow(count, pattern.width, &bytes)) return false;
  const std::optional<Parts> parts = source_.find(to, bytes);
  if (!parts.has_value() || !MayReach(*parts, true, true)) return false;
  Place place(*parts);
  return InSteps(bytes, [&](uint64_t most) REQUIRES_LOCK(source_.swapper->mutex()) {
    bool more = false;
    const std::optional<Piece> piece = PieceToWrite(place, &more);
    if (!piece.has_value() || piece->here) return Stride{0, more};
    const uint64_t size = std::min({piece->size, place.left(), most});
    Repeat(pattern, piece->host, size);
    place.Advance(size);
    return Stride{size};
  });
}

}  // namespace tandem::shim
