// A libcuda.so.1 without devices' functions: its cuInit returns the number in TANDEM_TEST_CUINIT,
// or does not return ("hangs") or kills its process ("dies"). Its cuDeviceGetCount finds
// TANDEM_TEST_DEVICES devices.
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "src/cuda/driver_api.h"

namespace {

const char* Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "0";
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned int) noexcept {
  const std::string_view wanted = Variable("TANDEM_TEST_CUINIT");
  while (wanted == "hangs") pause();
  if (wanted == "dies") std::abort();
  return static_cast<CUresult>(std::atoi(wanted.data()));
}

CUresult cuDeviceGetCount(int* count) noexcept {
  *count = std::atoi(Variable("TANDEM_TEST_DEVICES"));
  return CUDA_SUCCESS;
}

}  // extern "C"
