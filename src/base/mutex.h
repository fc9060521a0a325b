// Mutex, MutexLock and CondVar: std's, with the attributes that let clang check that every guarded
// member is touched under its lock (-Wthread-safety; `./dev check` builds with it).
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "src/base/time.h"

#if defined(__clang__)
#define TANDEM_ATTRIBUTE(x) __attribute__((x))
#else
#define TANDEM_ATTRIBUTE(x)
#endif
#define GUARDED_BY(mutex) TANDEM_ATTRIBUTE(guarded_by(mutex))
#define REQUIRES_LOCK(...) TANDEM_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EXCLUDES_LOCK(...) TANDEM_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS TANDEM_ATTRIBUTE(no_thread_safety_analysis)

namespace tandem {

class TANDEM_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  // Most locks are held for less time than it takes to sleep and be woken, and once there are
  // sleepers every Unlock has to wake one of them: so it tries for a while before it sleeps.
  void Lock() TANDEM_ATTRIBUTE(acquire_capability()) NO_THREAD_SAFETY_ANALYSIS {
    if (!TryLockBriefly()) mutex_.lock();
  }
  void Unlock() TANDEM_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  bool TryLock() TANDEM_ATTRIBUTE(try_acquire_capability(true)) { return mutex_.try_lock(); }
  // For who had better not wait long, but for a moment.
  bool TryLockBriefly() TANDEM_ATTRIBUTE(try_acquire_capability(true)) {
    if (mutex_.try_lock()) return true;
    // Each try takes the lock's cache line away from its holder, so they become rarer: exponential
    // back-off (Anderson, The Performance of Spin Lock Alternatives for Shared-Memory
    // Multiprocessors, 1990, section 3.2).
    constexpr int kSpins = 12, kYields = 38;
    for (int pauses = 8, i = 0; i < kSpins; ++i, pauses = std::min(2 * pauses, 256)) {
      for (int k = 0; k < pauses; ++k) Pause();
      if (mutex_.try_lock()) return true;
    }
    // Perhaps the holder waits for this processor.
    for (int i = 0; i < kYields; ++i) {
      std::this_thread::yield();
      if (mutex_.try_lock()) return true;
    }
    return false;
  }

 private:
  friend class CondVar;
  static void Pause() {  // some tens of nanoseconds, for the other hardware thread's good
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
  }
  std::mutex mutex_;
};

class TANDEM_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TANDEM_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() TANDEM_ATTRIBUTE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // REQUIRES: the calling thread holds `mutex`; it does again on return. May wake spuriously.
  void Wait(Mutex& mutex) REQUIRES_LOCK(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // False if `duration` passed first.
  bool WaitFor(Mutex& mutex, Duration duration) REQUIRES_LOCK(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool woken = condition_.wait_for(lock, std::chrono::nanoseconds(duration.ns)) ==
                       std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace tandem
