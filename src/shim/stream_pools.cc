#include "src/shim/stream_pools.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "src/shim/device_memory.h"

namespace tandem::shim {
namespace {

// As the driver aligns small blocks.
constexpr uint64_t kSmallUnit = 512;

// What a block takes; 0 if that cannot be said in 64 bits.
uint64_t Rounded(uint64_t bytes) {
  const uint64_t unit = bytes < kLargeBlock ? kSmallUnit : kGranule;
  return bytes > UINT64_MAX - unit ? 0 : (bytes + unit - 1) / unit * unit;
}

// Threads have one each, under the same handle.
bool HasOneOrder(CUstream stream) {
  return stream != nullptr && stream != reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD_VALUE);
}

}  // namespace

void StreamPools::Amount::Grow(uint64_t bytes) {
  now += bytes;
  high = std::max(high, now);
}

// A default pool shows up when it is used first.
std::shared_ptr<StreamPools::Pool> StreamPools::PoolOf(CUmemoryPool handle) {
  if (const auto known = pools_.find(handle); known != pools_.end()) return known->second;
  CUmemoryPool standard = nullptr;
  const auto get = real_->cuDeviceGetDefaultMemPool;
  if (get == nullptr || get(&standard, device_) != CUDA_SUCCESS || standard != handle) {
    return nullptr;
  }
  return pools_[handle] = std::make_shared<Pool>(handle, 0);
}

template <typename Visit>
void StreamPools::EachPool(Visit visit) {
  for (auto& [handle, pool] : pools_) visit(pool.get());
  for (auto& pool : destroyed_) visit(pool.get());
}

bool StreamPools::IsDone(Idle* idle) {
  if (idle->marker.event == nullptr) return true;
  if (events_.Query(idle->marker) == CUDA_ERROR_NOT_READY) return false;
  events_.Return(std::exchange(idle->marker, Marker()));
  return true;
}

void StreamPools::AddIdle(Pool* pool, uint64_t bytes, const Idle& idle) {
  pool->idle.emplace(bytes, idle);
  idle_.fetch_add(1, std::memory_order_relaxed);
}

StreamPools::IdleBlock StreamPools::Drop(Pool* pool, IdleBlock block) {
  if (block->second.marker.event != nullptr) events_.Return(block->second.marker);
  idle_.fetch_sub(1, std::memory_order_relaxed);
  return pool->idle.erase(block);
}

// The smallest that fits and is not much too large.
bool StreamPools::Reuse(const std::shared_ptr<Pool>& pool, uint64_t bytes, Place place,
                        CUdeviceptr* pointer) {
  const uint64_t rounded = Rounded(bytes), most = rounded + rounded / 4;
  for (auto block = pool->idle.lower_bound(rounded);
       block != pool->idle.end() && block->first <= most; ++block) {
    Idle& idle = block->second;
    const bool in_order = HasOneOrder(place.stream) && idle.freed.stream == place.stream &&
                          idle.freed.context == place.context;
    if (!in_order && !IsDone(&idle)) continue;
    *pointer = idle.pointer;
    live_[*pointer] = {pool, bytes, block->first, idle.context};
    pool->used.Grow(block->first);
    Drop(pool.get(), block);
    return true;
  }
  return false;
}

void StreamPools::Take(Pool* pool, uint64_t most, std::vector<CUdeviceptr>* taken) {
  for (auto block = pool->idle.begin(); block != pool->idle.end() && pool->reserved.now > most;) {
    if (!IsDone(&block->second)) {
      ++block;
      continue;
    }
    taken->push_back(block->second.pointer);
    pool->reserved.now -= block->first;
    block = Drop(pool, block);
  }
}

std::vector<CUdeviceptr> StreamPools::TakeOfAll(bool all) {
  std::vector<CUdeviceptr> taken;
  EachPool([&](Pool* pool)
               REQUIRES_LOCK(mutex_) { Take(pool, all ? 0 : pool->release_threshold, &taken); });
  std::erase_if(destroyed_, [](const auto& pool) { return pool->reserved.now == 0; });
  return taken;
}

void StreamPools::GiveBack(const std::vector<CUdeviceptr>& blocks) const {
  for (const CUdeviceptr pointer : blocks) source_.free(pointer);
}

void StreamPools::Shrink() {
  std::vector<CUdeviceptr> taken;
  {
    MutexLock lock(mutex_);
    taken = TakeOfAll(false);
  }
  GiveBack(taken);
}

bool StreamPools::GiveWay() {
  std::vector<CUdeviceptr> taken;
  {
    MutexLock lock(mutex_);
    taken = TakeOfAll(true);
  }
  GiveBack(taken);
  return !taken.empty();
}

bool StreamPools::MakeRoom(Pool* pool, uint64_t bytes, std::vector<CUdeviceptr>* taken) {
  if (pool->max_bytes == 0) return true;
  if (bytes > pool->max_bytes) return false;
  Take(pool, pool->max_bytes - bytes, taken);
  return pool->reserved.now <= pool->max_bytes - bytes;
}

