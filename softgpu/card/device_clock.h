// DeviceClock: what time it is on a device, and how much of it work takes.
//
// By the real clock it is the machine's monotonic time, and work takes as long as it takes.
//
// By the model clock work takes the time that its instructions and bytes are worth. It is placed on
// a timeline that all processes of the device share: engine by engine, from the moment when what it
// comes after has ended and the engine is free. The timeline runs with the machine's time, except
// that it stands still where the host is late: work that is done after its place on the timeline
// has passed moves the lag of the clock. So the host's speed and load are not to be seen in it. A
// process that is stopped holds the clock up by 200 ms at most.
//
// A task on the timeline: the scheduler puts the moment from which it may run into
// TaskTime::cursor() of its thread, the work moves the cursor to the task's end, and what comes
// after the task starts from there.
//
// Threading: any thread, any process.
//
// Invariant: within a process Now() never goes back.
#pragma once

#include <atomic>

#include "softgpu/card/shared_page.h"
#include "src/base/time.h"

namespace tandem::soft {

// What an instruction of a warp, and a byte copied or filled inside the device, are worth. The
// interpreter is several times faster on an idle machine.
inline constexpr int64_t kModelInstructionNs = 50;
inline constexpr uint64_t kModelDeviceBytesPerSecond = 4'000'000'000;

class TaskTime {
 public:
  static Instant& cursor();  // of the calling thread
};

class DeviceClock {
 public:
  explicit DeviceClock(SharedPage* page) : page_(page) {}

  bool model() const { return page_->model_clock != 0; }
  Instant Now();

  // The clock of another card. REQUIRES: no other call is under way.
  void Use(SharedPage* page) { page_ = page; }

  // The rest is for the model clock.

  // When work could begin on an engine that may begin at `earliest`.
  Instant FreeAt(SharedEngine engine, Instant earliest) const;
  // Gives work of that length its place, at FreeAt() or later; its end.
  Instant Reserve(SharedEngine engine, Instant earliest, Duration length);
  // Waits until it is `when`; a timer's lateness early.
  void SleepUntil(Instant when) const;
  // Work that ends at `end` has just been done.
  void Done(Instant end);

 private:
  SharedPage* page_;
  std::atomic<int64_t> latest_ns_ = 0;  // that Now() gave
};

}  // namespace tandem::soft
