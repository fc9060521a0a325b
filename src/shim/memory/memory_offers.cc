#include "src/shim/memory/memory_offers.h"
#include "src/cuda/uuid.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "src/shim/link/offer_calls.h"
#include "src/shim/os/log.h"

namespace tandem::shim {
namespace {

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr Duration kTellPeriod = Milliseconds(500);
constexpr int kMostTurns = 1000;   // that others may take in between
constexpr int kMostUndrained = 5;  // then what is under way will not end without us

bool IsAbsence(const Error& error) {
  return error.code == ErrorCode::kNotFound || error.code == ErrorCode::kUnavailable;
}

}  // namespace

bool MemoryOffers::Supported() const {
  const cuda::RealDriver& real = *parts_.real;
  int supported = 0;
  return real.cuMemExportToShareableHandle != nullptr && real.cuMemcpyDtoDAsync_v2 != nullptr &&
         real.cuMemAddressFree != nullptr &&
         real.cuDeviceGetAttribute(&supported,
                                   CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                   parts_.device) == CUDA_SUCCESS &&
         supported != 0;
}

CUresult MemoryOffers::Offer(CUdeviceptr pointer, const AwaitLease& await_lease,
                             CUipcMemHandle* handle) {
  MutexLock one(offering_);
  const std::optional<Home> home = parts_.memory->HoldHome(pointer);
  if (!home.has_value()) return CUDA_ERROR_INVALID_VALUE;
  OfferToken token;
  const CUresult result = OfferHeld(*home, await_lease, &token);
  if (result == CUDA_SUCCESS) *handle = HandleOf(*home, token);
  parts_.shrink(parts_.memory->LetGo(*home));
  return result;
}

CUresult MemoryOffers::OfferHeld(const Home& home, const AwaitLease& await_lease,
                                 OfferToken* token) {
  std::optional<OfferToken> named;
  {
    MutexLock lock(mutex_);
    const auto known = offers_.find(home.extent);
    if (known != offers_.end()) {
      *token = known->second.token;
      if (known->second.state == Offered::State::kTold) return CUDA_SUCCESS;
      named = *token;
    }
  }
  if (!named.has_value()) named = NewToken();
  if (!named.has_value()) return CUDA_ERROR_OPERATING_SYSTEM;
  *token = *named;
  UniqueFd memory;
  const CUresult result = Share(home, await_lease, &memory);
  return result == CUDA_SUCCESS ? Tell(home, *token, memory) : result;
}

CUipcMemHandle MemoryOffers::HandleOf(const Home& home, const OfferToken& token) const {
  IpcHandle made;
  made.token_high = token.first;
  made.token_low = token.second;
  made.piece_bytes = home.extent_bytes;
  made.offset = home.block.address - home.extent;
  made.bytes = home.block.bytes;
  made.device = cuda::UuidOf(*parts_.real, parts_.device);
  return Pack(made);
}

// Where no daemon answers that knows us, the agent tells one that does.
CUresult MemoryOffers::Tell(const Home& home, const OfferToken& token, const UniqueFd& memory) {
  {
    MutexLock lock(mutex_);
    Offered& offered = offers_[home.extent];
    offered.token = token;
    offered.state = Offered::State::kAsking;
  }
  const Status told = OfferMemory(token, parts_.link->device(), memory);
  if (told.ok() || IsAbsence(told.error())) {
    MutexLock lock(mutex_);
    Offered::State& state = offers_[home.extent].state;
    // Else there is another daemon by now, and what this one said is worth nothing.
    if (state == Offered::State::kAsking) {
      state = told.ok() ? Offered::State::kTold : Offered::State::kUntold;
    }
    CountUntold();
    return CUDA_SUCCESS;
  }
  Log(LogLevel::kWarn, "memory cannot be shared: %s", told.error().message.c_str());
  // The agent may have told it since: it does not just now, and what it told is withdrawn.
  MutexLock nobody_tells(parts_.swapper->mutex());
  MutexLock lock(mutex_);
  offers_.erase(home.extent);
  CountUntold();
  parts_.link->Withdraw({token.first, token.second});
  return told.error().code == ErrorCode::kRefused ? CUDA_ERROR_OUT_OF_MEMORY
                                                  : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult MemoryOffers::Share(const Home& home, const AwaitLease& await_lease, UniqueFd* memory) {
  const Bytes bytes(home.extent_bytes);
  {
    // It was shared before, but the daemon would not have it.
    MutexLock lock(parts_.swapper->mutex());
    const Extent* const extent = parts_.memory->FindExtent(home.extent);
    if (extent != nullptr && extent->shared) return Export(extent->chunks[0].handle, memory);
  }
  if (!parts_.reclaim->MakeRoom(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = MoveAlone(home, await_lease, memory);
  if (result == CUDA_SUCCESS) {
    parts_.shrink(bytes);
  } else {
    parts_.fixed->GiveBack(bytes);
  }
  return result;
}

CUresult MemoryOffers::MoveAlone(const Home& home, const AwaitLease& await_lease,
                                 UniqueFd* memory) {
  int undrained = 0;
  for (int turn = 0; turn < kMostTurns && undrained < kMostUndrained; ++turn) {
    await_lease();
    CUresult result = CUDA_ERROR_NOT_READY;
    const auto move = [&]() REQUIRES_LOCK(parts_.swapper->mutex()) { result = Move(home, memory); };
    const AloneJob::Answer answer = parts_.run_alone(move);
    if (answer == AloneJob::Answer::kUndrained) ++undrained;
    // Some of it may have been on its way, where another thread has only just allocated it.
    if (answer == AloneJob::Answer::kDone && result != CUDA_ERROR_NOT_READY) return result;
  }
  Log(LogLevel::kWarn, "memory cannot be shared: the program's work does not end");
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult MemoryOffers::Move(const Home& home, UniqueFd* memory) {
  Extent* const extent = parts_.memory->FindExtent(home.extent);
  const std::optional<Block> block = parts_.memory->Find(home.block.address);
  if (extent == nullptr || extent->lost || !block.has_value() || block->id != home.block.id) {
    return CUDA_ERROR_INVALID_VALUE;  // freed since
  }
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, parts_.device};
  properties.requestedHandleTypes = kDescriptor;
  CUmemGenericAllocationHandle piece = 0;
  CUresult result = parts_.real->cuMemCreate(&piece, extent->bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = Export(piece, memory);
  if (result == CUDA_SUCCESS) result = parts_.swapper->Gather(extent, piece);
  if (result == CUDA_SUCCESS) return result;
  memory->Reset();
  parts_.real->cuMemRelease(piece);
  return result;
}

CUresult MemoryOffers::Export(CUmemGenericAllocationHandle piece, UniqueFd* memory) const {
  int fd = -1;
  const CUresult result = parts_.real->cuMemExportToShareableHandle(&fd, piece, kDescriptor, 0);
  if (result == CUDA_SUCCESS) *memory = AboveStandardStreams(UniqueFd(fd));
  return result;
}

bool MemoryOffers::Has(const OfferToken& token) const {
  MutexLock lock(mutex_);
  return std::any_of(offers_.begin(), offers_.end(),
                     [&](const auto& offer) { return offer.second.token == token; });
}

void MemoryOffers::OnGone(const Extent& extent) {
  {
    MutexLock lock(mutex_);
    const auto known = offers_.find(extent.address);
    if (known != offers_.end()) {
      const OfferToken token = known->second.token;
      parts_.link->Withdraw({token.first, token.second});
      offers_.erase(known);
      CountUntold();
    }
  }
  parts_.fixed->GiveBack(Bytes(extent.bytes));
}

void MemoryOffers::OfferAgain() {
  MutexLock lock(mutex_);
  for (auto& [extent, offered] : offers_) offered.state = Offered::State::kUntold;
  CountUntold();
  tell_at_ = Instant();
}

void MemoryOffers::TellUntold() {
  if (!has_untold_.load() || MonotonicNow() < tell_at_) return;
  tell_at_ = MonotonicNow() + kTellPeriod;
  MutexLock nothing_goes(parts_.swapper->mutex());
  std::vector<std::pair<CUdeviceptr, OfferToken>> untold;
  {
    MutexLock lock(mutex_);
    for (const auto& [extent, offered] : offers_) {
      if (offered.state == Offered::State::kUntold) untold.emplace_back(extent, offered.token);
    }
  }
  for (const auto& [extent, token] : untold) {
    const Status told = TellAgain(extent, token);
    MutexLock lock(mutex_);
    Offered& offered = offers_[extent];  // none goes without the swap lock
    if (told.ok()) offered.state = Offered::State::kTold;
    CountUntold();
    if (told.ok()) continue;
    if (!std::exchange(offered.warned, true)) {
      Log(LogLevel::kWarn, "memory is not shared for now: %s", told.error().message.c_str());
    }
    if (IsAbsence(told.error())) return;  // nor will it hear of the others
  }
}

Status MemoryOffers::TellAgain(CUdeviceptr extent, const OfferToken& token) {
  const Extent* const known = parts_.memory->FindExtent(extent);
  UniqueFd memory;
  if (known == nullptr || Export(known->chunks[0].handle, &memory) != CUDA_SUCCESS) {
    return Error{ErrorCode::kFailed, "the driver does not export it"};
  }
  return OfferMemory(token, parts_.link->device(), memory);
}

void MemoryOffers::CountUntold() {
  has_untold_.store(std::any_of(offers_.begin(), offers_.end(), [](const auto& entry) {
    return entry.second.state == Offered::State::kUntold;
  }));
}

}  // namespace tandem::shim
