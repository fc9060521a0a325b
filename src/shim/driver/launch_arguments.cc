#include "src/shim/driver/launch_arguments.h"

#include <cstddef>
#include <cstring>

namespace tandem::shim {
namespace {

constexpr size_t kMostParameters = 4096;  // a byte each
constexpr size_t kMostBytes = 32764;      // of all of them

void EachWord(const void* begin, size_t bytes, const std::function<void(uint64_t)>& visit) {
  if (begin == nullptr || bytes > kMostBytes) return;
  for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(begin) + at, sizeof(word));
    visit(word);
  }
}

// All in one piece.
void EachWordOfExtra(void** extra, const std::function<void(uint64_t)>& visit) {
  const void* begin = nullptr;
  size_t bytes = 0;
  for (size_t i = 0; i < 4; i += 2) {
    const auto key = reinterpret_cast<uintptr_t>(extra[i]);
    if (key == CU_LAUNCH_PARAM_END_VALUE) break;
    if (key == CU_LAUNCH_PARAM_BUFFER_POINTER_VALUE) begin = extra[i + 1];
    if (key == CU_LAUNCH_PARAM_BUFFER_SIZE_VALUE && extra[i + 1] != nullptr) {
      bytes = *static_cast<const size_t*>(extra[i + 1]);
    }
  }
  EachWord(begin, bytes, visit);
}

// A kernel may be launched by the handle that it has in its library.
CUresult SizeOf(const cuda::RealDriver& real, CUfunction function, size_t index, size_t* size) {
  size_t offset = 0;
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (real.cuFuncGetParamInfo != nullptr) {
    result = real.cuFuncGetParamInfo(function, index, &offset, size);
  }
  if (result != CUDA_ERROR_INVALID_HANDLE || real.cuKernelGetParamInfo == nullptr) return result;
  return real.cuKernelGetParamInfo(reinterpret_cast<CUkernel>(function), index, &offset, size);
}

}  // namespace

void EachArgumentWord(const cuda::RealDriver& real, CUfunction function, void** parameters,
                      void** extra, const std::function<void(uint64_t)>& visit) {
  if (parameters == nullptr) {
    if (extra != nullptr) EachWordOfExtra(extra, visit);
    return;
  }
  for (size_t i = 0; i < kMostParameters; ++i) {
    size_t size = 0;
    if (SizeOf(real, function, i, &size) != CUDA_SUCCESS) return;
    EachWord(parameters[i], size, visit);
  }
}

}  // namespace tandem::shim
