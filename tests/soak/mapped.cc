#include "tests/soak/mapped.h"

namespace soak {
namespace {

uint64_t Rounded(uint64_t bytes) {
  constexpr uint64_t kUnit = uint64_t{2} << 20;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

CUresult AllocateMapped(const tandem::cuda::RealDriver& driver, CUdevice device, uint64_t bytes,
                        CUdeviceptr* address) {
  const uint64_t size = Rounded(bytes);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver.cuMemCreate(&handle, size, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuMemAddressReserve(address, size, 0, 0, 0);
  if (result == CUDA_SUCCESS) {
    result = driver.cuMemMap(*address, size, 0, handle, 0);
    if (result == CUDA_SUCCESS) {
      result = driver.cuMemSetAccess(*address, size, &access, 1);
      if (result != CUDA_SUCCESS) driver.cuMemUnmap(*address, size);
    }
    if (result != CUDA_SUCCESS) driver.cuMemAddressFree(*address, size);
  }
  const CUresult released = driver.cuMemRelease(handle);  // the mapping stays
  return result == CUDA_SUCCESS ? released : result;
}

CUresult FreeMapped(const tandem::cuda::RealDriver& driver, CUdeviceptr address, uint64_t bytes) {
  const uint64_t size = Rounded(bytes);
  const CUresult result = driver.cuMemUnmap(address, size);
  return result == CUDA_SUCCESS ? driver.cuMemAddressFree(address, size) : result;
}

}  // namespace soak
