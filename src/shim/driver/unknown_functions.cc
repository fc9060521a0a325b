#include "src/shim/driver/unknown_functions.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/mutex.h"
#include "src/cuda/driver_types.h"
#include "src/shim/os/log.h"

namespace tandem::shim {
namespace {

constexpr std::string_view kBeginnings[] = {
    "cuArray3DCreate",   "cuArrayCreate",      "cuCtxCreate",        "cuGraphLaunch",
    "cuLaunch",          "cuGreenCtxCreate",   "cuMemAlloc",         "cuMemBatch",
    "cuMemCreate",       "cuMemDiscard",       "cuMemMap",           "cuMemPrefetch",
    "cuMemcpy",          "cuMemset",           "cuMipmappedArrayCr", "cuStreamBatch",
    "cuStreamWaitValue", "cuStreamWriteValue",
};
constexpr size_t kMost = 64;  // functions; more have the last one's name in common

struct Refused {
  std::string name;
  std::atomic<bool> told{false};
};

// Never destroyed: threads outlive static destructors.
std::array<Refused, kMost>& TheRefused() {
  static auto* const refused = new std::array<Refused, kMost>;
  return *refused;
}

// Takes nothing, whatever it is called with: it is the caller who removes what it has passed.
template <size_t kIndex>
CUresult Refuse() noexcept {
  Refused& refused = TheRefused()[kIndex];
  if (!refused.told.exchange(true, std::memory_order_relaxed)) {
    Log(LogLevel::kWarn, "%s is not supported under Tandem: it is newer than this version of it",
        refused.name.c_str());
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

using Function = CUresult (*)() noexcept;

template <size_t... kIndices>
constexpr std::array<Function, kMost> MakeFunctions(std::index_sequence<kIndices...>) {
  return {&Refuse<kIndices>...};
}

constexpr std::array<Function, kMost> kFunctions = MakeFunctions(std::make_index_sequence<kMost>());

}  // namespace

void* RefusalOf(const char* called) {
  const std::string_view name = called;
  const bool passes_us_by =
      std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                  [name](std::string_view beginning) { return name.starts_with(beginning); });
  if (!passes_us_by) return nullptr;
  static auto* const mutex = new Mutex;
  static size_t count = 0;
  MutexLock lock(*mutex);
  std::array<Refused, kMost>& refused = TheRefused();
  size_t at = 0;
  while (at < count && refused[at].name != name) ++at;
  if (at == count && count < kMost) refused[count++].name = name;
  return reinterpret_cast<void*>(kFunctions[std::min(at, kMost - 1)]);
}

}  // namespace tandem::shim
