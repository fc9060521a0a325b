// Entry points: texture and surface objects.
#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

bool Within(const Context& context, CUdevice_attribute limit, size_t value) {
  int most = 0;
  return context.device->Attribute(limit, &most) && value <= static_cast<size_t>(most);
}

bool Aligned(const Context& context, CUdevice_attribute alignment, uint64_t value) {
  int unit = 0;
  return context.device->Attribute(alignment, &unit) && value % static_cast<uint64_t>(unit) == 0;
}

ptx::TexelFormat FormatOf(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      return ptx::TexelFormat::kU8;
    case CU_AD_FORMAT_UNSIGNED_INT16:
      return ptx::TexelFormat::kU16;
    case CU_AD_FORMAT_UNSIGNED_INT32:
      return ptx::TexelFormat::kU32;
    case CU_AD_FORMAT_SIGNED_INT8:
      return ptx::TexelFormat::kS8;
    case CU_AD_FORMAT_SIGNED_INT16:
      return ptx::TexelFormat::kS16;
    case CU_AD_FORMAT_SIGNED_INT32:
      return ptx::TexelFormat::kS32;
    case CU_AD_FORMAT_HALF:
      return ptx::TexelFormat::kF16;
    case CU_AD_FORMAT_FLOAT:
      break;
  }
  return ptx::TexelFormat::kF32;
}

