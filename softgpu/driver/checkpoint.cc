#include "softgpu/driver/checkpoint.h"

#include <algorithm>
#include <cstring>

#include "softgpu/driver/driver.h"

namespace tandem::soft {
namespace {

bool Same(const CUuuid& one, const CUuuid& other) {
  return std::memcmp(&one, &other, sizeof(one)) == 0;
}

bool Alike(const Card& one, const Card& other) {
  return one.shared->total() == other.shared->total() &&
         one.shared->page()->model_clock == other.shared->page()->model_clock;
}

}  // namespace

void Checkpoint::Wait() {
  MutexLock lock(mutex_);
  while (locked_.load()) unlocked_.Wait(mutex_);
}

CUprocessState Checkpoint::state() const {
  MutexLock lock(mutex_);
  return state_;
}

CUresult Checkpoint::Lock(std::optional<Duration> patience) {
  MutexLock lock(mutex_);
  if (state_ != CU_PROCESS_STATE_RUNNING) return CUDA_ERROR_ILLEGAL_STATE;
  locked_.store(true);
  std::optional<Instant> until;
  if (patience.has_value()) until = MonotonicNow() + *patience;
  if (!driver_->scheduler.WaitUntilIdle(until)) {
    locked_.store(false);
    unlocked_.NotifyAll();
    return CUDA_ERROR_NOT_READY;
  }
  state_ = CU_PROCESS_STATE_LOCKED;
  return CUDA_SUCCESS;
}

bool Checkpoint::SharesWithOthers() {
  if (driver_->events.Any([](const Event& event) { return event.shared != nullptr; })) return true;
  Memory& memory = *driver_->memory;
  MutexLock lock(memory.mutex());
  return memory.ipc().Shares() || memory.vmm().shares() || memory.pools().shares();
}

CUresult Checkpoint::Save() {
  MutexLock lock(mutex_);
  if (state_ != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  if (SharesWithOthers()) return CUDA_ERROR_NOT_SUPPORTED;
  MutexLock memory_lock(driver_->memory->mutex());
  held_.clear();
  for (const auto& device : driver_->devices) {
    held_.push_back(device->shared().Held());
    device->shared().Return(held_.back());
  }
  state_ = CU_PROCESS_STATE_CHECKPOINTED;
  return CUDA_SUCCESS;
}

std::vector<Card*> Checkpoint::CardsAfter(std::span<const CUcheckpointGpuPair> pairs) const {
  const auto& devices = driver_->devices;
  std::vector<Card*> cards;
  for (const auto& device : devices) cards.push_back(device->card());
  if (pairs.empty()) return cards;
  std::vector<Card*> after;
  for (const Card* before : cards) {
    const auto pair = std::find_if(pairs.begin(), pairs.end(), [&](const auto& each) {
      return Same(each.oldUuid, before->uuid);
    });
    if (pair == pairs.end()) return {};
    const auto card = std::find_if(cards.begin(), cards.end(), [&](const Card* each) {
      return Same(each->uuid, pair->newUuid);
    });
    const bool taken = card != cards.end() && std::count(after.begin(), after.end(), *card) > 0;
    if (card == cards.end() || taken || !Alike(*before, **card)) return {};
    after.push_back(*card);
  }
  return after;
}

void Checkpoint::MoveTo(const std::vector<Card*>& cards) {
  for (size_t i = 0; i < cards.size(); ++i) driver_->devices[i]->MoveTo(cards[i]);
}

bool Checkpoint::ChargeAll() {
  const auto& devices = driver_->devices;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i]->shared().Charge(held_[i])) continue;
    while (i-- > 0) devices[i]->shared().Return(held_[i]);
    return false;
  }
  return true;
}

bool Checkpoint::TryWhileIdle(const std::function<void()>& function) {
  MutexLock lock(driver_->memory->mutex());
  return driver_->scheduler.WhileIdle(function);
}

CUresult Checkpoint::Restore(std::span<const CUcheckpointGpuPair> pairs) {
  MutexLock lock(mutex_);
  if (state_ != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
  const std::vector<Card*> before = CardsAfter({}), after = CardsAfter(pairs);
  if (after.empty()) return CUDA_ERROR_INVALID_VALUE;
  bool charged = false;
  const auto move = [&]() REQUIRES_LOCK(mutex_) {
    MoveTo(after);
    charged = ChargeAll();
    if (!charged) MoveTo(before);
  };
  // A call that was past Ready() when the process was locked may still have submitted something.
  while (!TryWhileIdle(move)) driver_->scheduler.WaitUntilIdle(std::nullopt);
  if (!charged) return CUDA_ERROR_OUT_OF_MEMORY;
  state_ = CU_PROCESS_STATE_LOCKED;
  return CUDA_SUCCESS;
}

CUresult Checkpoint::Unlock() {
  MutexLock lock(mutex_);
  if (state_ != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  state_ = CU_PROCESS_STATE_RUNNING;
  locked_.store(false);
  unlocked_.NotifyAll();
  return CUDA_SUCCESS;
}

}  // namespace tandem::soft
