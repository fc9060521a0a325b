#include "src/shim/swap/swapper.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "src/shim/os/log.h"

namespace tandem::shim {

CUresult Swapper::BackNew(Extent* extent) {
  std::vector<Place> places;
  for (Chunk& chunk : extent->chunks) {
    if (chunk.resident() || chunk.host != nullptr) return CUDA_ERROR_NOT_READY;
    places.push_back({extent, &chunk});
  }
  const CUresult result = mover_.Back(places.data(), places.size());
  if (result != CUDA_SUCCESS) return result;
  for (Chunk& chunk : extent->chunks) chunk.exposed = true;
  return CUDA_SUCCESS;
}

CUresult Swapper::ChillNew(Extent* extent) {
  if (extent->chunks.size() > Mover::kInFlight) return CUDA_ERROR_NOT_READY;
  for (Chunk& chunk : extent->chunks) {
    if (chunk.mapped()) continue;
    if (chunk.host != nullptr) return CUDA_ERROR_NOT_READY;
    const CUresult result = mover_.Chill({extent, &chunk});
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Swapper::Evict(Bytes target, const std::function<void(Bytes copied)>& moved) {
  mover_.AwaitArriving();
  mover_.TakeArrived();  // for a lease that is over
  Reap();
  const Bytes resident = memory_->GetView().resident;
  if (resident <= target) return CUDA_SUCCESS;
  const std::vector<Place> victims = memory_->Victims((resident - target).count);
  mover_.BeginEviction();
  const CUresult result = Remove(victims, moved);
  mover_.EndEviction();
  return result;
}

// A batch is looked at while the one before it is copied.
CUresult Swapper::Remove(const std::vector<Place>& victims,
                         const std::function<void(Bytes copied)>& moved) {
  constexpr size_t kBatch = CleanCheck::kBatch;
  const auto examine = [&](size_t from) REQUIRES_LOCK(mutex_) {
    if (from >= victims.size()) return;
    mover_.Examine(&victims[from], std::min(kBatch, victims.size() - from));
  };
  const auto finish = [&]() REQUIRES_LOCK(mutex_) {
    Bytes copied;
    const CUresult result = mover_.FinishLeaving(&copied);
    if (result == CUDA_SUCCESS) moved(copied);
    return result;
  };
  examine(0);
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < victims.size() && result == CUDA_SUCCESS; ++i) {
    if (i % kBatch == 0) {
      examine(i + kBatch);
      mover_.FinishExamining();
    }
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
      while (i + count < places.size() && places[i + count].extent == places[i].extent &&
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

CUresult Swapper::ChillSome(Bytes credit) {
  const Bytes room = SaturatingSubtract(credit, memory_->GetView().resident);
  std::vector<Place> places =
      memory_->Missing(std::numeric_limits<uint64_t>::max(), Mover::kInFlight);
  std::erase_if(places, [room](const Place& place) { return place.chunk->bytes <= room.count; });
  for (const Place& place : places) {
    if (const CUresult result = mover_.Chill(place); result != CUDA_SUCCESS) return result;
  }
  return places.empty() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult Swapper::ChillFirst() {
  const std::vector<Place> places = memory_->Missing(std::numeric_limits<uint64_t>::max(), 1);
  return places.empty() ? CUDA_ERROR_NOT_READY : mover_.Chill(places.front());
}

DeviceMemory::Exchange Swapper::PlanExchange(Bytes credit) const {
  const Bytes room = SaturatingSubtract(credit, memory_->GetView().resident);
  return memory_->PlanExchange(room.count, Mover::kInFlight / 2);
}

bool Swapper::CanExchange(Bytes credit) const {
  return !PlanExchange(credit).in.empty();
}

// All of them are away afterwards, but for those that fail.
CUresult Swapper::Leave(const std::vector<Place>& places) {
  CUresult result = CUDA_SUCCESS;
  for (const Place& place : places) {
    const CUresult started = mover_.StartLeaving(place);
    if (started != CUDA_SUCCESS) result = started;
  }
  Bytes copied;
  while (mover_.leaving() != 0) {
    const CUresult finished = mover_.FinishLeaving(&copied);
    if (finished != CUDA_SUCCESS) result = finished;
  }
  mover_.ForgetSpare();
  return result;
}

// Of those that are away, what there is credit for comes onto the card.
CUresult Swapper::Arrive(const std::vector<Place>& places, Bytes credit) {
  CUresult result = CUDA_SUCCESS;
  for (const Place& place : places) {
    const bool fits = memory_->GetView().resident + Bytes(place.chunk->bytes) <= credit;
    if (place.chunk->mapped() || !fits) continue;
    const CUresult started = mover_.StartArriving(place);
    if (started != CUDA_SUCCESS) result = started;
  }
  mover_.AwaitArriving();
  return result;
}

// Those that are away become cold, as far as the host has room.
CUresult Swapper::Chill(const std::vector<Place>& places) {
  CUresult result = CUDA_SUCCESS;
  for (const Place& place : places) {
    const CUresult chilled = place.chunk->mapped() ? CUDA_SUCCESS : mover_.Chill(place);
    if (chilled != CUDA_SUCCESS) result = chilled;
  }
  return result;
}

// By way of the host's own copies, as all that moves. Nothing takes the place of what leaves before
// that has one on the host, so that it can come back; and what the card refuses after all goes back
// to the host. What fails then, too, is missing, and comes back or becomes cold as ever.
CUresult Swapper::Exchange(Bytes credit) {
  Reap();
  const DeviceMemory::Exchange plan = PlanExchange(credit);
  CUresult result = Leave(plan.out);
  if (result == CUDA_SUCCESS) result = Chill(plan.out);
  if (result != CUDA_SUCCESS) {
    Arrive(plan.out, credit);
    mover_.TakeArrived();
    return result;
  }
  result = Leave(plan.in);
  if (const CUresult arrived = Arrive(plan.in, credit); arrived != CUDA_SUCCESS) result = arrived;
  exchanged_.fetch_add(mover_.TakeArrived().count, std::memory_order_relaxed);
  Chill(plan.in);
  return result;
}

bool Swapper::Thaw(Bytes room) {
  const std::vector<Place> places = memory_->Hottest(room.count, Mover::kInFlight);
  Leave(places);  // what cannot stays cold
  return std::any_of(places.begin(), places.end(),
                     [](const Place& place) { return place.chunk->missing(); });
}

void Swapper::Expose(Bytes keep) {
  for (const Place& place : memory_->Resident()) {
    if (place.chunk->state == Chunk::State::kArriving) continue;
    place.chunk->exposed = !place.extent->lost;
    if (place.extent->lost || place.extent->pinned) mover_.DropHostCopy(place.chunk);
  }
  mover_.DropKeptBeyond(keep);
}

void Swapper::Lose(CUcontext context, CUcontext other) {
  mover_.AwaitArriving();
  for (const Place& place : memory_->Lose(context)) mover_.GiveUp(place);
  if (mover_.context() == context) mover_.UseContext(other);
}

void Swapper::LoseUncopied() {
  for (const Place& place : memory_->Resident()) {
    // What was kept of it may be older.
    if (place.chunk->exposed) mover_.DropHostCopy(place.chunk);
    place.chunk->exposed = false;
  }
}

CUresult Swapper::Gather(Extent* extent, CUmemGenericAllocationHandle piece) {
  mover_.AwaitArriving();
  for (const Chunk& chunk : extent->chunks) {
    if (chunk.missing()) return CUDA_ERROR_NOT_READY;
  }
  bool torn = false;
  const CUresult result = mover_.Gather(extent, piece, &torn);
  if (torn) {
    Log(LogLevel::kWarn,
        "%llu bytes of the program's memory are lost: the driver maps them no more",
        static_cast<unsigned long long>(extent->bytes));
    memory_->LoseExtent(extent);
    for (Chunk& chunk : extent->chunks) mover_.GiveUp({extent, &chunk});
  }
  if (result != CUDA_SUCCESS) return result;
  for (Chunk& chunk : extent->chunks) {
    mover_.DropHostCopy(&chunk);
    memory_->SetState({extent, &chunk}, Chunk::State::kHere);  // cold memory is in the piece, too
  }
  memory_->Join(extent, piece);
  memory_->Pin(extent);
  extent->shared = true;
  return CUDA_SUCCESS;
}

std::optional<Swapper::Piece> Swapper::Find(CUdeviceptr pointer) {
  const std::optional<Place> place = memory_->FindChunk(pointer);
  if (!place.has_value() || place->chunk->state == Chunk::State::kArriving) return std::nullopt;
  const Chunk& chunk = *place->chunk;
  const uint64_t offset = pointer - chunk.address;
  Piece piece{pointer, chunk.bytes - offset, chunk.mapped()};
  if (!piece.here && chunk.host != nullptr) piece.host = chunk.host + offset;
  return piece;
}

std::optional<Swapper::Piece> Swapper::FindToWrite(CUdeviceptr pointer, Bytes most) {
  const std::optional<Piece> found = Find(pointer);
  if (!found.has_value()) return found;
  Chunk* const chunk = memory_->FindChunk(pointer)->chunk;
  chunk->print.reset();  // it was that of the copy as it is now
  if (found->host != nullptr) return found;
  if (found->here) {
    chunk->exposed = true;  // so that it is copied before it leaves
    mover_.DropHostCopy(chunk);
    return found;
  }
  if (memory_->GetView().swapped + Bytes(chunk->bytes) > most) return std::nullopt;
  return mover_.MakeHostCopy(chunk) ? Find(pointer) : std::nullopt;
}

// CUDA_ERROR_NOT_READY: something of it is still arriving.
CUresult Swapper::Clear(Extent* extent) {
  CUresult result = CUDA_SUCCESS;
  for (Chunk& chunk : extent->chunks) {
    if (chunk.state == Chunk::State::kArriving) return CUDA_ERROR_NOT_READY;
  }
  for (Chunk& chunk : extent->chunks) {
    mover_.DropHostCopy(&chunk);
    const CUresult cleared = chunk.mapped() ? mover_.Unback({extent, &chunk}) : CUDA_SUCCESS;
    if (cleared != CUDA_SUCCESS) result = cleared;
  }
  return result;
}

void Swapper::Reap() {
  if (!memory_->HasDead()) return;
  mover_.PollArriving();
  for (std::unique_ptr<Extent>& extent : memory_->TakeDead()) {
    const CUresult result = Clear(extent.get());
    if (result == CUDA_SUCCESS) {
      if (extent->shared && shared_gone_) shared_gone_(*extent);
      memory_->Bury(std::move(extent));
      continue;
    }
    if (result != CUDA_ERROR_NOT_READY && !std::exchange(reap_failed_, true)) {
      Log(LogLevel::kWarn, "cannot give back %llu bytes of freed memory (error %d)",
          static_cast<unsigned long long>(extent->bytes), static_cast<int>(result));
    }
    memory_->KeepDead(std::move(extent));  // for another try
  }
}

}  // namespace tandem::shim
