#include "src/shim/memory/driver_pools.h"

#include <algorithm>

namespace tandem::shim {

Bytes DriverPools::Attribute(const Pool& pool, CUmemPool_attribute attribute) const {
  if (pool.destroyed.load(std::memory_order_acquire)) return Bytes(pool.live.load());
  uint64_t value = 0;
  const bool known = real_->cuMemPoolGetAttribute(pool.handle, attribute, &value) == CUDA_SUCCESS;
  return Bytes(known ? value : 0);
}

DriverPools::PoolPointer DriverPools::Find(CUmemoryPool handle) const {
  if (count_.load(std::memory_order_acquire) == 0) return nullptr;
  MutexLock lock(mutex_);
  const auto known = pools_.find(handle);
  return known == pools_.end() ? nullptr : known->second;
}

void DriverPools::Add(CUmemoryPool handle) {
  MutexLock lock(mutex_);
  PoolPointer& pool = pools_[handle];
  if (pool != nullptr) return;
  pool = std::make_shared<Pool>();
  pool->handle = handle;
  // It lives in the pool, and so no longer than that.
  const Pool* const asked = pool.get();
  pool->memory = std::make_unique<KeptMemory>(
      fixed_, KeptMemory::Store{
                  [=, this] { return Attribute(*asked, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); },
                  [=, this] { return Attribute(*asked, CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }});
  count_.fetch_add(1, std::memory_order_release);
}

bool DriverPools::MakeRoom(CUmemoryPool handle, Bytes bytes) {
  const PoolPointer pool = Find(handle);
  return pool == nullptr || pool->memory->MakeRoom(bytes);
}

void DriverPools::Allocated(CUmemoryPool handle, Bytes bytes, CUdeviceptr pointer) {
  const PoolPointer pool = Find(handle);
  if (pool == nullptr) return;
  if (pointer != 0) {
    MutexLock lock(mutex_);
    live_[pointer] = {pool, bytes.count};
    pool->live += bytes.count;
  }
  pool->memory->Recount(bytes);
}

void DriverPools::Freed(CUdeviceptr pointer) {
  if (count_.load(std::memory_order_acquire) == 0) return;
  MutexLock lock(mutex_);
  const auto live = live_.find(pointer);
  if (live == live_.end()) return;
  live->second.pool->live -= live->second.bytes;
  live_.erase(live);
}

std::vector<DriverPools::PoolPointer> DriverPools::All() {
  if (count_.load(std::memory_order_acquire) == 0) return {};
  MutexLock lock(mutex_);
  std::erase_if(destroyed_,
                [](const PoolPointer& pool) { return pool->live == 0 && pool->memory->empty(); });
  std::vector<PoolPointer> pools = destroyed_;
  for (const auto& [handle, pool] : pools_) pools.push_back(pool);
  return pools;
}

void DriverPools::Recount() {
  for (const PoolPointer& pool : All()) {
    if (!pool->memory->empty()) pool->memory->Recount();
  }
}

bool DriverPools::Trim() {
  Bytes before, after;
  for (const PoolPointer& pool : All()) {
    before += pool->memory->counted();
    if (!pool->destroyed) real_->cuMemPoolTrimTo(pool->handle, 0);
    pool->memory->Recount();
    after += pool->memory->counted();
  }
  return after < before;
}

void DriverPools::Destroying(CUmemoryPool handle) {
  MutexLock lock(mutex_);
  const auto known = pools_.find(handle);
  if (known == pools_.end()) return;
  known->second->destroyed.store(true, std::memory_order_release);
  destroyed_.push_back(std::move(known->second));
  pools_.erase(known);
}

void DriverPools::NotDestroyed(CUmemoryPool handle) {
  MutexLock lock(mutex_);
  const auto pool = std::find_if(destroyed_.begin(), destroyed_.end(),
                                 [handle](const auto& each) { return each->handle == handle; });
  if (pool == destroyed_.end()) return;
  (*pool)->destroyed.store(false, std::memory_order_release);
  pools_[handle] = std::move(*pool);
  destroyed_.erase(pool);
}

}  // namespace tandem::shim
