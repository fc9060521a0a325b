// Hooks of driver_api.def's OWN rows for managed memory. The driver moves it between the card and
// the host as it likes; it counts in full, so that there is never more of it than the card holds.
#include "src/shim/hooks/fixed_call.h"

namespace tandem::shim {
namespace {

constexpr uint64_t kHostPage = 4 << 10;  // which each block has to itself

// What a block takes of its pages; zero where the driver will refuse.
Bytes SizeOf(uint64_t bytes, unsigned int flags) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return {};
  const bool huge = bytes > UINT64_MAX - kHostPage;
  return Bytes(huge ? bytes : (bytes + kHostPage - 1) / kHostPage * kHostPage);
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned int flags) noexcept {
  return MakeFixed(FixedMemory::Kind::kManaged, pointer == nullptr ? Bytes() : SizeOf(bytes, flags),
                   pointer, [=] { return Call(Real().cuMemAllocManaged, pointer, bytes, flags); });
}

}  // extern "C"
