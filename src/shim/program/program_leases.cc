#include "src/shim/program/program_leases.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace tandem::shim {
namespace {

long Futex(const std::atomic<uint32_t>* word, int operation, uint32_t value,
           const timespec* timeout = nullptr) {
  return syscall(SYS_futex, reinterpret_cast<const uint32_t*>(word), operation | FUTEX_PRIVATE_FLAG,
                 value, timeout, nullptr, 0);
}

}  // namespace

bool ProgramLease::Change(State from, State to) {
  auto before = static_cast<uint32_t>(from);
  if (!state_.compare_exchange_strong(before, static_cast<uint32_t>(to))) return false;
  if (from == State::kWaiting) Futex(&state_, FUTEX_WAKE, INT_MAX);
  return true;
}

bool ProgramLease::Await(Duration most) const {
  const timespec time{most.ns / 1000000000, most.ns % 1000000000};
  const auto waiting = static_cast<uint32_t>(State::kWaiting);
  return Futex(&state_, FUTEX_WAIT, waiting, &time) != 0 && errno == EINTR;
}

void ProgramLease::Cancel() {
  const int kept = errno;  // the program's, where a signal handler calls this
  if (!Change(State::kWaiting, State::kCancelled)) Change(State::kEnded, State::kCancelled);
  errno = kept;
}

// The daemon hears of the memory before the agent can ask for it.
void ProgramLeases::Count() {
  wire::Declare declared;
  if (!leases_.empty()) declared = leases_.back()->declared_;  // the latest one's word
  uint32_t waiting = 0;
  for (const ProgramLease* lease : leases_) {
    declared.memory_bytes = std::max(declared.memory_bytes, lease->declared_.memory_bytes);
    if (lease->state() == ProgramLease::State::kWaiting) ++waiting;
  }
  declare_(declared);
  reserved_.store(declared.memory_bytes, std::memory_order_release);
  begun_.store(static_cast<uint32_t>(leases_.size()), std::memory_order_release);
  waiting_.store(waiting, std::memory_order_release);
}

void ProgramLeases::Begin(ProgramLease* lease) {
  using State = ProgramLease::State;
  MutexLock lock(mutex_);
  if (!lease->Change(State::kEnded, State::kWaiting)) return;
  leases_.push_back(lease);
  SetOver(false);
  Count();
}

void ProgramLeases::End(ProgramLease* lease) {
  using State = ProgramLease::State;
  MutexLock lock(mutex_);
  const bool granted = lease->state() == State::kGranted;
  lease->state_.store(static_cast<uint32_t>(State::kEnded), std::memory_order_release);
  if (std::erase(leases_, lease) == 0) return;
  Count();
  if (!granted) given_up_.store(true, std::memory_order_release);
  if (leases_.empty() && granted) SetOver(true);
}

void ProgramLeases::AbandonInChild() {
  leases_.clear();
  begun_ = waiting_ = 0;
  reserved_ = 0;
  over_ = given_up_ = false;
}

void ProgramLeases::Grant() {
  if (!waiting()) return;
  using State = ProgramLease::State;
  MutexLock lock(mutex_);
  for (ProgramLease* lease : leases_) lease->Change(State::kWaiting, State::kGranted);
  Count();
}

}  // namespace tandem::shim
