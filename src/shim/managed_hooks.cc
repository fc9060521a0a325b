// Hooks of driver_api.def's OWN rows for managed memory. The driver moves it between the card and
// the host as it likes; it counts in full, so that there is never more of it than the card holds.
#include "src/shim/fixed_call.h"

namespace tandem::shim {
namespace {

constexpr uint64_t kHostPage = 4 << 10;  // which small blocks have to themselves
constexpr uint64_t kCardPage = 2 << 20;
constexpr uint64_t kSmall = 1 << 20;

// What a block takes on the card; zero where the driver will refuse.
Bytes SizeOf(uint64_t bytes, unsigned int flags) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return {};
  const uint64_t unit = bytes < kSmall ? kHostPage : kCardPage;
  return bytes > UINT64_MAX - unit ? Bytes(bytes) : Bytes((bytes + unit - 1) / unit * unit);
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned int flags) noexcept {
  return MakeFixed(pointer == nullptr ? Bytes() : SizeOf(bytes, flags), pointer,
                   [=] { return Call(Real().cuMemAllocManaged, pointer, bytes, flags); });
}

}  // extern "C"
