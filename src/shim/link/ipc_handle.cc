#include "src/shim/link/ipc_handle.h"

#include <sys/random.h>

#include <cstring>

#include "src/shim/driver/address_regions.h"

namespace tandem::shim {

CUipcMemHandle Pack(const IpcHandle& handle) {
  CUipcMemHandle packed;
  std::memcpy(static_cast<void*>(&packed), &handle, sizeof(packed));
  return packed;
}

std::optional<IpcHandle> Unpack(const CUipcMemHandle& handle) {
  IpcHandle unpacked;
  std::memcpy(static_cast<void*>(&unpacked), &handle, sizeof(unpacked));
  if (unpacked.magic != IpcHandle::kMagic) return std::nullopt;
  return unpacked;
}

bool IsSound(const IpcHandle& handle) {
  return handle.piece_bytes != 0 && handle.piece_bytes % kGranule == 0 && handle.bytes != 0 &&
         handle.offset < handle.piece_bytes && handle.bytes <= handle.piece_bytes - handle.offset;
}

std::optional<OfferToken> NewToken() {
  uint64_t token[2];
  if (getrandom(token, sizeof(token), 0) != sizeof(token)) return std::nullopt;
  return OfferToken{token[0], token[1]};
}

}  // namespace tandem::shim
