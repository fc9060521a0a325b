// Which handlers this machine can run.
#include "src/softgpu/ptx/execute.h"

namespace tandem::ptx {

bool HasAvx2() {
#ifdef TANDEM_PTX_AVX2
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  static const bool has = false;
#endif
  return has;
}

}  // namespace tandem::ptx
