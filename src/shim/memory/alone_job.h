// AloneJob: hands what has to be done while the program does nothing from a thread of the program's
// to the agent, and the answer back.
//
// Threading: Run by one thread of the program's at a time; Serve and End by the agent.
#pragma once

#include <functional>
#include <optional>

#include "src/base/mutex.h"

namespace tandem::shim {

class AloneJob {
 public:
  // kNotNow: there is no lease; kUndrained: what is under way takes too long.
  enum class Answer { kDone, kNotNow, kUndrained };
  using Job = std::function<void()>;

  // Waits until it is served; `wake` wakes the agent for that.
  Answer Run(const Job& job, const std::function<void()>& wake) EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    if (ended_) return Answer::kNotNow;
    job_ = &job;
    answer_.reset();
    wake();
    while (!answer_.has_value()) answered_.Wait(mutex_);
    return *answer_;
  }
  // Lets `attempt` do what there is, if anything.
  void Serve(const std::function<Answer(const Job&)>& attempt) EXCLUDES_LOCK(mutex_) {
    const Job* job = nullptr;
    {
      MutexLock lock(mutex_);
      job = job_;
    }
    if (job != nullptr) Reply(attempt(*job));
  }
  // No agent serves any more.
  void End() EXCLUDES_LOCK(mutex_) {
    {
      MutexLock lock(mutex_);
      ended_ = true;
      if (job_ == nullptr) return;
    }
    Reply(Answer::kNotNow);
  }

 private:
  void Reply(Answer answer) EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    job_ = nullptr;
    answer_ = answer;
    answered_.NotifyAll();
  }

  Mutex mutex_;
  CondVar answered_;
  const Job* job_ GUARDED_BY(mutex_) = nullptr;
  std::optional<Answer> answer_ GUARDED_BY(mutex_);
  bool ended_ GUARDED_BY(mutex_) = false;
};

}  // namespace tandem::shim
