#include "src/shim/swap/mover.h"

#include <algorithm>
#include <utility>

#include "src/shim/driver/capture_mode.h"
#include "src/shim/driver/in_context.h"
#include "src/shim/swap/extent_aliases.h"

namespace tandem::shim {
namespace {

constexpr Duration kArenaAge = Seconds(30);
constexpr int kPutBackTries = 2;

}  // namespace

Mover::Mover(const cuda::RealDriver* real, CUdevice device, DeviceMemory* memory, Bytes chunk)
    : real_(real),
      device_(device),
      memory_(memory),
      access_{{{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}},
      arena_(real, std::max(chunk.count, kGranule)),
      check_(real) {}

void Mover::UseContext(CUcontext context) {
  if (context == context_) return;
  if (context_ != nullptr) {
    AwaitArriving();
    const InContext scope(real_, context_);
    arena_.Unregister();
    check_.Leave();
    for (CUevent event : events_) real_->cuEventDestroy_v2(event);
    if (out_stream_ != nullptr) real_->cuStreamDestroy_v2(out_stream_);
    if (in_stream_ != nullptr) real_->cuStreamDestroy_v2(in_stream_);
  }
  events_.clear();
  out_stream_ = in_stream_ = nullptr;
  context_ = context;
}

CUresult Mover::PrepareStreams() {
  for (CUstream* stream : {&out_stream_, &in_stream_}) {
    if (*stream != nullptr) continue;
    const CUresult result = real_->cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// The driver's own error: in a context that is broken it is that one's.
CUresult Mover::TakeEvent(CUevent* event) {
  if (events_.empty()) return real_->cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
  *event = events_.back();
  events_.pop_back();
  return CUDA_SUCCESS;
}

// Gives all of them memory or none. Access is given in one call.
CUresult Mover::Map(const Place* places, size_t count, const CUmemAllocationProp& properties) {
  const Extent& extent = *places[0].extent;
  uint64_t mapped = 0;
  size_t done = 0;
  CUresult result = CUDA_SUCCESS;
  for (; done < count; ++done) {
    Chunk& chunk = *places[done].chunk;
    result = real_->cuMemCreate(&chunk.handle, chunk.bytes, &properties, 0);
    if (result != CUDA_SUCCESS) break;
    result = real_->cuMemMap(chunk.address, chunk.bytes, 0, chunk.handle, 0);
    if (result != CUDA_SUCCESS) {
      real_->cuMemRelease(chunk.handle);
      break;
    }
    mapped += chunk.bytes;
  }
  if (result == CUDA_SUCCESS) {
    result =
        real_->cuMemSetAccess(places[0].chunk->address, mapped, access_.data(), access_.size());
  }
  if (result == CUDA_SUCCESS) result = MapAliases(*real_, extent, places[0].chunk, count);
  for (size_t i = 0; i < done; ++i) {
    Chunk& chunk = *places[i].chunk;
    chunk.exposed = false;
    if (result == CUDA_SUCCESS) continue;
    real_->cuMemUnmap(chunk.address, chunk.bytes);
    real_->cuMemRelease(chunk.handle);
  }
  return result;
}

CUresult Mover::Back(const Place* places, size_t count) {
  CUmemAllocationProp plain{};
  plain.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  plain.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  const CUresult result = Map(places, count, places[0].extent->properties.value_or(plain));
  if (result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < count; ++i) {
    const Chunk& chunk = *places[i].chunk;
    const bool copied = chunk.host != nullptr;
    memory_->SetState(places[i], copied ? Chunk::State::kArriving : Chunk::State::kHere);
    if (copied) memory_->CountSwapped(-static_cast<int64_t>(chunk.bytes));
  }
  return CUDA_SUCCESS;
}

// The program may have asked for memory that can be exported, which such memory cannot.
CUmemAllocationProp Mover::HostProperties() const {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  int node = 0;
  real_->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device_);
  properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, std::max(node, 0)};
  return properties;
}

CUresult Mover::Chill(const Place& place) {
  Chunk& chunk = *place.chunk;
  CUresult result = Map(&place, 1, HostProperties());
  if (result != CUDA_SUCCESS) return result;
  if (chunk.host != nullptr) {
    const InContext scope(real_, context_);
    result = scope.result();
    if (result == CUDA_SUCCESS) result = PrepareStreams();
    if (result == CUDA_SUCCESS) {
      result = real_->cuMemcpyHtoDAsync_v2(chunk.address, chunk.host, chunk.bytes, in_stream_);
      const CUresult done = real_->cuStreamSynchronize(in_stream_);
      if (result == CUDA_SUCCESS) result = done;
    }
  }
  if (result == CUDA_SUCCESS) {
    DropHostCopy(&chunk);
    memory_->SetState(place, Chunk::State::kCold);
  } else {
    real_->cuMemUnmap(chunk.address, chunk.bytes);
    UnmapAliases(*real_, *place.extent, chunk);
    real_->cuMemRelease(chunk.handle);
    chunk.handle = 0;
  }
  return result;
}

CUresult Mover::Unback(const Place& place) {
  Chunk& chunk = *place.chunk;
  const CUresult result = real_->cuMemUnmap(chunk.address, chunk.bytes);
  if (result != CUDA_SUCCESS) return result;
  UnmapAliases(*real_, *place.extent, chunk);
  real_->cuMemRelease(chunk.handle);
  chunk.handle = 0;
  memory_->SetState(place, Chunk::State::kAway);
  if (chunk.host != nullptr) memory_->CountSwapped(static_cast<int64_t>(chunk.bytes));
  return CUDA_SUCCESS;
}

CUresult Mover::MapPiece(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle piece) {
  CUresult result = real_->cuMemMap(address, bytes, 0, piece, 0);
  if (result != CUDA_SUCCESS) return result;
  result = real_->cuMemSetAccess(address, bytes, access_.data(), access_.size());
  if (result != CUDA_SUCCESS) real_->cuMemUnmap(address, bytes);
  return result;
}

CUresult Mover::CopyTo(CUmemGenericAllocationHandle piece, const Extent& extent) {
  const InContext scope(real_, context_);
  CUresult result = scope.result();
  if (result == CUDA_SUCCESS) result = PrepareStreams();
  CUdeviceptr staging = 0;
  if (result == CUDA_SUCCESS) {
    result = real_->cuMemAddressReserve(&staging, extent.bytes, kGranule, 0, 0);
  }
  if (result != CUDA_SUCCESS) return result;
  result = MapPiece(staging, extent.bytes, piece);
  if (result == CUDA_SUCCESS) {
    result = real_->cuMemcpyDtoDAsync_v2(staging, extent.address, extent.bytes, out_stream_);
    const CUresult done = real_->cuStreamSynchronize(out_stream_);
    if (result == CUDA_SUCCESS) result = done;
    real_->cuMemUnmap(staging, extent.bytes);
  }
  real_->cuMemAddressFree(staging, extent.bytes);
  return result;
}

CUresult Mover::Gather(Extent* extent, CUmemGenericAllocationHandle piece, bool* torn) {
  CUresult result = CopyTo(piece, *extent);
  if (result != CUDA_SUCCESS) return result;
  size_t unmapped = 0;
  for (; unmapped < extent->chunks.size(); ++unmapped) {
    const Chunk& chunk = extent->chunks[unmapped];
    result = real_->cuMemUnmap(chunk.address, chunk.bytes);
    if (result != CUDA_SUCCESS) break;
  }
  if (result == CUDA_SUCCESS) result = MapPiece(extent->address, extent->bytes, piece);
  for (size_t i = 0; i < unmapped; ++i) {
    Chunk& chunk = extent->chunks[i];
    if (result == CUDA_SUCCESS) {
      real_->cuMemRelease(chunk.handle);
    } else if (!PutBack({extent, &chunk})) {
      *torn = true;
    }
  }
  return result;
}

// False: the driver will not, and the chunk is not on the card any more.
bool Mover::PutBack(const Place& place) {
  Chunk& chunk = *place.chunk;
  for (int i = 0; i < kPutBackTries; ++i) {
    if (MapPiece(chunk.address, chunk.bytes, chunk.handle) == CUDA_SUCCESS) return true;
  }
  real_->cuMemRelease(chunk.handle);
  chunk.handle = 0;
  DropHostCopy(&chunk);
  memory_->SetState(place, Chunk::State::kAway);
  return false;
}

void Mover::BeginEviction() {
  began_ = MonotonicNow();
  examined_ = Duration();
  copied_out_ = Bytes();
  spare_.reset();
}

void Mover::Examine(const Place* places, size_t count) {
  const InContext scope(real_, context_);
  check_.Start(places, scope.result() == CUDA_SUCCESS ? count : 0);
}

void Mover::FinishExamining() {
  const InContext scope(real_, context_);
  const Instant before = MonotonicNow();
  check_.Finish();
  examined_ = examined_ + (MonotonicNow() - before);
}

// Memory that is still being hashed stays mapped until that ends.
void Mover::EndEviction() {
  while (check_.batches() != 0) FinishExamining();
  check_.EndEviction();
  spare_.reset();
  if (copied_out_ == Bytes()) return;
  check_.OnCopied(copied_out_, MonotonicNow() - began_ - examined_);
}

CUresult Mover::StartLeaving(const Place& place) {
  const InContext scope(real_, context_);
  CUresult result = scope.result();
  if (result == CUDA_SUCCESS) result = PrepareStreams();
  if (result != CUDA_SUCCESS) return result;
  Chunk& chunk = *place.chunk;
  std::byte* const host = TakeSlot(&chunk);
  CUevent event = nullptr;
  result = TakeEvent(&event);
  if (result == CUDA_SUCCESS && host == nullptr) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) {
    result = real_->cuMemcpyDtoHAsync_v2(host, chunk.address, chunk.bytes, out_stream_);
  }
  if (result == CUDA_SUCCESS) result = real_->cuEventRecord(event, out_stream_);
  if (result == CUDA_SUCCESS) {
    leaving_.push_back({place, host, event});
    return result;
  }
  if (host != nullptr) {
    // A copy that was started before the failure must not write to a slot that is handed out again.
    real_->cuStreamSynchronize(out_stream_);
    arena_.Return(host, chunk.bytes, MonotonicNow());
  }
  if (event != nullptr) events_.push_back(event);
  return result;
}

CUresult Mover::FinishLeaving(Bytes* copied) {
  const InContext scope(real_, context_);
  const Leaving first = leaving_.front();
  leaving_.pop_front();
  const CUresult result = real_->cuEventSynchronize(first.event);
  events_.push_back(first.event);
  Chunk& chunk = *first.place.chunk;
  if (result != CUDA_SUCCESS) {
    arena_.Return(first.host, chunk.bytes, MonotonicNow());
    return result;
  }
  chunk.host = first.host;
  chunk.print = check_.Seen(&chunk);
  chunk.exposed = false;
  *copied = Bytes(chunk.bytes);
  copied_out_ += *copied;
  if (arena_.InFile(chunk.host)) to_file_ += *copied;
  return Unback(first.place);
}

CUresult Mover::StartArriving(const Place& place) {
  const InContext scope(real_, context_);
  CUresult result = scope.result();
  if (result == CUDA_SUCCESS) result = PrepareStreams();
  if (result == CUDA_SUCCESS) result = Back(&place, 1);
  if (result != CUDA_SUCCESS) return result;
  const Chunk& chunk = *place.chunk;
  Arriving arriving{place, nullptr};
  result = TakeEvent(&arriving.event);
  if (result == CUDA_SUCCESS) {
    result = real_->cuMemcpyHtoDAsync_v2(chunk.address, chunk.host, chunk.bytes, in_stream_);
  }
  if (result == CUDA_SUCCESS) result = real_->cuEventRecord(arriving.event, in_stream_);
  if (result != CUDA_SUCCESS) {
    // A copy that was started before the failure must not write to memory that is handed out again.
    real_->cuStreamSynchronize(in_stream_);
    if (arriving.event != nullptr) events_.push_back(std::exchange(arriving.event, nullptr));
    if (Unback(place) == CUDA_SUCCESS) return result;
  }
  arriving_.push_back(arriving);
  return result;
}

// Whether it is under way no more. If not, *result is CUDA_ERROR_NOT_READY, or says why the driver
// will not take it off the card.
bool Mover::FinishArrival(Arriving* arriving, bool wait, CUresult* result) {
  *result = CUDA_ERROR_UNKNOWN;
  if (arriving->event != nullptr) {
    const RelaxedCapture relaxed(real_);
    *result =
        wait ? real_->cuEventSynchronize(arriving->event) : real_->cuEventQuery(arriving->event);
    if (*result == CUDA_ERROR_NOT_READY) return false;
    events_.push_back(std::exchange(arriving->event, nullptr));
  }
  if (*result == CUDA_SUCCESS) {
    memory_->SetState(arriving->place, Chunk::State::kHere);
    const Chunk& chunk = *arriving->place.chunk;
    arrived_ += Bytes(chunk.bytes);
    if (arena_.InFile(chunk.host)) from_file_ += Bytes(chunk.bytes);
    return true;
  }
  return Unback(arriving->place) == CUDA_SUCCESS;
}

CUresult Mover::PollArriving() {
  if (arriving_.empty()) return CUDA_SUCCESS;
  const InContext scope(real_, context_);
  CUresult result = CUDA_ERROR_NOT_READY;
  while (!arriving_.empty()) {
    CUresult its_result = CUDA_SUCCESS;
    const bool finished = FinishArrival(&arriving_.front(), false, &its_result);
    if (its_result == CUDA_ERROR_NOT_READY) break;
    if (its_result != CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) result = its_result;
    if (!finished) break;
    arriving_.pop_front();
  }
  return result;
}

Bytes Mover::arriving_bytes() const {
  Bytes sum;
  for (const Arriving& arriving : arriving_) sum += Bytes(arriving.place.chunk->bytes);
  return sum;
}

void Mover::AwaitArriving() {
  if (arriving_.empty()) return;
  const InContext scope(real_, context_);
  std::erase_if(arriving_, [this](Arriving& arriving) {
    CUresult result = CUDA_SUCCESS;
    return FinishArrival(&arriving, true, &result);
  });
}

void Mover::GiveUp(const Place& place) {
  std::erase_if(arriving_, [&](const Arriving& each) { return each.place.chunk == place.chunk; });
  if (place.chunk->resident()) memory_->SetState(place, Chunk::State::kHere);
  place.chunk->exposed = false;
  DropHostCopy(place.chunk);
}

CUresult Mover::CopyOut(void* to, CUdeviceptr from, uint64_t bytes) {
  const InContext scope(real_, context_);
  CUresult result = scope.result();
  if (result == CUDA_SUCCESS) result = PrepareStreams();
  if (result != CUDA_SUCCESS) return result;
  result = real_->cuMemcpyDtoHAsync_v2(to, from, bytes, out_stream_);
  const CUresult done = real_->cuStreamSynchronize(out_stream_);
  return result == CUDA_SUCCESS ? done : result;
}

CUresult Mover::CopyIn(CUdeviceptr to, const void* from, uint64_t bytes) {
  const InContext scope(real_, context_);
  CUresult result = scope.result();
  if (result == CUDA_SUCCESS) result = PrepareStreams();
  if (result != CUDA_SUCCESS) return result;
  result = real_->cuMemcpyHtoDAsync_v2(to, from, bytes, in_stream_);
  const CUresult done = real_->cuStreamSynchronize(in_stream_);
  return result == CUDA_SUCCESS ? done : result;
}

CUresult Mover::SetPeer(CUdevice peer, bool reaches) {
  const CUmemLocation there = {CU_MEM_LOCATION_TYPE_DEVICE, peer};
  const CUmemAccessDesc access = {
      there, reaches ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
  for (const Place& place : memory_->Mapped()) {
    const Chunk& chunk = *place.chunk;
    const CUresult result = real_->cuMemSetAccess(chunk.address, chunk.bytes, &access, 1);
    if (result != CUDA_SUCCESS) return result;
  }
  std::erase_if(access_, [&](const CUmemAccessDesc& each) { return each.location.id == peer; });
  if (reaches) access_.push_back(access);
  return CUDA_SUCCESS;
}

// Without a context nothing can be registered, nor be copied there.
bool Mover::PrepareHostMemory(const HostShare& ahead) {
  const InContext scope(real_, context_);
  return arena_.PrepareSome(scope.result() == CUDA_SUCCESS ? ahead : HostShare{});
}

void Mover::Trim(const HostShare& ahead) {
  const InContext scope(real_, context_);
  arena_.Trim(MonotonicNow(), kArenaAge, ahead);
  // Copies that are only kept, one here and one there, hold more mappings than they may.
  if (arena_.held() > ahead.total().count + arena_.mapping_bytes()) DropKeptBeyond(Bytes());
}

}  // namespace tandem::shim
