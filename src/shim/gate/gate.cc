#include "src/shim/gate/gate.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include "src/base/mutex.h"

namespace tandem::shim {
namespace {

// Slots are only added, so that they can be looked through without the lock.
struct Registry {
  Mutex mutex;  // for who has which slot
  std::atomic<ThreadSlot*> first{nullptr};
  pthread_key_t at_exit{};
};

// Never destroyed: threads outlive static destructors.
Registry& TheRegistry() {
  static Registry* const registry = new Registry;
  return *registry;
}

long Futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation | FUTEX_PRIVATE_FLAG,
                 value, nullptr, nullptr, 0);
}

void Pause(Duration duration) {
  const timespec time{0, duration.ns};
  nanosleep(&time, nullptr);
}

}  // namespace

constinit ThreadSlot Gate::unknown_thread{.depth = 1};
constinit thread_local ThreadSlot* Gate::current_thread = &unknown_thread;
std::atomic<bool> Gate::asymmetric{false};

void Gate::RegisterProcess() {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0) {
    asymmetric.store(true, std::memory_order_seq_cst);
  }
}

ThreadSlot* Gate::RegisterThread() {
  Registry& registry = TheRegistry();
  static const bool key_made = pthread_key_create(&registry.at_exit, &Gate::ReleaseThread) == 0;
  ThreadSlot* slot = nullptr;
  {
    MutexLock lock(registry.mutex);
    for (slot = registry.first.load(); slot != nullptr && slot->taken; slot = slot->next) {
    }
    if (slot == nullptr) {
      slot = new ThreadSlot;
      slot->next = registry.first.load();
      registry.first.store(slot);
    }
    slot->taken = true;
    slot->marked_generation = 0;
  }
  current_thread = slot;
  // A slot that is not given back at thread exit stays at depth 0 and costs a cache line.
  if (key_made) pthread_setspecific(registry.at_exit, slot);
  return slot;
}

void Gate::ReleaseThread(void* slot) {
  current_thread = &unknown_thread;
  MutexLock lock(TheRegistry().mutex);
  static_cast<ThreadSlot*>(slot)->taken = false;
}

ThreadSlot* Gate::EnterSlowly(CUstream stream) {
  ThreadSlot* const slot = current_thread == &unknown_thread ? RegisterThread() : current_thread;
  const uint32_t depth = slot->depth.load(std::memory_order_relaxed);
  if (depth != 0) {
    slot->depth.store(depth + 1, std::memory_order_relaxed);
    return slot;
  }
  for (;;) {
    if (!open() && !WaitUntilOpen()) return nullptr;
    if (metered() && metered_ != nullptr) metered_(context_, stream);
    slot->depth.store(1, std::memory_order_seq_cst);
    if (IsOpen(state_.load(std::memory_order_seq_cst))) return slot;
    LeaveWhole(slot);
  }
}

// False: it refuses.
bool Gate::WaitUntilOpen() {
  waiting_.fetch_add(1, std::memory_order_acq_rel);
  if (blocked_ != nullptr) blocked_(context_);
  uint32_t state;
  while ((state = state_.load(std::memory_order_acquire)) == kShut) {
    Futex(&state_, FUTEX_WAIT, kShut);
  }
  waiting_.fetch_sub(1, std::memory_order_acq_rel);
  return state != kRefusing;
}

void Gate::Apply() {
  const uint32_t open = metered_votes_ != 0 ? kMetered : Freely();
  const uint64_t against = shut_.load(std::memory_order_relaxed);
  const uint32_t shut = (against & refusing_votes_) != 0 ? kRefusing : kShut;
  const uint32_t state = against != 0 ? shut : open;
  if (state_.exchange(state, std::memory_order_seq_cst) == kShut && state != kShut) {
    Futex(&state_, FUTEX_WAKE, INT_MAX);
  }
}

void Gate::Open(bool metered, Vote vote) {
  {
    MutexLock lock(votes_mutex_);
    shut_.fetch_and(~Bit(vote), std::memory_order_acq_rel);
    metered_votes_ = metered ? metered_votes_ | Bit(vote) : metered_votes_ & ~Bit(vote);
    Apply();
  }
  if (!open() && waiting() != 0 && blocked_ != nullptr) blocked_(context_);
}

void Gate::Shut(Vote vote) {
  MutexLock lock(votes_mutex_);
  shut_.fetch_or(Bit(vote), std::memory_order_acq_rel);
  metered_votes_ &= ~Bit(vote);
  Apply();
}

void Gate::Meter(bool metered, Vote vote) {
  MutexLock lock(votes_mutex_);
  const bool is = (metered_votes_ & Bit(vote)) != 0;
  if (is == metered || !IsFor(vote)) return;
  metered_votes_ ^= Bit(vote);
  Apply();
}

void Gate::Refuse(bool refuses, Vote vote) {
  MutexLock lock(votes_mutex_);
  if (((refusing_votes_ & Bit(vote)) != 0) == refuses) return;
  refusing_votes_ ^= Bit(vote);
  Apply();
}

bool Gate::Close(Instant deadline, Vote vote) {
  Shut(vote);
  if (asymmetric.load(std::memory_order_relaxed)) {
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }
  for (Duration pause = Microseconds(1);; pause = std::min(pause * 2, Microseconds(100))) {
    if (!AnyInside()) return true;
    if (MonotonicNow() >= deadline) return false;
    Pause(pause);
  }
}

void Gate::BeforeFork() {
  TheRegistry().mutex.Lock();
}

void Gate::AfterFork() {
  TheRegistry().mutex.Unlock();
}

bool Gate::AnyInside() {
  for (ThreadSlot* slot = TheRegistry().first.load(); slot != nullptr; slot = slot->next) {
    if (slot->depth.load(std::memory_order_seq_cst) != 0) return true;
  }
  return false;
}

uint64_t Gate::Submits() {
  uint64_t sum = 0;
  for (ThreadSlot* slot = TheRegistry().first.load(); slot != nullptr; slot = slot->next) {
    sum += slot->submits.load(std::memory_order_acquire);
  }
  return sum;
}

}  // namespace tandem::shim
