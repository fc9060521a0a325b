// Hooks of driver_api.def's OWN rows that allocate and free device memory. Blocks that are not the
// guest's, and arguments that only the driver can judge, go to the driver.
#include <optional>

#include "src/shim/hooks/fixed_call.h"

namespace tandem::shim {
namespace {

constexpr uint64_t kPitchAlignment = 512;

CUresult Allocate(Guest* guest, size_t bytes, CUcontext context, CUdeviceptr* pointer) {
  const CUresult health = guest->Health(context);
  if (health != CUDA_SUCCESS) return health;
  return guest->Retry([=] { return guest->Allocate(bytes, context, pointer); });
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) noexcept {
  const CUresult result = Call(Real().cuDeviceTotalMem_v2, bytes, device);
  if (result != CUDA_SUCCESS) return result;
  // Where there are several cards, a question for the size of one is not yet its use.
  int count = 0;
  const bool only = Call(Real().cuDeviceGetCount, &count) == CUDA_SUCCESS && count == 1;
  Guest* const guest = only ? GuestOn(device).guest : OpenGuest(device);
  if (guest != nullptr) *bytes = guest->limit().count;
  return result;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) noexcept {
  const CUresult result = Call(Real().cuMemGetInfo_v2, free, total);
  CUcontext context = nullptr;
  if (result != CUDA_SUCCESS) return result;
  if (Guest* const guest = GuestOfCurrentContext(&context)) {
    guest->graphs().Recount();
    guest->driver_pools().Recount();
    // A card's driver takes null for what the program does not want to know.
    if (total != nullptr) *total = guest->limit().count;
    if (free != nullptr) *free = SaturatingSubtract(guest->limit(), guest->used()).count;
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
  const std::optional<CUresult> ours =
      AskGuests([=](Guest* guest) { return guest->Free(pointer); });
  if (ours.has_value()) return *ours;
  const CUresult result =
      EndFixed(pointer, [=] { return Call(Real().cuMemFree_v2, pointer); });  // managed, perhaps
  if (result != CUDA_SUCCESS) return result;
  EachGuest([=](Guest* guest) { guest->driver_pools().Freed(pointer); });
  return result;
}

}  // extern "C"