CUresult SetTexels(CUarray_format format, unsigned int channels, ptx::Texture* texture) {
  if (ChannelBytes(format) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (channels != 1 && channels != 2 && channels != 4) return CUDA_ERROR_INVALID_VALUE;
  texture->format = FormatOf(format);
  texture->channels = static_cast<uint8_t>(channels);
  return CUDA_SUCCESS;
}

CUresult OverArray(const CUDA_RESOURCE_DESC& resource, ptx::Texture* texture) {
  const auto array = TheDriver().arrays.Find(resource.res.array.hArray);
  if (!array) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
  if ((d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  CU_TRY(SetTexels(d.Format, d.NumChannels, texture));
  const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  texture->address = array->address;
  texture->pitch = array->pitch;
  texture->slice = array->slice();
  texture->extent[0] = static_cast<uint32_t>(d.Width);
  texture->extent[1] = static_cast<uint32_t>(array->rows());
  texture->extent[2] = layered ? 1 : static_cast<uint32_t>(array->slices());
  texture->layers = layered ? static_cast<uint32_t>(d.Depth) : 0;
  return CUDA_SUCCESS;
}

CUresult OverLinear(const Context& context, const CUDA_RESOURCE_DESC& resource,
                    ptx::Texture* texture) {
  const auto& linear = resource.res.linear;
  CU_TRY(SetTexels(linear.format, linear.numChannels, texture));
  const size_t count =
      linear.sizeInBytes / (size_t{ChannelBytes(linear.format)} * linear.numChannels);
  if (linear.devPtr == 0 || count == 0 ||
      !Aligned(context, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, linear.devPtr) ||
      !Within(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, count)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  texture->address = linear.devPtr;
  texture->extent[0] = static_cast<uint32_t>(count);
  return CUDA_SUCCESS;
}

CUresult OverPitched(const Context& context, const CUDA_RESOURCE_DESC& resource,
                     ptx::Texture* texture) {
  const auto& plane = resource.res.pitch2D;
  CU_TRY(SetTexels(plane.format, plane.numChannels, texture));
  if (plane.devPtr == 0 || plane.width == 0 || plane.height == 0 ||
      !Aligned(context, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, plane.devPtr) ||
      !Aligned(context, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, plane.pitchInBytes) ||
      !Within(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, plane.width) ||
      !Within(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, plane.height) ||
      !Within(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH, plane.pitchInBytes) ||
      plane.width * ChannelBytes(plane.format) * plane.numChannels > plane.pitchInBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  texture->address = plane.devPtr;
  texture->pitch = plane.pitchInBytes;
  texture->extent[0] = static_cast<uint32_t>(plane.width);
  texture->extent[1] = static_cast<uint32_t>(plane.height);
  return CUDA_SUCCESS;
}

// The memory behind a texture is looked at when a kernel reads it, as for any other access.
CUresult SetResource(const Context& context, const CUDA_RESOURCE_DESC& resource,
                     ptx::Texture* texture) {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return OverArray(resource, texture);
    case CU_RESOURCE_TYPE_LINEAR:
      return OverLinear(context, resource, texture);
    case CU_RESOURCE_TYPE_PITCH2D:
      return OverPitched(context, resource, texture);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:  // nothing makes one
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult SetSampling(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& description,
                     ptx::Texture* texture) {
  constexpr unsigned int kKnown = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                                  CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                                  CU_TRSF_SEAMLESS_CUBEMAP;
  if ((description.flags & ~kKnown) != 0 || description.filterMode > CU_TR_FILTER_MODE_LINEAR ||
      description.mipmapFilterMode > CU_TR_FILTER_MODE_LINEAR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (int i = 0; i < 3; ++i) {
    if (description.addressMode[i] > CU_TR_ADDRESS_MODE_BORDER) return CUDA_ERROR_INVALID_VALUE;
    texture->mode[i] = static_cast<ptx::AddressMode>(description.addressMode[i]);
  }
  if ((description.flags & CU_TRSF_SRGB) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  texture->as_integer = (description.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  if (resource.resType == CU_RESOURCE_TYPE_LINEAR) {
    // Only read by index; what lies outside is zero.
    for (ptx::AddressMode& mode : texture->mode) mode = ptx::AddressMode::kBorder;
    return CUDA_SUCCESS;
  }
  texture->linear_filter = description.filterMode == CU_TR_FILTER_MODE_LINEAR;
  texture->normalized = (description.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  std::copy_n(description.borderColor, 4, texture->border);
  return CUDA_SUCCESS;
}

// A view may only say what the array is anyway.
CUresult CheckView(const CUDA_RESOURCE_DESC& resource, const CUDA_RESOURCE_VIEW_DESC& view,
                   const ptx::Texture& texture) {
  if (resource.resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  const bool same = view.format == 0 && view.width == texture.extent[0] &&
                    view.height <= texture.extent[1] && view.depth <= texture.extent[2] &&
                    view.firstMipmapLevel == 0 && view.lastMipmapLevel == 0 &&
                    view.firstLayer == 0 && view.lastLayer <= texture.layers;
  return same ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

// A texture or a surface, which have no handle in common.
CUresult Find(const void* out, uint64_t handle, bool surface,
              std::shared_ptr<const TextureObject>* object) {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  *object = TheDriver().textures.Find(handle);
  const bool found = *object != nullptr && (*object)->surface == surface;
  return out == nullptr || !found ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Kernels that were launched keep theirs.
CUresult Destroy(uint64_t handle, bool surface) {
  std::shared_ptr<Context> context;
  std::shared_ptr<const TextureObject> object;
  CU_TRY(HealthyContext(&context));
  CU_TRY(Find(&handle, handle, surface, &object));
  return TheDriver().textures.Erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult GetResource(CUDA_RESOURCE_DESC* resource, uint64_t handle, bool surface) {
  std::shared_ptr<const TextureObject> object;
  CU_TRY(Find(resource, handle, surface, &object));
  *resource = object->resource;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuTexObjectCreate(CUtexObject* handle, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* description,
                           const CUDA_RESOURCE_VIEW_DESC* view) noexcept {
  auto object = std::make_shared<TextureObject>();
  CU_TRY(HealthyContext(&object->context));
  if (handle == nullptr || resource == nullptr || description == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ptx::Texture texture;
  CU_TRY(SetResource(*object->context, *resource, &texture));
  CU_TRY(SetSampling(*resource, *description, &texture));
  if (view != nullptr) {
    CU_TRY(CheckView(*resource, *view, texture));
    object->view = *view;
  }
  object->resource = *resource;
  object->description = *description;
  const CUtexObject made = TheDriver().textures.Insert(std::move(object), texture);
  if (made == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = made;
  return CUDA_SUCCESS;
}

CUresult cuTexObjectDestroy(CUtexObject handle) noexcept {
  std::shared_ptr<Context> context;
  if (handle == 0) return HealthyContext(&context);  // no texture, as a card's driver sees it
  return Destroy(handle, false);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUtexObject handle) noexcept {
  return GetResource(resource, handle, false);
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* description, CUtexObject handle) noexcept {
  std::shared_ptr<const TextureObject> object;
  CU_TRY(Find(description, handle, false, &object));
  *description = object->description;
  return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* view,
                                        CUtexObject handle) noexcept {
  std::shared_ptr<const TextureObject> object;
  CU_TRY(Find(view, handle, false, &object));
  if (!object->view) return CUDA_ERROR_INVALID_VALUE;
  *view = *object->view;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject* handle, const CUDA_RESOURCE_DESC* resource) noexcept {
  auto object = std::make_shared<TextureObject>();
  CU_TRY(HealthyContext(&object->context));
  if (handle == nullptr || resource == nullptr || resource->flags != 0 ||
      resource->resType != CU_RESOURCE_TYPE_ARRAY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ptx::Texture surface;
  CU_TRY(OverArray(*resource, &surface));
  const auto array = TheDriver().arrays.Find(resource->res.array.hArray);
  if (!array || (array->descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  surface.surface = object->surface = true;
  object->resource = *resource;
  const CUsurfObject made = TheDriver().textures.Insert(std::move(object), surface);
  if (made == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = made;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectDestroy(CUsurfObject handle) noexcept {
  return Destroy(handle, true);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUsurfObject handle) noexcept {
  return GetResource(resource, handle, true);
}
