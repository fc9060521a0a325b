// Hooks of driver_api.def's OWN rows for arrays: memory that stays on the card and is counted.
#include "src/shim/driver/array_size.h"
#include "src/shim/hooks/fixed_call.h"

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) noexcept {
  const auto create = [&] { return Call(Real().cuArrayCreate_v2, array, descriptor); };
  if (array == nullptr || descriptor == nullptr) return create();
  const CUDA_ARRAY3D_DESCRIPTOR plane = {descriptor->Width,  descriptor->Height,      0,
                                         descriptor->Format, descriptor->NumChannels, 0};
  return MakeFixed(FixedMemory::Kind::kArrays, ArrayBytes(plane), array, create);
}

CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) noexcept {
  const auto create = [&] { return Call(Real().cuArray3DCreate_v2, array, descriptor); };
  if (array == nullptr || descriptor == nullptr) return create();
  return MakeFixed(FixedMemory::Kind::kArrays, ArrayBytes(*descriptor), array, create);
}

CUresult cuArrayDestroy(CUarray array) noexcept {
  return EndFixed(array, [=] { return Call(Real().cuArrayDestroy, array); });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                unsigned int levels) noexcept {
  const auto create = [=] {
    return Call(Real().cuMipmappedArrayCreate, array, descriptor, levels);
  };
  if (array == nullptr || descriptor == nullptr) return create();
  return MakeFixed(FixedMemory::Kind::kArrays, ArrayBytes(*descriptor, levels), array, create);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) noexcept {
  return EndFixed(array, [=] { return Call(Real().cuMipmappedArrayDestroy, array); });
}

}  // extern "C"
