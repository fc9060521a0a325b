// Context, Event, Module and Function: what the handles of this driver stand for.
//
// Threading: any thread; members say what guards them. A caller that looked an object up may use it
// to the end of the call, also if another thread destroys it meanwhile.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "softgpu/driver/device.h"
#include "softgpu/engine/ipc_event.h"
#include "softgpu/engine/scheduler.h"
#include "softgpu/ptx/program.h"
#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/base/time.h"

namespace tandem::soft {

// Invariant: once `destroyed` is set, nothing is allocated for the context any more (both happen
// under the memory's mutex).
struct Context {
  Context(uint64_t id, Device* device, unsigned int flags, bool primary)
      : id(id),
        device(device),
        primary(primary),
        group(std::make_shared<StreamGroup>(device->engines())),
        legacy(std::make_shared<Stream>(group, StreamKind::kLegacy, 0)),
        flags(flags) {}

  const uint64_t id;  // its handle's value, and what owns its memory
  Device* const device;
  const bool primary;
  const std::shared_ptr<StreamGroup> group;
  const std::shared_ptr<Stream> legacy;
  std::atomic<bool> destroyed = false;
  std::atomic<int> attached = 1;  // as cuCtxAttach and cuCtxDetach count
  std::atomic<unsigned int> flags;
  std::atomic<int> cache_config = 0;

  std::atomic<int> shared_config = 0;

  Mutex mutex;
  std::map<int, size_t> limits GUARDED_BY(mutex);  // those that were set
  // Contexts whose memory it was given access to.
  std::set<std::weak_ptr<Context>, std::owner_less<>> peers GUARDED_BY(mutex);
  uint64_t grid_workspace GUARDED_BY(mutex) = 0;  // of cooperative launches; zero: none yet

  CUresult error() const { return group->error.load(); }
};

struct Capture;
struct GraphNode;

struct StreamObject {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  unsigned int flags = 0;
};

class Event {
 public:
  // One recording; it stays what it is when the event is recorded again.
  struct Record {
    Dependency where;
    std::atomic<int64_t> time_ns = 0;  // zero until it is reached
    // Recorded in a captured stream: after these nodes of the capture's graph, and nowhere else.
    std::shared_ptr<Capture> capture;
    std::vector<GraphNode*> nodes;
  };

  Event(std::shared_ptr<Context> context, unsigned int flags,
        std::shared_ptr<IpcEvent> shared = nullptr)
      : context(std::move(context)), flags(flags), shared(std::move(shared)) {}
  const std::shared_ptr<Context> context;
  const unsigned int flags;
  // Of an event that other processes know, too: what it is to all of them. Then latest() is null
  // but for a record in a capture.
  const std::shared_ptr<IpcEvent> shared;

  // Null if the event was never recorded.
  std::shared_ptr<Record> latest() const {
    MutexLock lock(mutex_);
    return latest_;
  }
  void set_latest(std::shared_ptr<Record> record) {
    MutexLock lock(mutex_);
    latest_ = std::move(record);
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<Record> latest_ GUARDED_BY(mutex_);
};

struct Module {
  std::shared_ptr<Context> context;
  std::shared_ptr<const ptx::Program> program;
  uint64_t image_address = 0;  // zero if the module has no variables
  bool of_library = false;     // goes with its library, and not by cuModuleUnload

  Mutex mutex;
  std::map<std::string, CUfunction, std::less<>> functions GUARDED_BY(mutex);
};

struct Function {
  CUmodule module_handle = nullptr;
  std::shared_ptr<Context> context;
  std::shared_ptr<const ptx::Program> program;
  const ptx::Kernel* kernel = nullptr;  // in program
  uint64_t image_address = 0;
  std::atomic<uint32_t> max_dynamic_shared = 0;
  // Set for this function, so that what is set for its library's kernel does not count.
  std::atomic<bool> has_own_attributes = false;

  // What the calls from before cuLaunchKernel have set for the next cuLaunch.
  struct Legacy {
    uint32_t block[3] = {1, 1, 1};
    uint32_t shared_bytes = 0;
    std::vector<uint8_t> params;
  };
  Mutex mutex;
  Legacy legacy GUARDED_BY(mutex);
};

}  // namespace tandem::soft
