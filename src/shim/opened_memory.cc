#include "src/shim/opened_memory.h"

#include <iterator>
#include <utility>
#include <vector>

#include "src/shim/address_regions.h"
#include "src/shim/log.h"
#include "src/shim/offer_calls.h"

namespace tandem::shim {

CUresult OpenedMemory::Open(const IpcHandle& handle, CUcontext context, CUdevice user,
                            CUdeviceptr* pointer) {
  MutexLock one(opening_);
  std::optional<Piece> known;
  {
    MutexLock lock(mutex_);
    const auto found = pieces_.find(handle.token());
    if (found != pieces_.end()) known = found->second;
  }
  if (known.has_value() && known->context != context) return CUDA_ERROR_ALREADY_MAPPED;
  Piece piece;
  if (known.has_value()) {
    piece = *known;
    if (handle.piece_bytes != piece.bytes) return CUDA_ERROR_INVALID_VALUE;
  } else if (const CUresult result = MapPiece(handle, context, user, &piece);
             result != CUDA_SUCCESS) {
    return result;
  }
  MutexLock lock(mutex_);
  Piece& kept = pieces_.try_emplace(handle.token(), piece).first->second;
  ++kept.opened;
  Opened& opened = opened_[kept.address + handle.offset];
  if (opened.times++ == 0) {
    opened.block = {kept.address + handle.offset, handle.bytes, context, next_id_++};
    opened.token = handle.token();
  }
  *pointer = opened.block.address;
  return CUDA_SUCCESS;
}

CUresult OpenedMemory::MapPiece(const IpcHandle& handle, CUcontext context, CUdevice user,
                                Piece* piece) {
  const auto fail = [](const Result<UniqueFd>& failed) {
    Log(LogLevel::kInfo, "another process's memory cannot be opened: %s",
        failed.error().message.c_str());
    return CUDA_ERROR_MAP_FAILED;
  };
  Result<UniqueFd> memory = FetchMemory(handle.token());
  if (!memory.ok() && memory.error().code == ErrorCode::kRefused) return fail(memory);
  const Bytes bytes(handle.piece_bytes);
  if (!make_room_(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!memory.ok()) memory = FetchMemory(handle.token());  // of the daemon that gave the room
  if (!memory.ok()) {
    fixed_->GiveBack(bytes);
    return fail(memory);
  }
  CUmemGenericAllocationHandle imported = 0;
  const auto fd = reinterpret_cast<void*>(static_cast<intptr_t>(memory->get()));
  CUresult result = real_->cuMemImportFromShareableHandle(&imported, fd,
                                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CUdeviceptr address = 0;
  if (result == CUDA_SUCCESS) {
    result = real_->cuMemAddressReserve(&address, bytes.count, kGranule, 0, 0);
    if (result == CUDA_SUCCESS) {
      result = MapAt(address, bytes.count, user, imported);
      if (result != CUDA_SUCCESS) real_->cuMemAddressFree(address, bytes.count);
    }
    real_->cuMemRelease(imported);  // the mapping keeps it
  }
  if (result != CUDA_SUCCESS) {
    fixed_->GiveBack(bytes);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? result : CUDA_ERROR_MAP_FAILED;
  }
  *piece = {address, bytes.count, context, 0};
  return result;
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
  CUresult result = real_->cuCtxPushCurrent_v2(context);
  if (result != CUDA_SUCCESS) return result;
  result = real_->cuCtxSynchronize();
  CUcontext popped = nullptr;
  real_->cuCtxPopCurrent_v2(&popped);
  return result;
}

std::optional<CUresult> OpenedMemory::Close(CUdeviceptr pointer) {
  const std::optional<Block> block = Find(pointer);
  if (!block.has_value() || block->address != pointer) return std::nullopt;
  if (const CUresult result = Synchronize(block->context); result != CUDA_SUCCESS) return result;
  MutexLock one(opening_);
  Piece gone;
  {
    MutexLock lock(mutex_);
    const auto opened = opened_.find(pointer);
    if (opened == opened_.end()) return CUDA_ERROR_INVALID_VALUE;  // another thread was faster
    const auto piece = pieces_.find(opened->second.token);
    if (--opened->second.times == 0) opened_.erase(opened);
    if (--piece->second.opened != 0) return CUDA_SUCCESS;
    gone = piece->second;
    pieces_.erase(piece);
  }
  Unmap(gone);
  return CUDA_SUCCESS;
}

void OpenedMemory::ContextEnds(CUcontext context) {
  MutexLock one(opening_);
  std::vector<Piece> gone;
  {
    MutexLock lock(mutex_);
    std::erase_if(opened_,
                  [&](const auto& entry) { return entry.second.block.context == context; });
    std::erase_if(pieces_, [&](const auto& entry) {
      if (entry.second.context != context) return false;
      gone.push_back(entry.second);
      return true;
    });
  }
  if (gone.empty()) return;
  Synchronize(context);  // a broken one has no work under way
  for (const Piece& piece : gone) Unmap(piece);
}

std::optional<OpenedMemory::Block> OpenedMemory::Find(CUdeviceptr pointer) const {
  MutexLock lock(mutex_);
  const auto after = opened_.upper_bound(pointer);
  if (after == opened_.begin()) return std::nullopt;
  const Block& block = std::prev(after)->second.block;
  if (pointer - block.address >= block.bytes) return std::nullopt;
  return block;
}

}  // namespace tandem::shim
