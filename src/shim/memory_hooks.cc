// Hooks of driver_api.def's OWN rows for device memory. Blocks that are not the guest's, and
// arguments that only the driver can judge, go to the driver.
#include <cstring>

#include "src/shim/process.h"

namespace tandem::shim {
namespace {

constexpr uint64_t kPitchAlignment = 512;

// Of a block from a pool the program asked for fewer bytes than it takes.
std::optional<StreamPools::Entry> PoolEntry(const Block& block) {
  return CurrentGuest()->pools().Find({block.address, block.id});
}

// The program's block around the pointer, if it is one that may be swapped. What a pool keeps is
// not the program's.
std::optional<Block> FindOurs(CUdeviceptr pointer) {
  Guest* const guest = CurrentGuest();
  if (guest == nullptr) return std::nullopt;
  const std::optional<Block> block = guest->Find(pointer);
  if (!block.has_value()) return block;
  const auto entry = PoolEntry(*block);
  return entry.has_value() && entry->idle ? std::nullopt : block;
}

// What the driver is to be asked about a pointer that is to none of our blocks. Where a block was,
// it still knows of memory that we keep there: it is asked about an address that can have none.
CUdeviceptr ForDriver(CUdeviceptr pointer) {
  constexpr CUdeviceptr kNobodys = 0x10;
  Guest* const guest = CurrentGuest();
  return guest != nullptr && guest->Owns(pointer) ? kNobodys : pointer;
}

template <typename Value>
void Put(void* data, Value value) {
  std::memcpy(data, &value, sizeof(value));
}

size_t SizeOf(const Block& block) {
  const auto entry = PoolEntry(block);
  return entry.has_value() ? entry->bytes : block.bytes;
}

// What a pool only keeps is not in the way of the program's other memory.
CUresult Allocate(Guest* guest, size_t bytes, CUcontext context, CUdeviceptr* pointer) {
  const CUresult health = guest->Health(context);
  if (health != CUDA_SUCCESS) return health;
  const CUresult result = guest->Allocate(bytes, context, pointer);
  const bool again = result == CUDA_ERROR_OUT_OF_MEMORY && guest->pools().GiveWay(true);
  return again ? guest->Allocate(bytes, context, pointer) : result;
}

CUresult GetAttribute(const Block& block, CUdeviceptr pointer, CUpointer_attribute attribute,
                      void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      Put(data, block.context);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      Put(data, static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      Put(data, pointer);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      Put(data, static_cast<unsigned long long>(block.id));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      Put(data, 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      Put(data, 1);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      Put(data, CurrentGuest()->device());
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      Put(data, block.address);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      Put(data, SizeOf(block));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
      const auto entry = PoolEntry(block);
      Put(data, entry.has_value() ? entry->pool : nullptr);
      return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      Put(data, static_cast<unsigned long long>(0));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      Put(data, 0);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      Put(data, 3);  // to be read and written
      return CUDA_SUCCESS;
    default:
      return Call(Real().cuPointerGetAttribute, data, attribute, pointer);
  }
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) noexcept {
  const CUresult result = Call(Real().cuDeviceTotalMem_v2, bytes, device);
  if (result != CUDA_SUCCESS) return result;
  // Where there are several cards, a question for the size of one does not choose it.
  int count = 0;
  const bool only = CurrentGuest() != nullptr ||
                    (Call(Real().cuDeviceGetCount, &count) == CUDA_SUCCESS && count == 1);
  Guest* const guest = only ? GuestFor(device) : nullptr;
  if (guest != nullptr) *bytes = guest->limit().count;
  return result;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) noexcept {
  const CUresult result = Call(Real().cuMemGetInfo_v2, free, total);
  CUcontext context = nullptr;
  if (result != CUDA_SUCCESS) return result;
  if (Guest* const guest = GuestOfCurrentContext(&context)) {
    *total = guest->limit().count;
    *free = SaturatingSubtract(guest->limit(), guest->used()).count;
  }
  return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) noexcept {
  CUcontext context = nullptr;
  Guest* const guest = GuestOfCurrentContext(&context);
  if (guest == nullptr || pointer == nullptr || bytes == 0) {
    return Call(Real().cuMemAlloc_v2, pointer, bytes);
  }
  return Allocate(guest, bytes, context, pointer);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height,
                            unsigned int element_bytes) noexcept {
  CUcontext context = nullptr;
  Guest* const guest = GuestOfCurrentContext(&context);
  const bool known_element = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;
  if (guest == nullptr || pointer == nullptr || pitch == nullptr || width == 0 || height == 0 ||
      !known_element || width > SIZE_MAX - kPitchAlignment) {
    return Call(Real().cuMemAllocPitch_v2, pointer, pitch, width, height, element_bytes);
  }
  const size_t row = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  size_t bytes = 0;
  if (__builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = Allocate(guest, bytes, context, pointer);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) noexcept {
  CUresult result = CUDA_SUCCESS;
  Guest* const guest = CurrentGuest();
  if (guest != nullptr && guest->Free(pointer, &result)) return result;
  return Call(Real().cuMemFree_v2, pointer);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) noexcept {
  const std::optional<Block> block = FindOurs(pointer);
  if (!block.has_value()) {
    return Call(Real().cuMemGetAddressRange_v2, base, size, ForDriver(pointer));
  }
  if (base != nullptr) *base = block->address;
  if (size != nullptr) *size = SizeOf(*block);
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                               CUdeviceptr pointer) noexcept {
  const std::optional<Block> block = data == nullptr ? std::nullopt : FindOurs(pointer);
  if (!block.has_value()) {
    return Call(Real().cuPointerGetAttribute, data, attribute, ForDriver(pointer));
  }
  return GetAttribute(*block, pointer, attribute, data);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr pointer) noexcept {
  const std::optional<Block> block = FindOurs(pointer);
  const CUresult result = Call(Real().cuPointerGetAttributes, count, attributes, data,
                               block.has_value() ? pointer : ForDriver(pointer));
  if (result != CUDA_SUCCESS || !block.has_value()) return result;
  // An attribute that does not apply keeps the driver's word for that.
  for (unsigned int i = 0; i < count; ++i) GetAttribute(*block, pointer, attributes[i], data[i]);
  return CUDA_SUCCESS;
}

}  // extern "C"
