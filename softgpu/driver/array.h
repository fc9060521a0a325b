// Array: memory in which a program keeps texels and whose layout is the driver's affair: here rows,
// one after the other, in a block of VRAM.
//
// Threading: an Array never changes. A call that looked it up may use it to its own end.
#pragma once

#include <cstdint>
#include <memory>

#include "softgpu/driver/context.h"

namespace tandem::soft {

struct Array {
  std::shared_ptr<Context> context;
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {};  // height and depth are zero where there are none
  uint64_t address = 0;
  uint64_t pitch = 0;  // bytes between rows
  uint32_t element_bytes = 0;

  uint64_t row_bytes() const { return descriptor.Width * element_bytes; }
  uint64_t rows() const { return descriptor.Height == 0 ? 1 : descriptor.Height; }
  uint64_t slices() const { return descriptor.Depth == 0 ? 1 : descriptor.Depth; }  // or layers
  uint64_t slice() const { return pitch * rows(); }
};

// Of one channel; zero for a format that is none of ours.
uint32_t ChannelBytes(CUarray_format format);

// Allocates it and makes a handle for it.
CUresult CreateArray(const std::shared_ptr<Context>& context,
                     const CUDA_ARRAY3D_DESCRIPTOR& descriptor, CUarray* handle);

}  // namespace tandem::soft
