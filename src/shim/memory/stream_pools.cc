#include "src/shim/memory/stream_pools.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <iterator>
#include <utility>

#include "src/base/time.h"
#include "src/shim/driver/in_context.h"
#include "src/shim/memory/reclaim.h"
#include "src/shim/swap/device_memory.h"

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

void StreamPools::AddIdle(Pool* pool, uint64_t bytes, Idle idle) {
  idle.time = ++frees_;
  pool->idle.emplace(bytes, idle);
  idle_ids_.insert(idle.block.id);
  idle_.fetch_add(1, std::memory_order_relaxed);
}

StreamPools::IdleBlock StreamPools::Drop(Pool* pool, IdleBlock block) {
  if (block->second.marker.event != nullptr) events_.Return(block->second.marker);
  idle_ids_.erase(block->second.block.id);
  idle_.fetch_sub(1, std::memory_order_relaxed);
  return pool->idle.erase(block);
}

// Puts what the stream does from now on behind the work that used the block.
bool StreamPools::Orders(Place place, const Idle& idle) const {
  const InContext scope(real_, place.context);
  return scope.result() == CUDA_SUCCESS &&
         real_->cuStreamWaitEvent(place.stream, idle.marker.event, 0) == CUDA_SUCCESS;
}

// The smallest that fits. Of another context's blocks none: they go with it.
bool StreamPools::Reuse(const std::shared_ptr<Pool>& pool, uint64_t bytes, uint64_t most,
                        Place place, bool wait, CUdeviceptr* pointer) {
  for (auto block = pool->idle.lower_bound(Rounded(bytes));
       block != pool->idle.end() && block->first <= most; ++block) {
    Idle& idle = block->second;
    if (idle.context != place.context) continue;
    const bool in_order = HasOneOrder(place.stream) && idle.freed.stream == place.stream &&
                          idle.freed.context == place.context;
    if (!in_order && !IsDone(&idle) && !(wait && Orders(place, idle))) continue;
    *pointer = idle.block.pointer;
    live_[*pointer] = {pool, idle.block.id, bytes, block->first, idle.context};
    pool->used.Grow(block->first);
    Drop(pool.get(), block);
    return true;
  }
  return false;
}

void StreamPools::Take(Pool* pool, uint64_t most, std::vector<BlockName>* taken) {
  for (auto block = pool->idle.begin(); block != pool->idle.end() && pool->reserved.now > most;) {
    if (!IsDone(&block->second)) {
      ++block;
      continue;
    }
    taken->push_back(block->second.block);
    pool->reserved.now -= block->first;
    block = Drop(pool, block);
  }
}

std::vector<StreamPools::BlockName> StreamPools::TakeOfAll(bool all) {
  std::vector<BlockName> taken;
  EachPool([&](Pool* pool) REQUIRES_LOCK(mutex_) {
    Take(pool, all || pool->destroyed ? 0 : pool->release_threshold, &taken);
  });
  std::erase_if(destroyed_, [](const auto& pool) { return pool->reserved.now == 0; });
  return taken;
}

void StreamPools::GiveBack(const std::vector<BlockName>& blocks) const {
  for (const BlockName& block : blocks) source_.free(block);
}

void StreamPools::Shrink() {
  std::vector<BlockName> taken;
  {
    MutexLock lock(mutex_);
    taken = TakeOfAll(false);
  }
  GiveBack(taken);
}

bool StreamPools::GiveWay(bool wait) {
  const timespec pause{0, Microseconds(50).ns};
  bool any = false;
  uint64_t began = 0;
  for (;;) {
    std::vector<BlockName> taken;
    bool pending = false;
    {
      MutexLock lock(mutex_);
      if (began == 0) began = frees_;
      taken = TakeOfAll(true);
      EachPool([&](Pool* pool) {
        for (const auto& [bytes, idle] : pool->idle) pending |= idle.time <= began;
      });
    }
    GiveBack(taken);
    any |= !taken.empty();
    if (!wait || !pending) return any;
    nanosleep(&pause, nullptr);  // no event can be waited for without the lock that keeps it alive
  }
}

bool StreamPools::MakeRoom(Pool* pool, uint64_t bytes, std::vector<BlockName>* taken) {
  if (pool->max_bytes == 0) return true;
  if (bytes > pool->max_bytes) return false;
  Take(pool, pool->max_bytes - bytes, taken);
  return pool->reserved.now <= pool->max_bytes - bytes;
}

