#include "src/shim/swapper.h"

#include <algorithm>
#include <utility>

#include "src/shim/log.h"

namespace tandem::shim {
namespace {

constexpr size_t kInFlight = 8;  // chunks under way in one direction
constexpr Duration kArenaAge = Seconds(30);

}  // namespace

// Makes the swapper's context current for a scope.
class Swapper::InContext {
 public:
  InContext(const cuda::RealDriver* real, CUcontext context) : real_(real) {
    result_ = context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : real_->cuCtxPushCurrent_v2(context);
  }
  ~InContext() {
    CUcontext popped = nullptr;
    if (result_ == CUDA_SUCCESS) real_->cuCtxPopCurrent_v2(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  CUresult result() const { return result_; }

 private:
  const cuda::RealDriver* const real_;
  CUresult result_;
};

Swapper::Swapper(const cuda::RealDriver* real, CUdevice device, DeviceMemory* memory, Bytes chunk)
    : real_(real),
      device_(device),
      memory_(memory),
      access_{{{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}},
      arena_(real, std::max(chunk.count, kGranule)) {}

void Swapper::UseContext(CUcontext context) {
  if (context == context_) return;
  if (context_ != nullptr) {
    const InContext scope(real_, context_);
    arena_.Unregister();
    for (CUevent event : events_) real_->cuEventDestroy_v2(event);
    if (out_stream_ != nullptr) real_->cuStreamDestroy_v2(out_stream_);
    if (in_stream_ != nullptr) real_->cuStreamDestroy_v2(in_stream_);
  }
  events_.clear();
  out_stream_ = in_stream_ = nullptr;
  context_ = context;
}

CUresult Swapper::PrepareStreams() {
  for (CUstream* stream : {&out_stream_, &in_stream_}) {
    if (*stream != nullptr) continue;
    const CUresult result = real_->cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUevent Swapper::TakeEvent() {
  CUevent event = nullptr;
  if (events_.empty()) {
    real_->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  } else {
    event = events_.back();
    events_.pop_back();
  }
  return event;
}

// Neighbouring chunks of one run get memory, and access in one call.
CUresult Swapper::Back(const Place* places, size_t count) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
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
  for (size_t i = 0; i < done; ++i) {
    Chunk& chunk = *places[i].chunk;
    chunk.exposed = false;
    if (result == CUDA_SUCCESS) {
      memory_->SetResident(places[i], true);
      if (chunk.host != nullptr) memory_->CountSwapped(-static_cast<int64_t>(chunk.bytes));
    } else {
      real_->cuMemUnmap(chunk.address, chunk.bytes);
      real_->cuMemRelease(chunk.handle);
    }
  }
  return result;
}

CUresult Swapper::SetPeer(CUdevice peer, bool reaches) {
  const CUmemLocation there = {CU_MEM_LOCATION_TYPE_DEVICE, peer};
  const CUmemAccessDesc access = {
      there, reaches ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
  for (const Place& place : memory_->Resident()) {
    const Chunk& chunk = *place.chunk;
    const CUresult result = real_->cuMemSetAccess(chunk.address, chunk.bytes, &access, 1);
    if (result != CUDA_SUCCESS) return result;
  }
  std::erase_if(access_, [&](const CUmemAccessDesc& each) { return each.location.id == peer; });
  if (reaches) access_.push_back(access);
  return CUDA_SUCCESS;
}

CUresult Swapper::Unback(const Place& place) {
  Chunk& chunk = *place.chunk;
  const CUresult result = real_->cuMemUnmap(chunk.address, chunk.bytes);
  if (result != CUDA_SUCCESS) return result;
  real_->cuMemRelease(chunk.handle);
  chunk.handle = 0;
  memory_->SetResident(place, false);
  if (chunk.host != nullptr) memory_->CountSwapped(static_cast<int64_t>(chunk.bytes));
  return CUDA_SUCCESS;
}

CUresult Swapper::BackNew(Run* run) {
  std::vector<Place> places;
  for (Chunk& chunk : run->chunks) {
    if (chunk.resident || chunk.host != nullptr) return CUDA_ERROR_NOT_READY;
    places.push_back({run, &chunk});
  }
  const CUresult result = Back(places.data(), places.size());
  if (result != CUDA_SUCCESS) return result;
  for (Chunk& chunk : run->chunks) chunk.exposed = true;
  return CUDA_SUCCESS;
}

CUresult Swapper::StartLeaving(const Place& place, std::deque<Leaving>* leaving) {
  Chunk& chunk = *place.chunk;
  std::byte* const host = arena_.Take(chunk.bytes);
  const CUevent event = TakeEvent();
  CUresult result = host == nullptr || event == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    result = real_->cuMemcpyDtoHAsync_v2(host, chunk.address, chunk.bytes, out_stream_);
  }
  if (result == CUDA_SUCCESS) result = real_->cuEventRecord(event, out_stream_);
  if (result == CUDA_SUCCESS) {
    leaving->push_back({place, host, event});
    return result;
  }
  if (host != nullptr) {
    // A copy that was started before the failure must not write to a slot somebody else gets.
    real_->cuStreamSynchronize(out_stream_);
    arena_.Return(host, chunk.bytes, MonotonicNow());
  }
  if (event != nullptr) events_.push_back(event);
  return result;
}

CUresult Swapper::FinishLeaving(std::deque<Leaving>* leaving,
                                const std::function<void(Bytes copied)>& moved) {
  const Leaving first = leaving->front();
  leaving->pop_front();
  CUresult result = real_->cuEventSynchronize(first.event);
  events_.push_back(first.event);
  Chunk& chunk = *first.place.chunk;
  if (result != CUDA_SUCCESS) {
    arena_.Return(first.host, chunk.bytes, MonotonicNow());
    return result;
  }
  chunk.host = first.host;
  chunk.exposed = false;
  result = Unback(first.place);
  if (result == CUDA_SUCCESS) moved(Bytes(chunk.bytes));
  return result;
}

CUresult Swapper::Evict(Bytes target, const std::function<void(Bytes copied)>& moved) {
  Reap();
  const Bytes resident = memory_->GetView().resident;
  if (resident <= target) return CUDA_SUCCESS;
  const std::vector<Place> victims = memory_->Victims((resident - target).count);
  const InContext scope(real_, context_);
  CUresult result = CUDA_SUCCESS;
  std::deque<Leaving> leaving;
  for (size_t i = 0; i < victims.size() && result == CUDA_SUCCESS; ++i) {
    if (!victims[i].chunk->exposed) {
      result = Unback(victims[i]);
      if (result == CUDA_SUCCESS) moved(Bytes());
      continue;
    }
    if (leaving.size() >= kInFlight) result = FinishLeaving(&leaving, moved);
    if (result == CUDA_SUCCESS) result = scope.result();
    if (result == CUDA_SUCCESS) result = PrepareStreams();
    if (result == CUDA_SUCCESS) result = StartLeaving(victims[i], &leaving);
  }
  while (!leaving.empty()) {
    const CUresult finished = FinishLeaving(&leaving, moved);
    if (result == CUDA_SUCCESS) result = finished;
  }
  return result;
}

CUresult Swapper::RestoreSome(Bytes credit, Bytes* copied) {
  Reap();
  const Bytes room = SaturatingSubtract(credit, memory_->GetView().resident);
  const std::vector<Place> places = memory_->Missing(room.count, kInFlight);
  if (places.empty()) return CUDA_SUCCESS;
  const InContext scope(real_, context_);
  CUresult result = scope.result();
  if (result == CUDA_SUCCESS) result = PrepareStreams();
  size_t copies_begin = places.size();
  for (size_t i = 0; i < places.size() && result == CUDA_SUCCESS;) {
    // Chunks with bytes to copy go one by one, so that the copy of one runs beside the mapping of
    // the next; fresh neighbours go together.
    size_t count = 1;
    while (places[i].chunk->host == nullptr && i + count < places.size() &&
           places[i + count].run == places[i].run && places[i + count].chunk->host == nullptr &&
           places[i + count].chunk == places[i].chunk + count) {
      ++count;
    }
    result = Back(&places[i], count);
    Chunk& chunk = *places[i].chunk;
    if (result == CUDA_SUCCESS && chunk.host != nullptr) {
      copies_begin = std::min(copies_begin, i);
      result = real_->cuMemcpyHtoDAsync_v2(chunk.address, chunk.host, chunk.bytes, in_stream_);
      if (result != CUDA_SUCCESS) Unback(places[i]);
    }
    i += count;
  }
  if (copies_begin == places.size()) return result;
  const CUresult arrived = real_->cuStreamSynchronize(in_stream_);
  for (size_t i = copies_begin; i < places.size(); ++i) {
    Chunk& chunk = *places[i].chunk;
    if (!chunk.resident || chunk.host == nullptr) continue;
    if (arrived != CUDA_SUCCESS) {
      Unback(places[i]);
      continue;
    }
    *copied += Bytes(chunk.bytes);
  }
  return result != CUDA_SUCCESS ? result : arrived;
}

void Swapper::DropHostCopy(Chunk* chunk) {
  if (chunk->host == nullptr) return;
  if (!chunk->resident) memory_->CountSwapped(-static_cast<int64_t>(chunk->bytes));
  arena_.Return(chunk->host, chunk->bytes, MonotonicNow());
  chunk->host = nullptr;
}

void Swapper::Expose() {
  for (const Place& place : memory_->Resident()) {
    place.chunk->exposed = !place.run->lost;
    DropHostCopy(place.chunk);
  }
}

void Swapper::Lose(CUcontext context, CUcontext other) {
  for (const Place& place : memory_->Lose(context)) {
    place.chunk->exposed = false;
    DropHostCopy(place.chunk);
  }
  if (context_ == context) UseContext(other);
}

void Swapper::Reap() {
  for (std::unique_ptr<Run>& run : memory_->TakeDead()) {
    bool clear = true;
    for (Chunk& chunk : run->chunks) {
      DropHostCopy(&chunk);
      if (!chunk.resident) continue;
      const CUresult result = Unback({run.get(), &chunk});
      if (result == CUDA_SUCCESS) continue;
      clear = false;
      if (!std::exchange(reap_failed_, true)) {
        Log(LogLevel::kWarn, "cannot give back %llu bytes of freed memory (error %d)",
            static_cast<unsigned long long>(chunk.bytes), static_cast<int>(result));
      }
    }
    if (clear) {
      memory_->Bury(std::move(run));
    } else {
      memory_->KeepDead(std::move(run));  // for another try
    }
  }
}

void Swapper::Trim() {
  const InContext scope(real_, context_);
  arena_.Trim(MonotonicNow(), kArenaAge);
}

}  // namespace tandem::shim
