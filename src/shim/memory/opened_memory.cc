#include "src/shim/memory/opened_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/around.h"
#include "src/shim/driver/address_regions.h"
#include "src/shim/driver/in_context.h"
#include "src/shim/link/offer_calls.h"
#include "src/shim/os/log.h"

namespace tandem::shim {
namespace {

constexpr int kMostFetches = 3;

}  // namespace

CUresult OpenedMemory::Open(const IpcHandle& handle, CUcontext context, CUdevice user,
                            CUdeviceptr* pointer) {
  if (const auto again = OpenAgain(handle, context, pointer)) return *again;
  CUdeviceptr address = 0;
  const CUresult result = MapPiece(handle, user, &address);
  if (result == CUDA_SUCCESS) return Mapped(handle, address, pointer);
  Forget(handle.token());
  return result;
}

std::optional<CUresult> OpenedMemory::OpenAgain(const IpcHandle& handle, CUcontext context,
                                                CUdeviceptr* pointer) {
  MutexLock lock(mutex_);
  for (;;) {
    const auto [known, added] = pieces_.try_emplace(handle.token());
    Piece& piece = known->second;
    if (added) {
      piece.bytes = handle.piece_bytes;
      piece.context = context;
      return std::nullopt;
    }
    if (!piece.changing) {
      if (piece.context != context) return CUDA_ERROR_ALREADY_MAPPED;
      if (handle.piece_bytes != piece.bytes) return CUDA_ERROR_INVALID_VALUE;
      *pointer = AddBlock(handle, &piece);
      return CUDA_SUCCESS;
    }
    changed_.Wait(mutex_);
  }
}

CUresult OpenedMemory::Mapped(const IpcHandle& handle, CUdeviceptr address, CUdeviceptr* pointer) {
  Piece gone;
  {
    MutexLock lock(mutex_);
    Piece& piece = pieces_[handle.token()];
    piece.address = address;
    if (!piece.orphaned) {
      piece.changing = false;
      *pointer = AddBlock(handle, &piece);
      changed_.NotifyAll();
      return CUDA_SUCCESS;
    }
    gone = piece;
  }
  Unmap(gone);
  Forget(handle.token());
  return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void OpenedMemory::Forget(const OfferToken& token) {
  MutexLock lock(mutex_);
  pieces_.erase(token);
  changed_.NotifyAll();
}

// There may be another block at the same address by now, where the offerer's page has it cut anew.
CUdeviceptr OpenedMemory::AddBlock(const IpcHandle& handle, Piece* piece) {
  const CUdeviceptr address = piece->address + handle.offset;
  Opened& opened = opened_[address];
  if (opened.times == 0) {
    opened.block = {address, handle.bytes, piece->context, next_id_++};
    opened.token = handle.token();
  }
  opened.block.bytes = std::max(opened.block.bytes, handle.bytes);
  ++opened.times;
  ++piece->opened;
  return address;
}

CUresult OpenedMemory::Fetch(const IpcHandle& handle, UniqueFd* memory) {
  Result<UniqueFd> fetched = FetchMemory(handle.token());
  if (fetched.ok()) {
    *memory = std::move(*fetched);
    return CUDA_SUCCESS;
  }
  const ErrorCode code = fetched.error().code;
  if (code == ErrorCode::kNotFound || code == ErrorCode::kUnavailable) return CUDA_ERROR_NOT_READY;
  Log(LogLevel::kInfo, "another process's memory cannot be opened: %s",
      fetched.error().message.c_str());
  return CUDA_ERROR_MAP_FAILED;
}

// A descriptor keeps the memory on the card, where it may be counted no more: so it is taken only
// once there is room for it. A daemon that has given the room may be gone before it is asked again.
CUresult OpenedMemory::FetchCounted(const IpcHandle& handle, UniqueFd* memory) {
  const Bytes bytes(handle.piece_bytes);
  CUresult result = CUDA_ERROR_NOT_READY;
  for (int i = 0; i < kMostFetches && result == CUDA_ERROR_NOT_READY; ++i) {
    result = Fetch(handle, memory);
    memory->Reset();
    if (result == CUDA_ERROR_MAP_FAILED) return result;
    if (!reclaim_->MakeRoom(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    result = Fetch(handle, memory);
    if (result != CUDA_SUCCESS) fixed_->GiveBack(bytes);
  }
  return result == CUDA_SUCCESS ? result : CUDA_ERROR_MAP_FAILED;
}

CUresult OpenedMemory::MapPiece(const IpcHandle& handle, CUdevice user, CUdeviceptr* address) {
  UniqueFd memory;
  CUresult result = FetchCounted(handle, &memory);
  if (result != CUDA_SUCCESS) return result;
  const Bytes bytes(handle.piece_bytes);
  CUmemGenericAllocationHandle imported = 0;
  const auto fd = reinterpret_cast<void*>(static_cast<intptr_t>(memory.get()));
  result = real_->cuMemImportFromShareableHandle(&imported, fd,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result == CUDA_SUCCESS) {
    result = real_->cuMemAddressReserve(address, bytes.count, kGranule, 0, 0);
    if (result == CUDA_SUCCESS) {
      result = MapAt(*address, bytes.count, user, imported);
      if (result != CUDA_SUCCESS) real_->cuMemAddressFree(*address, bytes.count);
    }
    real_->cuMemRelease(imported);  // the mapping keeps it
  }
  if (result == CUDA_SUCCESS) return result;
  memory.Reset();
  fixed_->GiveBack(bytes);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_ERROR_MAP_FAILED;
}

CUresult OpenedMemory::MapAt(CUdeviceptr address, uint64_t bytes, CUdevice user,
                             CUmemGenericAllocationHandle memory) {
  std::vector<CUmemAccessDesc> access = {
      {{CU_MEM_LOCATION_TYPE_DEVICE, device_}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  if (user != device_) {
    access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, user}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  CUresult result = real_->cuMemMap(address, bytes, 0, memory, 0);
  if (result != CUDA_SUCCESS) return result;
  result = real_->cuMemSetAccess(address, bytes, access.data(), access.size());
  if (result != CUDA_SUCCESS) real_->cuMemUnmap(address, bytes);
  return result;
}

void OpenedMemory::Unmap(const Piece& piece) {
  const CUresult result = real_->cuMemUnmap(piece.address, piece.bytes);
  if (result != CUDA_SUCCESS) {
    Log(LogLevel::kWarn, "another process's memory cannot be closed: error %d",
        static_cast<int>(result));
    return;  // and goes on counting
  }
  real_->cuMemAddressFree(piece.address, piece.bytes);
  fixed_->GiveBack(Bytes(piece.bytes));
}

CUresult OpenedMemory::Synchronize(CUcontext context) {
  const InContext scope(real_, context);
  return scope.result() == CUDA_SUCCESS ? real_->cuCtxSynchronize() : scope.result();
}

std::optional<CUresult> OpenedMemory::Close(CUdeviceptr pointer) {
  const std::optional<Block> block = Find(pointer);
  if (!block.has_value() || block->address != pointer) return std::nullopt;
  if (const CUresult result = Synchronize(block->context); result != CUDA_SUCCESS) return result;
  OfferToken token;
  Piece gone;
  {
    MutexLock lock(mutex_);
    const auto opened = opened_.find(pointer);
    if (opened == opened_.end()) return CUDA_ERROR_INVALID_VALUE;  // another thread was faster
    token = opened->second.token;
    Piece& piece = pieces_[token];
    if (--opened->second.times == 0) opened_.erase(opened);
    if (--piece.opened != 0) return CUDA_SUCCESS;
    piece.changing = true;
    gone = piece;
  }
  Unmap(gone);
  Forget(token);
  return CUDA_SUCCESS;
}

void OpenedMemory::ContextEnds(CUcontext context) {
  std::vector<std::pair<OfferToken, Piece>> gone;
  {
    MutexLock lock(mutex_);
    std::erase_if(opened_,
                  [&](const auto& entry) { return entry.second.block.context == context; });
    for (auto& [token, piece] : pieces_) {
      if (piece.context != context) continue;
      if (piece.changing) {
        piece.orphaned = true;  // who maps it unmaps it
        continue;
      }
      piece.changing = true;
      gone.emplace_back(token, piece);
    }
  }
  if (gone.empty()) return;
  Synchronize(context);  // a broken one has no work under way
  for (const auto& [token, piece] : gone) {
    Unmap(piece);
    Forget(token);
  }
}

std::optional<OpenedMemory::Block> OpenedMemory::Find(CUdeviceptr pointer) const {
  MutexLock lock(mutex_);
  const auto found =
      FindAround(opened_, pointer, [](const auto& opened) { return opened.block.bytes; });
  if (found == opened_.end()) return std::nullopt;
  return found->second.block;
}

}  // namespace tandem::shim
