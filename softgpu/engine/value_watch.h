// ValueWatch: lets a stream wait until something is true that no task of this process brings about:
// a value in memory that a kernel, the host or another process writes.
//
// A task comes after a stream made for it, which is empty; when the condition holds, or the context
// is broken, an empty task is submitted there. One thread looks at all conditions, every few dozen
// microseconds while there are any.
//
// Threading: any thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "softgpu/engine/scheduler.h"
#include "src/base/mutex.h"

namespace tandem::soft {

class ValueWatch {
 public:
  // REQUIRES: outlives this.
  explicit ValueWatch(Scheduler* scheduler) : scheduler_(scheduler) {}

  // What a task has to come after. `begun` is asked first, and `holds` only once that is reached:
  // the condition is looked at when the stream's earlier work is done.
  Dependency Until(const std::shared_ptr<StreamGroup>& group, std::vector<Dependency> begun,
                   std::function<bool()> holds);

 private:
  struct Watched {
    std::shared_ptr<Stream> stream;
    std::vector<Dependency> begun;
    std::function<bool()> holds;
  };
  void Loop();

  Scheduler* const scheduler_;
  Mutex mutex_;
  CondVar added_;
  bool started_ GUARDED_BY(mutex_) = false;
  std::vector<Watched> fresh_ GUARDED_BY(mutex_);
};

}  // namespace tandem::soft
