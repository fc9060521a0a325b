// Driver: the process's one driver state, made by cuInit and never destroyed (threads of the
// program and the engines may be running while the process exits).
//
// Threading: any thread.
//
// Invariants:
// 1. Before cuInit, in a child forked after it, and once the process exits, no entry point gets
// past
//    Ready().
// 2. Lock order: the Checkpoint's, a device's primary_mutex, a GraphExec's launch_mutex,
// graphs_mutex, the memory's
//    mutex; then that of a Context, a Library, a LibraryKernel, a Module or an IpcEvent, one at a
//    time; then those of handle tables and the scheduler's. Every other is a leaf.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "softgpu/card/faults.h"
#include "softgpu/card/options.h"
#include "softgpu/driver/array.h"
#include "softgpu/driver/capture.h"
#include "softgpu/driver/checkpoint.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/graph.h"
#include "softgpu/driver/graph_exec.h"
#include "softgpu/driver/library.h"
#include "softgpu/driver/linker.h"
#include "softgpu/driver/texture.h"
#include "softgpu/engine/value_watch.h"
#include "softgpu/memory/handle_table.h"
#include "softgpu/memory/memory.h"

namespace tandem::soft {

class Driver {
 public:
  Options options;
  std::unique_ptr<Faults> faults;
  std::unique_ptr<AddressSpace> space;
  std::unique_ptr<Memory> memory;
  Scheduler scheduler;
  ValueWatch watch{&scheduler};
  std::vector<std::unique_ptr<Device>> devices;
  Checkpoint checkpoint{this};

  HandleTable<CUcontext, Context> contexts;
  HandleTable<CUstream, StreamObject> streams;
  HandleTable<CUevent, Event> events;
  HandleTable<CUmodule, Module> modules;
  HandleTable<CUfunction, Function> functions;
  HandleTable<CUarray, Array> arrays;
  Textures textures;
  HandleTable<CUlibrary, Library> libraries;
  HandleTable<CUkernel, LibraryKernel> kernels;
  HandleTable<CUlinkState, Linker> linkers;
  HandleTable<CUgraph, Graph> graphs;
  HandleTable<CUgraphNode, GraphNode> graph_nodes;
  HandleTable<CUgraphExec, GraphExec> graph_execs;

  Mutex graphs_mutex;  // of all graphs, instantiated ones and captures
  Captures captures GUARDED_BY(graphs_mutex);
  std::map<CUgraphConditionalHandle, std::weak_ptr<Condition>> conditions GUARDED_BY(graphs_mutex);
  std::atomic<int> capturing = 0;  // captures under way

  // Null for an ordinal that is none.
  Device* FindDevice(CUdevice device);
  // Negative for what is none of the process's devices.
  int OrdinalOf(const CUuuid& device) const;

  // Charges VRAM, starts the engines. Not yet current anywhere. `primary_id`: of the primary
  // context, zero for any other.
  CUresult CreateContext(Device* device, unsigned int flags, uint64_t primary_id,
                         std::shared_ptr<Context>* context);
  // Null for an unknown handle, and for a primary context that has ended.
  std::shared_ptr<Context> FindLiving(CUcontext handle);
  // Waits for the context's work and frees all that belongs to it.
  void DestroyContext(const std::shared_ptr<Context>& context);

  // Waits for all of a context's work; its sticky error.
  CUresult Synchronise(const Context& context);
  // The same for the context of this number: before memory that it owns goes away.
  CUresult SynchroniseOwner(uint64_t context_id);

  // For calls that have waited for work: pools give back what they are not to keep.
  void ReleasePoolMemory();

  // A block for the program; managed if every device uses it.
  CUresult Allocate(const std::shared_ptr<Context>& context, size_t bytes, Heap::Users users,
                    CUdeviceptr* pointer);
};

// cuInit: opens the devices that the environment names. Later calls give the first one's result.
CUresult Initialise();
// Not initialised, forked since, shut down, or called from a host function: the error to return.
CUresult Usable();
// The same, once the process is not locked for a checkpoint.
CUresult Ready();
// REQUIRES: Ready() was successful.
Driver& TheDriver();

// Ready(), and the device of an ordinal.
CUresult FindDevice(CUdevice ordinal, Device** device);

inline CUcontext HandleOf(const std::shared_ptr<Context>& context) {
  return reinterpret_cast<CUcontext>(context->id);
}
// The calling thread's contexts, the current one last.
std::vector<std::shared_ptr<Context>>& ContextStack();
// The current context, sticky error or not.
CUresult CurrentContext(std::shared_ptr<Context>* context);
// The current context of a call that submits, synchronises or allocates: its sticky error.
CUresult HealthyContext(std::shared_ptr<Context>* context);
// The same for calls that give back what their argument names, and so can do without.
CUresult HealthyOrNoContext();

// While one lives the calling thread's stream 0 is its own default stream.
class PerThreadDefault {
 public:
  PerThreadDefault() { ++depth; }
  ~PerThreadDefault() { --depth; }
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;
  static bool active() { return depth > 0; }

 private:
  static thread_local int depth;
};

// What a stream handle means in a context, also the ones with a meaning of their own.
CUresult FindStream(const std::shared_ptr<Context>& current, CUstream handle,
                    std::shared_ptr<Context>* context, std::shared_ptr<Stream>* stream);

// What work of `group` has to come after, to come after the latest record of an event that other
// processes know, too; nothing if that is reached.
std::optional<Dependency> PendingShared(const Event& event,
                                        const std::shared_ptr<StreamGroup>& group);

// Marks the calling thread as running a host function, which may not call the driver.
class HostFunctionScope {
 public:
  HostFunctionScope();
  ~HostFunctionScope();
};

#define CU_TRY(expression)                                   \
  do {                                                       \
    const CUresult cu_try_result = (expression);             \
    if (cu_try_result != CUDA_SUCCESS) return cu_try_result; \
  } while (false)

}  // namespace tandem::soft
