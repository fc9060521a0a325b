// FakeDriver: a double of the real driver for tests, with one device whose memory is this process's
// own: reservations are address ranges without access, physical memory is memfds mapped into them,
// so touching what is not mapped faults. Work is done at once; events can be held back.
//
// Threading: any thread. One at a time: its functions are plain functions, as the table wants them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/cuda/real_driver.h"

namespace tandem::shim {

// What most tests have.
inline constexpr Bytes kCard = MiB(64);
inline constexpr Bytes kChunk = MiB(4);

class FakeDriver {
 public:
  explicit FakeDriver(uint64_t card_bytes);
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  const cuda::RealDriver& table() const { return table_; }
  // What it lacks is a test's to fill in, before anything calls it.
  cuda::RealDriver& table() { return table_; }
  CUcontext context() { return reinterpret_cast<CUcontext>(&context_object_); }

  // The nth call from now fails; 0: none.
  void FailCreate(int nth) { Set(&fail_create_, nth); }
  // No more memory of the host's than that; and how often there was none.
  void LimitHost(Bytes most) {
    MutexLock lock(mutex_);
    host_limit_ = most.count;
  }
  int host_refusals() const {
    MutexLock lock(mutex_);
    return host_refusals_;
  }
  void FailMap(int nth) { Set(&fail_map_, nth); }
  void FailMaps(int first, int count) {
    MutexLock lock(mutex_);
    fail_map_ = first;
    fail_maps_more_ = count - 1;
  }
  void FailCopy(int nth, CUresult with) {
    MutexLock lock(mutex_);
    fail_copy_ = nth;
    copy_error_ = with;
  }
  // The context is on that device; others are on the first.
  void Place(CUcontext context, CUdevice device) {
    MutexLock lock(mutex_);
    devices_[context] = device;
  }
  // From now on it runs the kernel of fingerprint.h, which takes that long each time. Others do
  // nothing.
  void RunKernels(float milliseconds);
  int launches() const {
    MutexLock lock(mutex_);
    return launches_;
  }
  // Calls in this context answer with a sticky error.
  void Break(CUcontext context) {
    MutexLock lock(mutex_);
    broken_.insert(context);
  }
  // It stays current where it is. How often it was made current after that: never, if all is well.
  void Destroy(CUcontext context) {
    MutexLock lock(mutex_);
    destroyed_.insert(context);
  }
  int pushed_destroyed() const {
    MutexLock lock(mutex_);
    return pushed_destroyed_;
  }
  // Is called within each copy from the card to the card.
  void DuringMove(std::function<void()> during) {
    MutexLock lock(mutex_);
    during_move_ = std::move(during);
  }
  // Copies wait, in their order, until they are let through; a wait for a copy lets it through.
  // Without this they are done at once.
  void HoldCopies() {
    MutexLock lock(mutex_);
    hold_copies_ = true;
  }
  void LetCopies(size_t count) {
    MutexLock lock(mutex_);
    PerformCopies(performed_ + count);
  }
  // Events do not come to pass while this is set.
  void HoldEvents(bool hold) {
    MutexLock lock(mutex_);
    hold_events_ = hold;
  }

  // Streams are being captured while this is set.
  void Capture(bool capture) {
    MutexLock lock(mutex_);
    capturing_ = capture;
  }

