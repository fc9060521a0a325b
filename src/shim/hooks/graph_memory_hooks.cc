// Hooks of driver_api.def's OWN rows for graphs that are instantiated, launched and destroyed: what
// their nodes allocate stays on the card and is counted.
#include <vector>

#include "src/shim/hooks/gated_call.h"

namespace tandem::shim {
namespace {

// What a graph needs on one of its devices.
struct Claim {
  Guest* guest = nullptr;
  GraphMemory::Room room;
};
using Claims = std::vector<Claim>;

template <typename RoomOn>
Claims ClaimsOf(RoomOn room_on) {
  Claims claims;
  EachGuest([&](Guest* guest) {
    const GraphMemory::Room room = room_on(&guest->graphs());
    if (room.bytes > Bytes()) claims.push_back({guest, room});
  });
  return claims;
}

// What the stream's own work before uses the driver may use again; that is given back only when it
// is done.
bool MakeRoom(const Claim& claim, CUstream stream) {
  GraphMemory& graphs = claim.guest->graphs();
  if (claim.guest->Retry([&] { return graphs.MakeRoom(claim.room); })) return true;
  Call(Real().cuStreamSynchronize, stream);
  return graphs.Trim() && graphs.MakeRoom(claim.room);
}

// `submit` takes the memory, and says by *exec for which graph.
template <typename Submit>
CUresult WithRoom(const Claims& claims, const CUgraphExec* exec, CUstream stream, Submit submit) {
  size_t made = 0;
  while (made < claims.size() && MakeRoom(claims[made], stream)) ++made;
  const CUresult result = made == claims.size() ? submit() : CUDA_ERROR_OUT_OF_MEMORY;
  const bool done = result == CUDA_SUCCESS;
  for (size_t i = 0; i < made; ++i) {
    claims[i].guest->graphs().Launched(done ? *exec : nullptr, claims[i].room, done);
  }
  return result;
}

using Submission = CUresult (*cuda::RealDriver::*)(CUgraphExec, CUstream);

// In a stream that is being captured it becomes part of another graph, and takes nothing yet.
CUresult Submit(Submission submission, CUgraphExec exec, CUstream stream, CUstream standard) {
  const CUstream place = stream == nullptr ? standard : stream;
  const auto submit = [=] {
    const GatedCall call(place);
    if (call.refused()) return kRefusal;
    return (callable_driver.load(std::memory_order_acquire)->*submission)(exec, stream);
  };
  const Claims claims = ClaimsOf([exec](GraphMemory* graphs) { return graphs->Lacking(exec); });
  if (claims.empty() || MayBeCaptured(place)) return submit();
  return WithRoom(claims, &exec, place, submit);
}

template <typename Make>
CUresult Instantiate(CUgraphExec* exec, CUgraph graph, Make make) {
  const Claims claims =
      ClaimsOf([graph](GraphMemory* graphs) { return graphs->RoomFor(graphs->SizeOf(graph)); });
  CUresult result = CUDA_SUCCESS;
  {
    const HeldCall call;
    if (call.refused()) return kRefusal;
    result = make();
  }
  if (result != CUDA_SUCCESS) return result;
  for (const Claim& claim : claims) claim.guest->graphs().Instantiated(*exec, claim.room.bytes);
  return result;
}

// It may be uploaded at once.
template <typename Make>
CUresult Instantiate(CUgraphExec* exec, CUgraph graph, const CUDA_GRAPH_INSTANTIATE_PARAMS* params,
                     CUstream standard, Make make) {
  const auto instantiate = [=] { return Instantiate(exec, graph, make); };
  const bool uploads =
      params != nullptr && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0;
  if (!uploads) return instantiate();
  const CUstream place = params->hUploadStream == nullptr ? standard : params->hUploadStream;
  const Claims claims =
      ClaimsOf([graph](GraphMemory* graphs) { return graphs->RoomFor(graphs->SizeOf(graph)); });
  return WithRoom(claims, exec, place, instantiate);
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                            size_t log_bytes) noexcept {
  return Instantiate(exec, graph, [=] {
    return Call(Real().cuGraphInstantiate, exec, graph, error_node, log, log_bytes);
  });
}

CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                               size_t log_bytes) noexcept {
  return Instantiate(exec, graph, [=] {
    return Call(Real().cuGraphInstantiate_v2, exec, graph, error_node, log, log_bytes);
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                     unsigned long long flags) noexcept {
  return Instantiate(exec, graph,
                     [=] { return Call(Real().cuGraphInstantiateWithFlags, exec, graph, flags); });
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) noexcept {
  return Instantiate(exec, graph, params, nullptr, [=] {
    return Call(Real().cuGraphInstantiateWithParams, exec, graph, params);
  });
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* params) noexcept {
  return Instantiate(exec, graph, params, kPerThreadStream, [=] {
    return Call(Real().cuGraphInstantiateWithParams_ptsz, exec, graph, params);
  });
}

CUresult cuGraphExecDestroy(CUgraphExec exec) noexcept {
  EachGuest([exec](Guest* guest) { guest->graphs().Ends(exec); });
  const CUresult result = Call(Real().cuGraphExecDestroy, exec);
  EachGuest([](Guest* guest) { guest->graphs().Recount(); });
  return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) noexcept {
  return Submit(&cuda::RealDriver::cuGraphLaunch, exec, stream, nullptr);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) noexcept {
  return Submit(&cuda::RealDriver::cuGraphLaunch_ptsz, exec, stream, kPerThreadStream);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) noexcept {
  return Submit(&cuda::RealDriver::cuGraphUpload, exec, stream, nullptr);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) noexcept {
  return Submit(&cuda::RealDriver::cuGraphUpload_ptsz, exec, stream, kPerThreadStream);
}

CUresult cuDeviceGraphMemTrim(CUdevice device) noexcept {
  const CUresult result = Call(Real().cuDeviceGraphMemTrim, device);
  if (Guest* const guest = OpenGuest(device)) guest->graphs().Recount();
  return result;
}

}  // extern "C"
