// Hooks of driver_api.def's OWN rows for what is known of a pointer. Of memory that may be swapped
// the driver knows only what happens to be on the card.
#include "src/shim/hooks/pointer_hooks.h"

#include <cstring>
#include <map>

#include "src/base/mutex.h"
#include "src/shim/program/process.h"

namespace tandem::shim {
namespace {

// What the program has around a pointer, if it may be swapped, or is another process's.
struct Known {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  CUcontext context = nullptr;  // null for what the program has mapped
  uint64_t id = 0;
  CUdevice device = 0;
  CUmemoryPool pool = nullptr;
  int access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  uint64_t handle_types = 0;
  bool has_handle = false;  // for other processes
};

// What a pool keeps is not the program's.
std::optional<Known> FindIn(Guest* guest, CUdeviceptr pointer) {
  if (const std::optional<Block> block = guest->Find(pointer)) {
    Known known{block->address, block->bytes, block->context, block->id, guest->device()};
    const auto entry = guest->pools().Find({block->address, block->id});
    known.has_handle = !entry.has_value() && guest->offers().Supported();
    if (!entry.has_value()) return known;
    if (entry->idle) return std::nullopt;
    known.bytes = entry->bytes;  // of a block from a pool fewer than it takes
    known.pool = entry->pool;
    return known;
  }
  if (const auto opened = guest->opened().Find(pointer)) {
    return Known{opened->address, opened->bytes, opened->context, opened->id, guest->device()};
  }
  const auto mapping = guest->vmm().Find(pointer);
  if (!mapping.has_value() || !mapping->ours) return std::nullopt;
  return Known{.address = mapping->address,
               .bytes = mapping->bytes,
               .id = mapping->id,
               .device = guest->device(),
               .access = mapping->flags,
               .handle_types = mapping->handle_types};
}

std::optional<Known> FindOurs(CUdeviceptr pointer) {
  return AskGuests([=](Guest* guest) { return FindIn(guest, pointer); });
}

// What the driver is to be asked about a pointer that is to nothing of ours. Where a block was, it
// still knows of memory that we keep there: it is asked about an address that can have none.
CUdeviceptr ForDriver(CUdeviceptr pointer) {
  constexpr CUdeviceptr kNobodys = 0x10;
  const bool ours = FindGuest([=](Guest* guest) { return guest->Owns(pointer); }) != nullptr;
  return ours ? kNobodys : pointer;
}

// Those of which the program wants every copy and fill waited for. What it has freed since is
// another block's by address, but not by number.
class SynchronousBlocks {
 public:
  void Set(const Known& block, bool synchronous) {
    MutexLock lock(mutex_);
    if (synchronous) {
      ids_[block.address] = block.id;
    } else {
      ids_.erase(block.address);
    }
    any_.store(!ids_.empty(), std::memory_order_release);
  }
  bool Has(const Known& block) {
    MutexLock lock(mutex_);
    const auto found = ids_.find(block.address);
    return found != ids_.end() && found->second == block.id;
  }
  bool any() const { return any_.load(std::memory_order_acquire); }

 private:
  Mutex mutex_;
  std::map<CUdeviceptr, uint64_t> ids_ GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};
};

// Never destroyed: threads outlive static destructors.
SynchronousBlocks& TheSynchronous() {
  static auto* const blocks = new SynchronousBlocks;
  return *blocks;
}

template <typename Value>
CUresult Put(void* data, Value value) {
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

CUresult GetAttribute(const Known& known, CUdeviceptr pointer, CUpointer_attribute attribute,
                      void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Put(data, known.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Put(data, static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Put(data, pointer);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Put(data, static_cast<unsigned long long>(known.id));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Put(data, TheSynchronous().Has(known) ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return Put(data, 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Put(data, known.has_handle ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Put(data, known.access != 0 ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Put(data, known.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Put(data, known.address);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Put(data, known.bytes);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Put(data, known.pool);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Put(data, known.handle_types);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Put(data, known.access);
    default:
      return Call(Real().cuPointerGetAttribute, data, attribute, pointer);
  }
}

}  // namespace

bool IsSynchronous(CUdeviceptr pointer) {
  if (!TheSynchronous().any()) return false;
  const std::optional<Known> known = FindOurs(pointer);
  return known.has_value() && TheSynchronous().Has(*known);
}

}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) noexcept {
  const std::optional<Known> known = FindOurs(pointer);
  if (!known.has_value()) {
    return Call(Real().cuMemGetAddressRange_v2, base, size, ForDriver(pointer));
  }
  if (base != nullptr) *base = known->address;
  if (size != nullptr) *size = known->bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                               CUdeviceptr pointer) noexcept {
  const std::optional<Known> known = data == nullptr ? std::nullopt : FindOurs(pointer);
  if (!known.has_value()) {
    return Call(Real().cuPointerGetAttribute, data, attribute, ForDriver(pointer));
  }
  return GetAttribute(*known, pointer, attribute, data);
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr pointer) noexcept {
  const bool known_use = value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
  const std::optional<Known> known = known_use ? FindOurs(pointer) : std::nullopt;
  if (!known.has_value()) {
    return Call(Real().cuPointerSetAttribute, value, attribute, ForDriver(pointer));
  }
  int synchronous = 0;
  std::memcpy(&synchronous, value, sizeof(synchronous));
  TheSynchronous().Set(*known, synchronous != 0);
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr pointer) noexcept {
  const std::optional<Known> known = FindOurs(pointer);
  const CUresult result = Call(Real().cuPointerGetAttributes, count, attributes, data,
                               known.has_value() ? pointer : ForDriver(pointer));
  if (result != CUDA_SUCCESS || !known.has_value()) return result;
  // An attribute that does not apply keeps the driver's word for that.
  for (unsigned int i = 0; i < count; ++i) GetAttribute(*known, pointer, attributes[i], data[i]);
  return CUDA_SUCCESS;
}

}  // extern "C"
