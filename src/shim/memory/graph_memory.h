// GraphMemory: what nodes of graphs allocate. The driver takes it from the card when a graph is
// launched or uploaded, shares it among graphs as it sees fit, and keeps it until it is trimmed,
// also when the graph is gone.
//
// Threading: any.
// Invariants
// 1. Before a graph takes memory there is room for all that it may take.
// 2. A graph that was launched since memory was last given back takes no more.
#pragma once

#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/cuda/real_driver.h"
#include "src/shim/memory/kept_memory.h"

namespace tandem::shim {

class GraphMemory {
 public:
  GraphMemory(const cuda::RealDriver* real, CUdevice device, FixedMemory* fixed);

  // What a graph's nodes allocate on the device, by their addresses: nodes one after the other may
  // have the same.
  Bytes SizeOf(CUgraph graph) const;

  // ---- Graphs that are instantiated.
  // `bytes`: SizeOf what it was made of.
  void Instantiated(CUgraphExec exec, Bytes bytes) EXCLUDES_LOCK(mutex_);
  // Before the driver destroys it, whose handle may then be another's.
  void Ends(CUgraphExec exec) EXCLUDES_LOCK(mutex_);
  struct Room {
    Bytes bytes;
    uint64_t age = 0;  // when it was looked for
  };
  // What a launch may take that there is no room for yet; mostly nothing.
  Room Lacking(CUgraphExec exec) const EXCLUDES_LOCK(mutex_);
  // For a graph that takes these bytes.
  Room RoomFor(Bytes bytes) const EXCLUDES_LOCK(mutex_);
  // Waits for room, which Launched takes. False: there is none beside the other memory that graphs
  // keep.
  bool MakeRoom(const Room& lacking) { return kept_.MakeRoom(lacking.bytes); }
  // The launch is submitted, or has failed.
  void Launched(CUgraphExec exec, const Room& room, bool submitted) EXCLUDES_LOCK(mutex_);

  // The driver gives back what no graph uses. Whether there was any.
  bool Trim() EXCLUDES_LOCK(mutex_);
  // Something may have gone: it is counted anew.
  void Recount() EXCLUDES_LOCK(mutex_);

 private:
  using Addresses = std::vector<std::pair<uint64_t, uint64_t>>;  // from, to
  struct Exec {
    Bytes bytes;
    uint64_t launched_in = 0;  // which age; 0: not yet
  };

  void Collect(CUgraph graph, int depth, Addresses* addresses) const;
  Bytes Attribute(CUgraphMem_attribute attribute) const;

  const cuda::RealDriver* const real_;
  const CUdevice device_;
  KeptMemory kept_;
  mutable Mutex mutex_;
  std::map<CUgraphExec, Exec> execs_ GUARDED_BY(mutex_);  // those that take any
  std::atomic<size_t> count_{0};                          // of them
  uint64_t age_ GUARDED_BY(mutex_) = 1;                   // changes when memory was given back
};

}  // namespace tandem::shim
