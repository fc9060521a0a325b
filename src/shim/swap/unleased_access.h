// UnleasedAccess: copies and fills of the program's memory, done at once while it has no lease,
// instead of when its turn comes: in the host copies of swapped chunks, and by our own copies over
// the bus for resident ones.
//
// Only where the program cannot tell it from what the driver would have done. Nothing of the
// program's is under way that such a call would have to wait for, nor can anything come, as long as
// the Swapper's lock is held. The driver gets the calls that it might refuse, and those that would
// need the card's engines, which the lease holder uses.
//
// Threading: any thread of the program, outside the gate. The Swapper's lock is held for some
// milliseconds at a time, but waited for as long as the agent moves chunks.
// Invariant: a call that returns false may have done some of its work already. The driver is to do
// all of it anew, from the same bytes to the same place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/ranges.h"
#include "src/cuda/real_driver.h"
#include "src/shim/gate/work_tracker.h"
#include "src/shim/swap/device_memory.h"
#include "src/shim/swap/swapper.h"

namespace tandem::shim {

class UnleasedAccess {
 public:
  // Where a range of the program's lies in the table of its memory, part after part.
  using Parts = std::vector<Range>;
  struct Source {
    const cuda::RealDriver* real;
    WorkTracker* tracker;
    DeviceMemory* memory;
    Swapper* swapper;
    // Nothing if the program has no such range, or not to read and write.
    std::function<std::optional<Parts>(CUdeviceptr pointer, uint64_t bytes)> find;
    std::function<bool()> drained;          // no work is under way
    std::function<HostShare()> host_share;  // the most that may lie on the host
  };

  // What a fill repeats.
  struct Pattern {
    uint32_t value;
    uint32_t width;  // 1, 2 or 4
  };

  explicit UnleasedAccess(Source source) : source_(std::move(source)) {}
  UnleasedAccess(const UnleasedAccess&) = delete;
  UnleasedAccess& operator=(const UnleasedAccess&) = delete;

  // Whether the driver would take a call for this stream, and do it at once. REQUIRES: a context of
  // this device is current.
  bool MayServe(CUstream stream) const;

  // Whether the program has that range, to read and write.
  bool Has(CUdeviceptr pointer, uint64_t bytes) const {
    return source_.find(pointer, bytes).has_value();
  }

  // Each is all done, or the driver's affair. REQUIRES: MayServe has said yes since the thread last
  // called the driver.
  bool Read(void* to, CUdeviceptr from, uint64_t bytes);
  bool Write(CUdeviceptr to, const void* from, uint64_t bytes);
  bool Move(CUdeviceptr to, CUdeviceptr from, uint64_t bytes);
  bool Fill(CUdeviceptr to, Pattern pattern, uint64_t count);

 private:
  using Piece = Swapper::Piece;
  class Place;  // in parts

  bool IsPlainHost(const void* pointer, uint64_t bytes) const;
  bool MayReach(const Parts& parts, bool to_write, bool off_card);
  template <typename Step>
  bool InSteps(uint64_t bytes, Step step);
  // The piece at the place to be written to; *more: there may soon be host memory for it.
  std::optional<Piece> PieceToWrite(const Place& place, bool* more)
      REQUIRES_LOCK(source_.swapper->mutex());

  bool ReadPiece(const Piece& piece, std::byte* to, uint64_t bytes)
      REQUIRES_LOCK(source_.swapper->mutex());

  const Source source_;
};

}  // namespace tandem::shim