std::optional<CUresult> StreamPools::Allocate(CUmemoryPool handle, uint64_t bytes, Place place,
                                              CUdeviceptr* pointer) {
  const uint64_t rounded = Rounded(bytes);
  std::shared_ptr<Pool> pool;
  std::vector<BlockName> taken;
  bool room = false;
  {
    MutexLock lock(mutex_);
    pool = PoolOf(handle);
    if (pool == nullptr || pool->drivers) return std::nullopt;
    if (rounded == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    asked_.store(true, std::memory_order_release);
    const uint64_t not_much_more = rounded + rounded / 4;
    if (Reuse(pool, bytes, not_much_more, place, false, pointer)) return CUDA_SUCCESS;
    room = MakeRoom(pool.get(), rounded, &taken);
    if (room) pool->reserved.now += rounded;
  }
  GiveBack(taken);
  if (room && AllocateNew(pool, bytes, place, pointer) == CUDA_SUCCESS) return CUDA_SUCCESS;
  // Whatever is there, behind the work before if need be.
  MutexLock lock(mutex_);
  if (Reuse(pool, bytes, UINT64_MAX, place, true, pointer)) return CUDA_SUCCESS;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// REQUIRES: the bytes are reserved in the pool.
CUresult StreamPools::AllocateNew(const std::shared_ptr<Pool>& pool, uint64_t bytes, Place place,
                                  CUdeviceptr* pointer) {
  const uint64_t rounded = Rounded(bytes);
  BlockName made;
  const CUresult result =
      RetryAfter([this] { return GiveWay(false); },
                 [&] { return source_.allocate(rounded, place.context, &made); });
  MutexLock lock(mutex_);
  pool->reserved.now -= rounded;
  if (result != CUDA_SUCCESS) return result;
  pool->reserved.Grow(rounded);
  pool->used.Grow(rounded);
  live_[made.pointer] = {pool, made.id, bytes, rounded, place.context};
  *pointer = made.pointer;
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
  const Live was = std::move(live->second);
  live_.erase(live);
  was.pool->used.now -= was.bytes;
  AddIdle(was.pool.get(), was.bytes, {{pointer, was.id}, was.context, place, marker});
  return CUDA_SUCCESS;
}

void StreamPools::Forget(const BlockName& block) {
  if (!HaveBlocks()) return;
  MutexLock lock(mutex_);
  const auto live = live_.find(block.pointer);
  if (live == live_.end() || live->second.id != block.id) return;
  live->second.pool->used.now -= live->second.bytes;
  live->second.pool->reserved.now -= live->second.bytes;
  live_.erase(live);
}

std::optional<StreamPools::Entry> StreamPools::Find(const BlockName& block) const {
  if (!HaveBlocks()) return std::nullopt;
  MutexLock lock(mutex_);
  if (idle_ids_.count(block.id) != 0) return Entry{.idle = true};
  const auto live = live_.find(block.pointer);
  if (live == live_.end() || live->second.id != block.id) return std::nullopt;
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

bool StreamPools::Created(CUmemoryPool handle, const CUmemPoolProps& properties) {
  const bool plain = properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
                     properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                     properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                     properties.location.id == device_;
  if (!plain) return false;
  MutexLock lock(mutex_);
  pools_[handle] = std::make_shared<Pool>(handle, properties.maxSize);
  return true;
}

void StreamPools::Destroying(CUmemoryPool handle) {
  MutexLock lock(mutex_);
  const auto known = pools_.find(handle);
  if (known == pools_.end()) return;
  known->second->destroyed = true;
  destroyed_.push_back(std::move(known->second));
  pools_.erase(known);
}

void StreamPools::NotDestroyed(CUmemoryPool handle) {
  MutexLock lock(mutex_);
  const auto pool = std::find_if(destroyed_.rbegin(), destroyed_.rend(),
                                 [handle](const auto& each) { return each->handle == handle; });
  if (pool == destroyed_.rend()) return;
  (*pool)->destroyed = false;
  pools_[handle] = *pool;
  destroyed_.erase(std::next(pool).base());
}

bool StreamPools::Shared(CUmemoryPool handle, bool* blocks) {
  MutexLock lock(mutex_);
  const auto pool = PoolOf(handle);
  if (pool == nullptr) return false;
  pool->drivers = true;
  *blocks = pool->reserved.now != 0;
  return true;
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
  std::vector<BlockName> taken;
  {
    MutexLock lock(mutex_);
    if (const auto pool = PoolOf(handle)) Take(pool.get(), bytes, &taken);
  }
  GiveBack(taken);
}

}  // namespace tandem::shim
