// Fat binaries: containers of one program as machine code and as PTX for several architectures.
//
// Threading: plain functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "src/cuda/driver_types.h"

namespace tandem::soft {

// What a program hands over as code. Where the length is known nothing behind it is read, and a
// wrapper is refused: it holds a pointer, which means nothing in a file.
struct Image {
  const void* begin = nullptr;
  std::optional<size_t> bytes = std::nullopt;
};

// Whether a fat binary begins here, or the wrapper that points to one. Reads as far as bytes agree.
bool IsFatBinary(const void* image);

// The PTX in it for the newest architecture up to `capability` (major * 10 + minor). Where there is
// none that can be read, CUDA_ERROR_NO_BINARY_FOR_GPU and the reason in *log.
// REQUIRES: IsFatBinary(image.begin), and, of unknown length, as many bytes as its header says.
CUresult PtxOfFatBinary(const Image& image, int capability, std::string* ptx, std::string* log);

}  // namespace tandem::soft
