// The variants of calls in which stream 0 is the calling thread's own default stream: the same
// call, with default streams found that way.
#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

using namespace tandem;  // NOLINT: entry points live outside every namespace

#define SOFT_VARIANT_YES(symbol, suffix, parameters, arguments) \
  CUresult symbol##suffix parameters noexcept {                 \
    const soft::PerThreadDefault scope;                         \
    return symbol arguments;                                    \
  }
#define SOFT_VARIANT_NO(symbol, suffix, parameters, arguments)
#define SOFT_VARIANT_LOADER(symbol, suffix, parameters, arguments)
#define CU(symbol, base, since, shim, soft, parameters, arguments)
#define CU_PT(symbol, suffix, base, since, shim, soft, parameters, arguments) \
  SOFT_VARIANT_##soft(symbol, suffix, parameters, arguments)
#include "src/cuda/driver_api.def"
#undef CU_PT
#undef CU
