// Which handlers this machine can run.
#include <algorithm>

#include "softgpu/ptx/execute.h"

#ifdef TANDEM_PTX_X86
#include <cpuid.h>
#endif

namespace tandem::ptx {

const std::vector<Path>& Paths() {
  // Never destroyed: engines may run while the process exits.
  static const std::vector<Path>& paths = *new const std::vector<Path>([] {
    std::vector<Path> some = {Path::kBaseline};
#ifdef TANDEM_PTX_X86
    // Not every compiler knows F16C by name.
    uint32_t words[4] = {};
    __get_cpuid(1, &words[0], &words[1], &words[2], &words[3]);
    const bool converts_halves = (words[2] & bit_F16C) != 0;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !converts_halves) {
      return some;
    }
    some.push_back(Path::kAvx2);
    // The first processors with AVX-512 slow down for it; those after them have VBMI, too.
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vbmi")) {
      some.push_back(Path::kAvx512);
    }
#endif
    return some;
  }());
  return paths;
}

int HandlerOf(Path path) {
  const int fastest = static_cast<int>(Paths().size()) - 1;
  return path == Path::kAuto
             ? fastest
             : std::min(fastest, static_cast<int>(path) - static_cast<int>(Path::kBaseline));
}

}  // namespace tandem::ptx
