// HandleTable: from the opaque handles that programs hold to our objects. A handle is a number
// that is never used twice, in any table (but for a device's primary context), so a stale, foreign
// or invented one is simply not found; nothing that a program hands in is ever followed as a
// pointer.
//
// Threading: any thread. Objects are shared_ptrs, because one thread may destroy a handle while
// another is using the object.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/mutex.h"

namespace tandem::soft {

// Not small: a few small numbers are handles with a meaning of their own.
inline uint64_t NewHandle() {
  static std::atomic<uint64_t> next = 0x10000;
  return next.fetch_add(16);
}

template <typename Pointer, typename T>
class HandleTable {
 public:
  Pointer Insert(std::shared_ptr<T> object) {
    const uint64_t handle = NewHandle();
    InsertAs(handle, std::move(object));
    return reinterpret_cast<Pointer>(handle);
  }

  // In place of what the handle stood for until now, if anything.
  void InsertAs(uint64_t handle, std::shared_ptr<T> object) {
    MutexLock lock(mutex_);
    objects_.insert_or_assign(handle, std::move(object));
  }

  // Null if there is none.
  std::shared_ptr<T> Find(Pointer handle) const {
    MutexLock lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uint64_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }

  // Takes it out; of two threads, one gets the object.
  std::shared_ptr<T> Take(Pointer handle) {
    MutexLock lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uint64_t>(handle));
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  template <typename Predicate>
  bool Any(Predicate predicate) const {
    MutexLock lock(mutex_);
    return std::any_of(objects_.begin(), objects_.end(),
                       [&](const auto& entry) { return predicate(*entry.second); });
  }

  template <typename Predicate>
  void EraseIf(Predicate predicate) {
    std::vector<std::shared_ptr<T>> erased;  // destroyed after the lock is released
    MutexLock lock(mutex_);
    for (auto entry = objects_.begin(); entry != objects_.end();) {
      if (predicate(*entry->second)) {
        erased.push_back(std::move(entry->second));
        entry = objects_.erase(entry);
      } else {
        ++entry;
      }
    }
  }

 private:
  mutable Mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<T>> objects_ GUARDED_BY(mutex_);
};

}  // namespace tandem::soft
