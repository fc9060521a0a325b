#include "src/shim/memory_offers.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "src/shim/log.h"
#include "src/shim/offer_calls.h"

namespace tandem::shim {
namespace {

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr int kMostTurns = 1000;   // that others may take in between
constexpr int kMostUndrained = 5;  // then what is under way will not end without us

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
  {
    MutexLock lock(mutex_);
    const auto known = offers_.find(home.run);
    if (known != offers_.end()) {
      *token = known->second;
      return CUDA_SUCCESS;
    }
  }
  const std::optional<OfferToken> made = NewToken();
  if (!made.has_value()) return CUDA_ERROR_OPERATING_SYSTEM;
  *token = *made;
  UniqueFd memory;
  const CUresult result = Share(home, await_lease, &memory);
  if (result != CUDA_SUCCESS) return result;
  return Tell(home, *token, memory).ok() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUipcMemHandle MemoryOffers::HandleOf(const Home& home, const OfferToken& token) const {
  IpcHandle made;
  made.token_high = token.first;
  made.token_low = token.second;
  made.piece_bytes = home.run_bytes;
  made.offset = home.block.address - home.run;
  made.bytes = home.block.bytes;
  made.device = UuidOf(*parts_.real, parts_.device);
  return Pack(made);
}

// Where no daemon answers, the next one hears of it with the new registration.
Status MemoryOffers::Tell(const Home& home, const OfferToken& token, const UniqueFd& memory) {
  {
    MutexLock lock(mutex_);
    offers_[home.run] = token;
  }
  Status told = OfferMemory(token, parts_.link->device(), memory);
  if (told.ok() || told.error().code != ErrorCode::kRefused) return {};
  Log(LogLevel::kWarn, "memory cannot be shared: %s", told.error().message.c_str());
  MutexLock lock(mutex_);
  offers_.erase(home.run);
  return told;
}

CUresult MemoryOffers::Share(const Home& home, const AwaitLease& await_lease, UniqueFd* memory) {
  const Bytes bytes(home.run_bytes);
  {
    // It was shared before, but the daemon would not have it.
    MutexLock lock(parts_.swapper->mutex());
    const Run* const run = parts_.memory->FindRun(home.run);
    if (run != nullptr && run->shared) return Export(run->chunks[0].handle, memory);
  }
  if (!parts_.make_room(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
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
  Run* const run = parts_.memory->FindRun(home.run);
  const std::optional<Block> block = parts_.memory->Find(home.block.address);
  if (run == nullptr || run->lost || !block.has_value() || block->id != home.block.id) {
    return CUDA_ERROR_INVALID_VALUE;  // freed since
  }
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, parts_.device};
  properties.requestedHandleTypes = kDescriptor;
  CUmemGenericAllocationHandle piece = 0;
  CUresult result = parts_.real->cuMemCreate(&piece, run->bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = Export(piece, memory);
  if (result == CUDA_SUCCESS) result = parts_.swapper->Gather(run, piece);
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
                     [&](const auto& offer) { return offer.second == token; });
}

void MemoryOffers::OnGone(const Run& run) {
  {
    MutexLock lock(mutex_);
    const auto known = offers_.find(run.address);
    if (known != offers_.end()) {
      parts_.link->Withdraw({known->second.first, known->second.second});
      offers_.erase(known);
    }
  }
  parts_.fixed->GiveBack(Bytes(run.bytes));
}

void MemoryOffers::OfferAgain() {
  MutexLock lock(mutex_);
  for (const auto& [address, token] : offers_) {
    const Run* const run = parts_.memory->FindRun(address);
    UniqueFd memory;
    if (run == nullptr || Export(run->chunks[0].handle, &memory) != CUDA_SUCCESS) continue;
    const Status told = OfferMemory(token, parts_.link->device(), memory);
    if (told.ok()) continue;
    Log(LogLevel::kWarn, "memory is not shared any more: %s", told.error().message.c_str());
    if (told.error().code != ErrorCode::kRefused) return;  // that daemon is gone, too
  }
}

}  // namespace tandem::shim
