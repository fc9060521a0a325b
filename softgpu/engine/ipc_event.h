// IpcEvent: the state of an event that several processes know: for each process, by its slot at the
// device, how often it has recorded the event and which of these records are reached.
//
// A handle names the file by the process that made it and its number there; the opening process
// reaches it by /proc, as for memory (see IpcMemory).
//
// Threading: any thread of any process. No lock: a process may stop or die at any point.
//
// Invariants:
// 1. A mark (the process, and the number of its record) once reached stays reached.
// 2. A mark of a process that is gone counts as reached: no waiter waits for a dead process.
// 3. A process's record number n comes after its own number n - kRing, so that the places of the
//    ring are written in order.
// 4. A process has one IpcEvent for each file, however often it opens the handle: for an own mark
//    that is not reached it finds the task that reaches it. (That task keeps the IpcEvent.)
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "softgpu/card/kept_fd.h"
#include "softgpu/card/shared_device.h"
#include "softgpu/engine/scheduler.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

class IpcEvent {
 public:
  static constexpr uint64_t kRing = 64;

  // One recording.
  struct Mark {
    int slot = 0;
    uint32_t pid = 0;
    uint64_t number = 0;
  };

  // Null if the system refuses. REQUIRES: the device outlives the event.
  static std::shared_ptr<IpcEvent> Create(SharedDevice* device, const CUuuid& uuid);
  // The event that another process's handle names; the same object each time, as long as it is in
  // use. `find` returns the process's device of a UUID, or null.
  using FindDevice = std::function<SharedDevice*(const CUuuid& uuid)>;
  static CUresult Open(const CUipcEventHandle& handle, const FindDevice& find,
                       std::shared_ptr<IpcEvent>* event);
  ~IpcEvent();
  IpcEvent(const IpcEvent&) = delete;
  IpcEvent& operator=(const IpcEvent&) = delete;

  CUresult Export(CUipcEventHandle* handle) const;

  // Announces a record by this process. `submit` is to submit the task that reaches it, after
  // `after`, and tells where that went.
  using Submit = std::function<Dependency(const Mark& mark, std::vector<Dependency> after)>;
  void Record(const Submit& submit);
  void Reach(const Mark& mark);

  // The latest record of all processes; nothing if there was none.
  std::optional<Mark> Latest() const;
  bool Reached(const Mark& mark) const;
  // Asks the system whether the process that recorded is gone; not cheap.
  bool Abandoned(const Mark& mark) const;
  // Where to wait for a record that this process made; nothing if another did.
  std::optional<Dependency> TaskOf(const Mark& mark);

 private:
  struct Place {
    std::atomic<uint32_t> pid;        // of the process that has the slot, if it recorded
    std::atomic<uint64_t> announced;  // records so far
    std::atomic<uint64_t> reached[kRing];
  };
  struct Head {
    uint64_t magic = 0;
    CUuuid device = {};  // the slots are those of this device
  };
  struct Page {
    Head head;
    std::atomic<uint64_t> latest;  // slot << kNumberBits | number; zero: none
    Place places[kSlotCount];
  };
  static constexpr int kNumberBits = 48;

  IpcEvent(UniqueFd fd, Page* page, SharedDevice* device);
  static Page* Map(int fd);
  // That of the file if this process has it, else a new one; null if the system refuses.
  static std::shared_ptr<IpcEvent> Of(UniqueFd fd, SharedDevice* device);
  Mark Announce();

  const KeptFd file_;
  Page* const page_;
  SharedDevice* const device_;
  Mutex mutex_;  // one record of this process at a time
  Dependency submitted_[kRing] GUARDED_BY(mutex_);
};

}  // namespace tandem::soft
