#include "src/shim/swapper.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/shim/log.h"

namespace tandem::shim {

CUresult Swapper::BackNew(Run* run) {
  std::vector<Place> places;
  for (Chunk& chunk : run->chunks) {
    if (chunk.resident() || chunk.host != nullptr) return CUDA_ERROR_NOT_READY;
    places.push_back({run, &chunk});
  }
  const CUresult result = mover_.Back(places.data(), places.size());
  if (result != CUDA_SUCCESS) return result;
  for (Chunk& chunk : run->chunks) chunk.exposed = true;
  return CUDA_SUCCESS;
}

CUresult Swapper::Evict(Bytes target, const std::function<void(Bytes copied)>& moved) {
  mover_.AwaitArriving();
  mover_.TakeArrived();  // for a lease that is over
  Reap();
  const Bytes resident = memory_->GetView().resident;
  if (resident <= target) return CUDA_SUCCESS;
  const std::vector<Place> victims = memory_->Victims((resident - target).count);
  const auto finish = [&]() REQUIRES_LOCK(mutex_) {
    Bytes copied;
    const CUresult result = mover_.FinishLeaving(&copied);
    if (result == CUDA_SUCCESS) moved(copied);
    return result;
  };
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < victims.size() && result == CUDA_SUCCESS; ++i) {
    if (!victims[i].chunk->exposed) {
      result = mover_.Unback(victims[i]);
      if (result == CUDA_SUCCESS) moved(Bytes());
      continue;
    }
    if (mover_.leaving() >= Mover::kInFlight) result = finish();
    if (result == CUDA_SUCCESS) result = mover_.StartLeaving(victims[i]);
  }
  while (mover_.leaving() != 0) {
    const CUresult finished = finish();
    if (result == CUDA_SUCCESS) result = finished;
  }
  return result;
}

CUresult Swapper::RestoreSome(Bytes credit, Bytes* copied) {
  CUresult result = mover_.PollArriving();
  Reap();
  *copied += mover_.TakeArrived();
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return result;
  const Bytes room = SaturatingSubtract(credit, memory_->GetView().resident);
  const std::vector<Place> places =
      memory_->Missing(room.count, Mover::kInFlight - mover_.arriving());
  if (places.empty()) return result;
  for (size_t i = 0; i < places.size();) {
    // Chunks with bytes to copy go one by one, so that the copy of one runs beside the mapping of
    // the next; fresh neighbours go together.
    size_t count = 1;
    if (places[i].chunk->host != nullptr) {
      result = mover_.StartArriving(places[i]);
    } else {
      while (i + count < places.size() && places[i + count].run == places[i].run &&
             places[i + count].chunk->host == nullptr &&
             places[i + count].chunk == places[i].chunk + count) {
        ++count;
      }
      result = mover_.Back(&places[i], count);
    }
    if (result != CUDA_SUCCESS) return result;
    i += count;
  }
  return CUDA_SUCCESS;
}

void Swapper::Expose() {
  for (const Place& place : memory_->Resident()) {
    if (place.chunk->state == Chunk::State::kArriving) continue;
    place.chunk->exposed = !place.run->lost;
    mover_.DropHostCopy(place.chunk);
  }
}

void Swapper::Lose(CUcontext context, CUcontext other) {
  mover_.AwaitArriving();
  for (const Place& place : memory_->Lose(context)) mover_.GiveUp(place);
  if (mover_.context() == context) mover_.UseContext(other);
}

void Swapper::LoseUncopied() {
  for (const Place& place : memory_->Resident()) place.chunk->exposed = false;
}

CUresult Swapper::Gather(Run* run, CUmemGenericAllocationHandle piece) {
  mover_.AwaitArriving();
  for (const Chunk& chunk : run->chunks) {
    if (chunk.state != Chunk::State::kHere) return CUDA_ERROR_NOT_READY;
  }
  bool torn = false;
  const CUresult result = mover_.Gather(run, piece, &torn);
  if (torn) {
    Log(LogLevel::kWarn,
        "%llu bytes of the program's memory are lost: the driver maps them no more",
        static_cast<unsigned long long>(run->bytes));
    memory_->LoseRun(run);
    for (Chunk& chunk : run->chunks) mover_.GiveUp({run, &chunk});
  }
  if (result != CUDA_SUCCESS) return result;
  for (Chunk& chunk : run->chunks) mover_.DropHostCopy(&chunk);
  memory_->Join(run, piece);
  memory_->Pin(run);
  run->shared = true;
  return CUDA_SUCCESS;
}

// CUDA_ERROR_NOT_READY: something of it is still arriving.
CUresult Swapper::Clear(Run* run) {
  CUresult result = CUDA_SUCCESS;
  for (Chunk& chunk : run->chunks) {
    if (chunk.state == Chunk::State::kArriving) return CUDA_ERROR_NOT_READY;
  }
  for (Chunk& chunk : run->chunks) {
    mover_.DropHostCopy(&chunk);
    const CUresult cleared = chunk.resident() ? mover_.Unback({run, &chunk}) : CUDA_SUCCESS;
    if (cleared != CUDA_SUCCESS) result = cleared;
  }
  return result;
}

void Swapper::Reap() {
  if (!memory_->HasDead()) return;
  mover_.PollArriving();
  for (std::unique_ptr<Run>& run : memory_->TakeDead()) {
    const CUresult result = Clear(run.get());
    if (result == CUDA_SUCCESS) {
      if (run->shared && shared_gone_) shared_gone_(*run);
      memory_->Bury(std::move(run));
      continue;
    }
    if (result != CUDA_ERROR_NOT_READY && !std::exchange(reap_failed_, true)) {
      Log(LogLevel::kWarn, "cannot give back %llu bytes of freed memory (error %d)",
          static_cast<unsigned long long>(run->bytes), static_cast<int>(result));
    }
    memory_->KeepDead(std::move(run));  // for another try
  }
}

}  // namespace tandem::shim