  uint64_t used() const {
    MutexLock lock(mutex_);
    return used_;
  }
  // What devices may reach of the host.
  uint64_t host_used() const {
    MutexLock lock(mutex_);
    return host_used_;
  }
  int copies() const {
    MutexLock lock(mutex_);
    return copies_;
  }
  int events() const {
    MutexLock lock(mutex_);
    return events_;
  }
  // Calls that wait for a whole context.
  int context_waits() const {
    MutexLock lock(mutex_);
    return context_waits_;
  }
  // Questions whether an event has come to pass.
  int queries() const {
    MutexLock lock(mutex_);
    return queries_;
  }
  // Streams told to wait for an event.
  int waits() const {
    MutexLock lock(mutex_);
    return waits_;
  }
  // Events put on the legacy stream.
  int legacy_records() const {
    MutexLock lock(mutex_);
    return legacy_records_;
  }
  // Events put on a stream that was being captured.
  int captured_records() const {
    MutexLock lock(mutex_);
    return captured_records_;
  }
  // Memory that this device cannot be let at.
  void Refuse(CUdevice user) {
    MutexLock lock(mutex_);
    refused_users_.insert(user);
  }
  // Bytes of the host's memory.
  uint64_t registered() const {
    MutexLock lock(mutex_);
    uint64_t sum = 0;
    for (const auto& [begin, bytes] : registered_) sum += bytes;
    return sum;
  }
  // Which devices may use the memory that is mapped there.
  std::set<CUdevice> UsersOf(CUdeviceptr address) const {
    MutexLock lock(mutex_);
    const auto found = users_.find(address);
    return found == users_.end() ? std::set<CUdevice>() : found->second;
  }
  bool IsMapped(CUdeviceptr address) const {
    MutexLock lock(mutex_);
    return mappings_.count(address) != 0;
  }

 private:
  struct Physical {
    int fd;
    uint64_t bytes;
    int mappings = 0;
    bool released = false;
    bool imported = false;  // counted where it was made
    bool of_host = false;
  };

  void Set(int* counter, int nth) {
    MutexLock lock(mutex_);
    *counter = nth;
  }
  static bool Due(int* counter) { return *counter > 0 && --*counter == 0; }
  void FillMemory();
  void FillMappings();
  void FillAccess();
  void FillSharing();
  void FillWork();
  void FillContexts();
  CUresult Health() const REQUIRES_LOCK(mutex_);  // of the calling thread's context
  CUresult Copy(void* to, const void* from, size_t bytes);
  void PerformCopies(size_t until) REQUIRES_LOCK(mutex_);
  void Drop(CUmemGenericAllocationHandle handle) REQUIRES_LOCK(mutex_);

  static FakeDriver* current;
  // The program's threads have the driver's context; the agent's, which is called "tandem", has
  // none.
  static CUcontext Current();

  cuda::RealDriver table_;
  const uint64_t card_bytes_;
  int context_object_ = 0;
  mutable Mutex mutex_;
  uint64_t used_ = 0;
  uint64_t host_used_ = 0;
  uint64_t host_limit_ = ~uint64_t{0};
  int host_refusals_ = 0;
  int fail_create_ = 0;
  int fail_map_ = 0;
  int fail_maps_more_ = 0;  // right after that one
  int fail_copy_ = 0;
  CUresult copy_error_ = CUDA_SUCCESS;
  std::function<void()> during_move_;
  bool hold_events_ = false;
  bool hold_copies_ = false;
  struct HeldCopy {
    void* to;
    const void* from;
    size_t bytes;
  };
  std::deque<HeldCopy> held_copies_;
  size_t performed_ = 0;                     // of the copies that were held
  std::map<CUevent, size_t> copies_before_;  // the event
  bool capturing_ = false;
  std::set<CUcontext> broken_;
  std::set<CUcontext> destroyed_;
  int pushed_destroyed_ = 0;
  std::map<CUcontext, CUdevice> devices_;
  int copies_ = 0;
  int launches_ = 0;
  float kernel_ms_ = 0;
  int events_ = 0;  // that were created
  int context_waits_ = 0;
  int queries_ = 0;
  int legacy_records_ = 0;
  int waits_ = 0;
  int captured_records_ = 0;
  uint64_t next_ = 1;
  std::map<uint64_t, uint64_t> reservations_;
  std::map<uint64_t, Physical> physical_;
  std::map<uint64_t, uint64_t> mappings_;  // address → handle
  std::map<uint64_t, std::set<CUdevice>> users_;
  std::set<CUdevice> refused_users_;
  std::map<void*, uint64_t> registered_;
};

}  // namespace tandem::shim
