#include "src/shim/hooks/unleased_call.h"

namespace tandem::shim {

UnleasedAccess* UnleasedCall::Server() const {
  CUdevice device = 0;
  if (!HasGuests() || Real().cuCtxGetDevice(&device) != CUDA_SUCCESS) return nullptr;
  Guest* const guest = OpenGuest(device);
  // Work on one device may be what a call for another has to wait for.
  const bool busy = FindGuest([](Guest* each) { return !each->Drained(); }) != nullptr;
  return guest != nullptr && !busy && guest->access().MayServe(stream_) ? &guest->access()
                                                                        : nullptr;
}

bool UnleasedCall::operator()(void* to, CUdeviceptr from, size_t bytes, CUstream) const {
  UnleasedAccess* const server = Server();
  return server != nullptr && server->Read(to, from, bytes);
}

bool UnleasedCall::operator()(CUdeviceptr to, const void* from, size_t bytes, CUstream) const {
  UnleasedAccess* const server = Server();
  return server != nullptr && server->Write(to, from, bytes);
}

bool UnleasedCall::operator()(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) const {
  UnleasedAccess* const server = Server();
  return server != nullptr &&
         (server->Move(to, from, bytes) || server->Read(reinterpret_cast<void*>(to), from, bytes) ||
          server->Write(to, reinterpret_cast<const void*>(from), bytes));
}

bool UnleasedCall::Fill(CUdeviceptr to, UnleasedAccess::Pattern pattern, size_t count) const {
  UnleasedAccess* const server = Server();
  return server != nullptr && server->Fill(to, pattern, count);
}

bool UnleasedCall::Fill(const Rows& rows, UnleasedAccess::Pattern pattern, size_t width,
                        size_t height) const {
  UnleasedAccess* const server = Server();
  return server != nullptr && FillRows(server, rows, pattern, width, height);
}

}  // namespace tandem::shim
