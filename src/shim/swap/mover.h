// Mover: gives chunks memory of the card, and copies them off it and onto it. How; which chunks,
// and when, is the Swapper's affair.
//
// Copies run on two streams of our own, one per direction, in one of the program's contexts. The
// Mover does not wait for one at its start, so that it creates or gives back the next chunk
// meanwhile.
//
// Threading: none of its own; the Swapper's lock is held around every call.
// Invariants
// 1. A chunk that leaves is on the card until its host copy is whole.
// 2. A chunk that arrives keeps its host copy, and counts as missing, until its bytes are on the
//    card; if they do not come it goes off the card again.
// 3. At most kInFlight chunks are under way in one direction.
// 4. Copies of exposed chunks are only kept: they take what they are allowed to of the host, and
//    are the places of what leaves before more of the host is taken.
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/cuda/real_driver.h"
#include "src/shim/swap/clean_check.h"
#include "src/shim/swap/device_memory.h"
#include "src/shim/swap/host_arena.h"

namespace tandem::shim {

class Mover {
 public:
  using Place = DeviceMemory::Place;
  static constexpr size_t kInFlight = 8;

  Mover(const cuda::RealDriver* real, CUdevice device, DeviceMemory* memory, Bytes chunk);
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // Work runs in `context` from now on; null: it has none and can only unmap. Waits for what is
  // under way in the one before.
  void UseContext(CUcontext context);
  CUcontext context() const { return context_; }

  // Neighbouring chunks of one extent get memory of the card; those with a host copy count as
  // arriving. All of them or none.
  CUresult Back(const Place* places, size_t count);
  CUresult Unback(const Place& place);
  // A chunk that is away gets memory of the host at its address, for good: it is cold then. It
  // leaves that as it leaves the card.
  CUresult Chill(const Place& place);
  // Copies the extent to `piece` and maps that in its place; its chunks' own memory is given up. On
  // failure all is as before, unless the driver will not put chunks back: *torn. REQUIRES: all of
  // it is on the card or cold; nothing uses it meanwhile.
  CUresult Gather(Extent* extent, CUmemGenericAllocationHandle piece, bool* torn);

  // Around the departures of one eviction: what leaves next, in that order, is looked at first, a
  // batch ahead.
  void BeginEviction();
  void Examine(const Place* places, size_t count);  // REQUIRES: count <= CleanCheck::kBatch
  void FinishExamining();                           // of the batch begun first
  void EndEviction();
  // Begins to copy a chunk out. REQUIRES: leaving() < kInFlight.
  CUresult StartLeaving(const Place& place);
  // Waits for the copy begun first and takes that chunk off the card; *copied is its size.
  CUresult FinishLeaving(Bytes* copied);
  size_t leaving() const { return leaving_.size(); }

  // Backs a chunk and begins to copy it in. REQUIRES: arriving() < kInFlight.
  CUresult StartArriving(const Place& place);
  // Takes note of what has arrived. CUDA_ERROR_NOT_READY: chunks are under way, and none has; an
  // error is of a chunk that did not come.
  CUresult PollArriving();
  // Afterwards nothing is under way, but for chunks that the driver will not take off the card.
  void AwaitArriving();
  size_t arriving() const { return arriving_.size(); }
  // What has arrived since the last time.
  Bytes TakeArrived() { return std::exchange(arrived_, Bytes()); }
  // On the card for that, and not whole yet.
  Bytes arriving_bytes() const;
  // Of what was copied since the last time, what went to the file, and what came from it.
  Bytes TakeToFile() { return std::exchange(to_file_, Bytes()); }
  Bytes TakeFromFile() { return std::exchange(from_file_, Bytes()); }
  // This chunk is not waited for any more: its context is broken, and its bytes with it.
  void GiveUp(const Place& place);

  // Copies the part on the card, and waits for it.
  CUresult CopyOut(void* to, CUdeviceptr from, uint64_t bytes);
  CUresult CopyIn(CUdeviceptr to, const void* from, uint64_t bytes);
  // Gives a chunk that is away, and never had any bytes, a host copy, all zero, of memory that is
  // made already. Whether there was any. REQUIRES: it has none.
  bool MakeHostCopy(Chunk* chunk);
  void DropHostCopy(Chunk* chunk);
  // Copies of exposed chunks are kept as long as all copies take no more than that.
  void DropKeptBeyond(Bytes most);
  // Outside of an eviction, before the table of memory may change.
  void ForgetSpare() { spare_.reset(); }
  // Lets another device use what is on the card, and what will come, or no longer.
  CUresult SetPeer(CUdevice peer, bool reaches);
  // One small step of the host memory's upkeep, so that there is room for `ahead`. Whether there is
  // more.
  bool PrepareHostMemory(const HostShare& ahead);
  bool HasReturned() const { return arena_.HasReturned(); }
  // Gives host memory back that nothing has used for a while, beyond `ahead`.
  void Trim(const HostShare& ahead);
  // For what that has no room for.
  SpillFile& spill_file() { return arena_.file(); }

 private:
  struct Leaving {
    Place place;
    std::byte* host;  // new, or the copy that was kept of it or another
    CUevent event;
  };
  struct Arriving {
    Place place;
    CUevent event;  // null: the copy failed, and the chunk has yet to go
  };

  CUresult PrepareStreams();
  CUresult Map(const Place* places, size_t count, const CUmemAllocationProp& properties);
  CUmemAllocationProp HostProperties() const;
  std::byte* TakeSlot(Chunk* chunk);
  std::byte* TakeKept(uint64_t bytes);
  std::byte* TakeFrom(Chunk* chunk);
  CUresult MapPiece(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle piece);
  bool PutBack(const Place& place);
  CUresult CopyTo(CUmemGenericAllocationHandle piece, const Extent& extent);
  CUresult TakeEvent(CUevent* event);
  bool FinishArrival(Arriving* arriving, bool wait, CUresult* result);

  const cuda::RealDriver* const real_;
  const CUdevice device_;
  DeviceMemory* const memory_;
  std::vector<CUmemAccessDesc> access_;  // this device's, and its peers'
  HostArena arena_;
  CleanCheck check_;
  // Of this eviction.
  Instant began_;
  Duration examined_;  // while nothing else was done
  Bytes copied_out_;
  std::optional<std::vector<Chunk*>> spare_;  // with copies that were kept, the best last
  CUcontext context_ = nullptr;
  CUstream out_stream_ = nullptr;
  CUstream in_stream_ = nullptr;
  std::vector<CUevent> events_;  // to be used again
  std::deque<Leaving> leaving_;
  std::deque<Arriving> arriving_;
  Bytes arrived_;
  Bytes to_file_, from_file_;
};

}  // namespace tandem::shim
