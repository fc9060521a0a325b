#include "softgpu/engine/value_watch.h"

#include <pthread.h>
#include <signal.h>

#include <iterator>
#include <thread>
#include <utility>

#include "src/base/time.h"

namespace tandem::soft {
namespace {

constexpr Duration kInterval = Microseconds(50);

}  // namespace

Dependency ValueWatch::Until(const std::shared_ptr<StreamGroup>& group,
                             std::vector<Dependency> begun, std::function<bool()> holds) {
  auto stream = std::make_shared<Stream>(group, StreamKind::kNonBlocking, 0);
  const Dependency reached{stream, 1};
  MutexLock lock(mutex_);
  fresh_.push_back({std::move(stream), std::move(begun), std::move(holds)});
  if (!std::exchange(started_, true)) {
    sigset_t all, before;  // the program's handlers must not run on this thread
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { Loop(); }).detach();  // for as long as the process lives
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  added_.NotifyOne();
  return reached;
}

void ValueWatch::Loop() {
  std::vector<Watched> watched;
  for (;;) {
    {
      MutexLock lock(mutex_);
      while (watched.empty() && fresh_.empty()) added_.Wait(mutex_);
      if (fresh_.empty()) added_.WaitFor(mutex_, kInterval);
      std::move(fresh_.begin(), fresh_.end(), std::back_inserter(watched));
      fresh_.clear();
    }
    std::erase_if(watched, [&](const Watched& one) {
      const bool broken = one.stream->group->error.load() != CUDA_SUCCESS;
      if (!broken && !(scheduler_->Done(one.begun) && one.holds())) return false;
      scheduler_->Submit(one.stream, Task{});
      return true;
    });
  }
}

}  // namespace tandem::soft
