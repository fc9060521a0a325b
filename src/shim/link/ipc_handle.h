// What a CUipcMemHandle of ours says. The program passes it on to whom it likes; it names an offer
// at the daemon (offer_calls.h) and is worth nothing without that.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "src/cuda/driver_types.h"
#include "src/cuda/real_driver.h"

namespace tandem::shim {

using OfferToken = std::pair<uint64_t, uint64_t>;

struct IpcHandle {
  static constexpr uint64_t kMagic = 0x3143'5049'4d44'4e54;  // "TNDMIPC1"

  uint64_t magic = kMagic;
  uint64_t token_high = 0;
  uint64_t token_low = 0;
  uint64_t piece_bytes = 0;  // of the memory that is offered
  uint64_t offset = 0;       // of the block in it
  uint64_t bytes = 0;
  CUuuid device = {};

  OfferToken token() const { return {token_high, token_low}; }
};
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));

CUipcMemHandle Pack(const IpcHandle& handle);
// Nothing if it is none of ours.
std::optional<IpcHandle> Unpack(const CUipcMemHandle& handle);
// Whether what it says of places and sizes can be.
bool IsSound(const IpcHandle& handle);
// It cannot be guessed; nothing where the system gives no random bytes.
std::optional<OfferToken> NewToken();

}  // namespace tandem::shim
