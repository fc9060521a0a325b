// Which handlers this machine can run.
#include <algorithm>

#include "src/softgpu/ptx/execute.h"

namespace tandem::ptx {

const std::vector<Path>& Paths() {
  static const std::vector<Path> paths = [] {
    std::vector<Path> some = {Path::kBaseline};
#ifdef TANDEM_PTX_X86
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return some;
    some.push_back(Path::kAvx2);
    // The first processors with AVX-512 slow down for it; those after them have VBMI, too.
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vbmi")) {
      some.push_back(Path::kAvx512);
    }
#endif
    return some;
  }();
  return paths;
}

int HandlerOf(Path path) {
  const auto& paths = Paths();
  if (path == Path::kAuto) return static_cast<int>(paths.size()) - 1;
  const auto found = std::find(paths.begin(), paths.end(), path);
  return found == paths.end() ? 0 : static_cast<int>(found - paths.begin());
}

}  // namespace tandem::ptx