std::optional<CUresult> StreamPools::Allocate(CUmemoryPool handle, uint64_t bytes, Place place,
                                              CUdeviceptr* pointer) {
  const uint64_t rounded = Rounded(bytes);
  std::shared_ptr<Pool> pool;
  std::vector<CUdeviceptr> taken;
  bool room = false;
  {
    MutexLock lock(mutex_);
    pool = PoolOf(handle);
    if (pool == nullptr || pool->drivers) return std::nullopt;
    if (rounded != 0 && Reuse(pool, bytes, place, pointer)) return CUDA_SUCCESS;
    room = rounded != 0 && MakeRoom(pool.get(), rounded, &taken);
    if (room) pool->reserved.Grow(rounded);
  }
  GiveBack(taken);
  if (!room) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr made = 0;
  CUresult result = source_.allocate(rounded, place.context, &made);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && GiveWay()) {
    result = source_.allocate(rounded, place.context, &made);
  }
  MutexLock lock(mutex_);
  if (result != CUDA_SUCCESS) {
    pool->reserved.now -= rounded;
    return result;
  }
  live_[made] = {pool, bytes, rounded, place.context};
  pool->used.Grow(rounded);
  *pointer = made;
  return CUDA_SUCCESS;
}

std::optional<CUresult> StreamPools::Free(CUdeviceptr pointer, Place place) {
  MutexLock lock(mutex_);
  const auto live = live_.find(pointer);
  if (live == live_.end()) return std::nullopt;
  Marker marker;
  if (const CUresult result = events_.Record(place.context, place.stream, &marker);
      result != CUDA_SUCCESS) {
    return result;
  }
  const auto [pool, asked, bytes, context] = live->second;
  live_.erase(live);
  pool->used.now -= bytes;
  AddIdle(pool.get(), bytes, {pointer, context, place, marker});
  return CUDA_SUCCESS;
}

void StreamPools::Forget(CUdeviceptr pointer) {
  MutexLock lock(mutex_);
  const auto live = live_.find(pointer);
  if (live == live_.end()) return;
  live->second.pool->used.now -= live->second.bytes;
  live->second.pool->reserved.now -= live->second.bytes;
  live_.erase(live);
}

std::optional<StreamPools::Entry> StreamPools::Find(CUdeviceptr pointer) const {
  MutexLock lock(mutex_);
  const auto live = live_.find(pointer);
  if (live == live_.end()) return std::nullopt;
  return Entry{live->second.pool->handle, live->second.asked};
}

void StreamPools::StreamEnds(CUstream stream) {
  if (idle_.load(std::memory_order_relaxed) == 0) return;
  MutexLock lock(mutex_);
  EachPool([stream](Pool* pool) {
    for (auto& [bytes, idle] : pool->idle) {
      if (idle.freed.stream == stream) idle.freed = {};
    }
  });
}

void StreamPools::ContextEnds(CUcontext context) {
  MutexLock lock(mutex_);
  EachPool([&](Pool* pool) REQUIRES_LOCK(mutex_) {
    for (auto block = pool->idle.begin(); block != pool->idle.end();) {
      Idle& idle = block->second;
      // The driver has waited for the context's work, and its events go with it.
      if (idle.marker.context == context) idle.marker = {};
      if (idle.freed.context == context) idle.freed = {};
      if (idle.context != context) {
        ++block;
        continue;
      }
      pool->reserved.now -= block->first;
      block = Drop(pool, block);
    }
  });
  std::erase_if(live_, [context](const auto& entry) {
    const Live& live = entry.second;
    if (live.context != context) return false;
    live.pool->used.now -= live.bytes;
    live.pool->reserved.now -= live.bytes;
    return true;
  });
  events_.RemoveContext(context);
}

void StreamPools::Created(CUmemoryPool handle, const CUmemPoolProps& properties) {
  const bool plain = properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
                     properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                     properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                     properties.location.id == device_;
  if (!plain) return;
  MutexLock lock(mutex_);
  pools_[handle] = std::make_shared<Pool>(handle, properties.maxSize);
}

void StreamPools::Destroyed(CUmemoryPool handle) {
  {
    MutexLock lock(mutex_);
    const auto known = pools_.find(handle);
    if (known == pools_.end()) return;
    known->second->release_threshold = 0;
    destroyed_.push_back(std::move(known->second));
    pools_.erase(known);
  }
  Shrink();
}

void StreamPools::Shared(CUmemoryPool handle) {
  MutexLock lock(mutex_);
  if (const auto pool = PoolOf(handle)) pool->drivers = true;
}

void StreamPools::Set(CUmemoryPool handle, CUmemPool_attribute attribute, const void* value) {
  MutexLock lock(mutex_);
  const auto pool = PoolOf(handle);
  if (pool == nullptr) return;
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    std::memcpy(&pool->release_threshold, value, sizeof(pool->release_threshold));
  } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
    pool->reserved.high = pool->reserved.now;
  } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
    pool->used.high = pool->used.now;
  }
}

void StreamPools::Add(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) const {
  MutexLock lock(mutex_);
  const auto known = pools_.find(handle);
  if (known == pools_.end()) return;
  const Pool& pool = *known->second;
  uint64_t more = 0;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      more = pool.reserved.now;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      more = pool.reserved.high;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      more = pool.used.now;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      more = pool.used.high;
      break;
    default:
      return;
  }
  uint64_t drivers = 0;
  std::memcpy(&drivers, value, sizeof(drivers));
  more += drivers;
  std::memcpy(value, &more, sizeof(more));
}

void StreamPools::TrimTo(CUmemoryPool handle, uint64_t bytes) {
  std::vector<CUdeviceptr> taken;
  {
    MutexLock lock(mutex_);
    if (const auto pool = PoolOf(handle)) Take(pool.get(), bytes, &taken);
  }
  GiveBack(taken);
}

}  // namespace tandem::shim
