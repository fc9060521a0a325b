// Fuzzing of the PTX front end: any bytes at all compile or are refused, within a bounded time.
// Run by `./dev test --fuzz`, which also makes the corpus (tools/ptx_corpus.py).
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "softgpu/ptx/program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)tandem::ptx::Compile(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
