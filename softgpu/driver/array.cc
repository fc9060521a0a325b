#include "softgpu/driver/array.h"

#include "softgpu/driver/driver.h"

namespace tandem::soft {
namespace {

constexpr uint64_t kRowAlignment = 64;

struct Limits {
  CUdevice_attribute width, height, depth;
};

// What the device says about arrays of this shape.
Limits LimitsOf(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  const bool layered = (d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  if (layered && d.Height == 0) {
    return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS};
  }
  if (layered) {
    return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS};
  }
  if (d.Depth > 0) {
    return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH};
  }
  return {d.Height > 0 ? CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH
                       : CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH,
          CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT,
          CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH};
}

bool Within(const Device& device, CUdevice_attribute limit, size_t value) {
  int most = 0;
  return device.Attribute(limit, &most) && value <= static_cast<size_t>(most);
}

CUresult Check(const Device& device, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  constexpr unsigned int kKnown = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                  CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;
  const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  const bool cube = (d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
  if (ChannelBytes(d.Format) == 0 || (d.Flags & ~kKnown) != 0 || d.Width == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (d.NumChannels != 1 && d.NumChannels != 2 && d.NumChannels != 4) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (layered && d.Depth == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!layered && d.Depth > 0 && d.Height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (cube &&
      (d.Width != d.Height || d.Depth == 0 || d.Depth % 6 != 0 || (!layered && d.Depth != 6))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool plane = d.Height > 0 && d.Depth == 0;
  if ((d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0 && !plane) return CUDA_ERROR_INVALID_VALUE;
  const Limits limits = LimitsOf(d);
  return Within(device, limits.width, d.Width) && Within(device, limits.height, d.Height) &&
                 Within(device, limits.depth, d.Depth)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

uint32_t ChannelBytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
  }
  return 0;
}

CUresult CreateArray(const std::shared_ptr<Context>& context,
                     const CUDA_ARRAY3D_DESCRIPTOR& descriptor, CUarray* handle) {
  Driver& driver = TheDriver();
  CU_TRY(Check(*context->device, descriptor));
  CU_TRY(RefuseUnsafe());
  auto array = std::make_shared<Array>();
  array->context = context;
  array->descriptor = descriptor;
  array->element_bytes = ChannelBytes(descriptor.Format) * descriptor.NumChannels;
  array->pitch = (array->row_bytes() + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  if (driver.faults->Due(kFailAlloc)) return CUDA_ERROR_OUT_OF_MEMORY;
  MutexLock lock(driver.memory->mutex());
  if (context->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  // The limits on the extents keep the product far below 2^64.
  array->address = driver.memory->AllocateOn(context->device, context->id,
                                             array->slice() * array->slices(), Heap::Use::kDriver);
  if (array->address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = driver.arrays.Insert(std::move(array));
  return CUDA_SUCCESS;
}

}  // namespace tandem::soft
