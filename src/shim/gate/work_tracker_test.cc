#include "src/shim/gate/work_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "src/base/bytes.h"
#include "src/shim/driver/in_context.h"
#include "src/shim/gate/gate.h"
#include "src/shim/testing/fake_driver.h"

namespace tandem::shim {
namespace {

TEST(WorkTrackerTest, WaitsForMarkedStreamsUntilForgotten) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  WorkTracker tracker(&driver.table());
  EXPECT_EQ(tracker.Begin(0), CUDA_SUCCESS);
  driver.HoldEvents(true);
  EXPECT_EQ(tracker.Poll(0), CUDA_SUCCESS);  // nothing was submitted
  ThreadSlot* const slot = gate.Enter();
  const uint64_t before = Gate::Submits();
  tracker.Note(slot, reinterpret_cast<CUstream>(0x5000));
  tracker.Note(slot, nullptr);
  Gate::Leave(slot);
  EXPECT_EQ(Gate::Submits(), before + 2);
  EXPECT_EQ(tracker.Begin(0), CUDA_SUCCESS);
  EXPECT_EQ(tracker.Poll(0), CUDA_ERROR_NOT_READY);
  driver.HoldEvents(false);
  EXPECT_EQ(tracker.Poll(0), CUDA_SUCCESS);
  tracker.Forget();
  driver.HoldEvents(true);
  EXPECT_EQ(tracker.Begin(0), CUDA_SUCCESS);
  EXPECT_EQ(tracker.Poll(0), CUDA_SUCCESS);
}

TEST(WorkTrackerTest, AMarkHoldsForOneStreamUntilForgotten) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  const auto stream = reinterpret_cast<CUstream>(0x5000);
  ThreadSlot* const slot = gate.Enter();
  {
    WorkTracker tracker(&driver.table());
    EXPECT_FALSE(WorkTracker::NoteMarked(slot, stream));
    tracker.Note(slot, stream);
    const uint64_t before = Gate::Submits();
    EXPECT_TRUE(WorkTracker::NoteMarked(slot, stream));
    EXPECT_FALSE(WorkTracker::NoteMarked(slot, nullptr));
    EXPECT_EQ(Gate::Submits(), before + 1);
    tracker.Forget();
    EXPECT_FALSE(WorkTracker::NoteMarked(slot, stream));
    tracker.Note(slot, stream);
    EXPECT_TRUE(WorkTracker::NoteMarked(slot, stream));
  }
  const WorkTracker other(&driver.table());
  EXPECT_FALSE(WorkTracker::NoteMarked(slot, stream));
  Gate::Leave(slot);
}

TEST(WorkTrackerTest, TryingAgainNeedsNoMoreEvents) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  WorkTracker tracker(&driver.table());
  ThreadSlot* const slot = gate.Enter();
  tracker.Note(slot, reinterpret_cast<CUstream>(0x6000));
  Gate::Leave(slot);
  driver.HoldEvents(true);
  EXPECT_EQ(tracker.Begin(0), CUDA_SUCCESS);
  const int events = driver.events();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(tracker.Begin(0), CUDA_SUCCESS);
  EXPECT_EQ(driver.events(), events);
  EXPECT_EQ(tracker.Poll(0), CUDA_ERROR_NOT_READY);
}

TEST(WorkTrackerTest, SubmissionsWaitWhileTheWindowIsFullAndSomebodyElseWaits) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  gate.Meter(true);
  WorkTracker tracker(&driver.table());
  tracker.SetWindow(Milliseconds(10));
  std::atomic<int> submitted{0};
  driver.HoldEvents(true);
  std::thread program([&] {
    for (int i = 0; i < 40; ++i) {
      tracker.AwaitWindow(gate, nullptr);
      ++submitted;
      submitted.notify_all();
    }
  });
  for (int now = 0; now < 8; submitted.wait(now), now = submitted) {
  }
  EXPECT_LT(submitted, 40);  // the rest waits, each for at most a moment
  gate.Meter(false);
  program.join();
  EXPECT_EQ(submitted, 40);
}

TEST(WorkTrackerTest, BrokenContextsAreFoundAndForgotten) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  WorkTracker tracker(&driver.table());
  int other = 0;
  const auto broken = reinterpret_cast<CUcontext>(&other);
  tracker.AddContext(broken);
  tracker.AddContext(driver.context());
  ThreadSlot* const slot = gate.Enter();
  tracker.Note(slot, nullptr);
  Gate::Leave(slot);
  EXPECT_TRUE(tracker.TakeBroken(0).empty());
  driver.Break(broken);
  EXPECT_EQ(tracker.Begin(0), CUDA_SUCCESS);  // the default streams come last
  EXPECT_EQ(tracker.Poll(0), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(tracker.TakeBroken(0), std::vector{broken});
  EXPECT_EQ(tracker.AnyContext(0), driver.context());
  EXPECT_EQ(tracker.Begin(0), CUDA_SUCCESS);
}

// The driver frees a destroyed context that is made current and no longer, though it is still
// current in this thread.
TEST(WorkTrackerTest, LeavesADestroyedContextAlone) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  WorkTracker tracker(&driver.table());
  int object = 0;
  const auto doomed = reinterpret_cast<CUcontext>(&object);
  const InContext scope(&driver.table(), doomed);
  tracker.AddContext(doomed);
  tracker.RemoveContext(doomed);
  driver.Destroy(doomed);
  ThreadSlot* const slot = gate.Enter();
  tracker.Note(slot, nullptr);
  Gate::Leave(slot);
  EXPECT_EQ(tracker.AnyContext(0), nullptr);
  EXPECT_EQ(tracker.Begin(0), CUDA_SUCCESS);
  EXPECT_EQ(tracker.Poll(0), CUDA_SUCCESS);
  EXPECT_EQ(driver.pushed_destroyed(), 0);
}

// A program may wait for one stream before it lets the work of another go on. An event on the
// legacy stream would make the first wait for the second, for ever.
TEST(WorkTrackerTest, TiesNoStreamToTheWorkOfAnother) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  WorkTracker tracker(&driver.table());
  tracker.AddContext(driver.context());
  ThreadSlot* const slot = gate.Enter();
  tracker.Note(slot, reinterpret_cast<CUstream>(0x1000));
  tracker.Note(slot, reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD_VALUE));
  Gate::Leave(slot);
  driver.HoldEvents(true);
  EXPECT_EQ(tracker.Begin(0), CUDA_SUCCESS);
  EXPECT_EQ(tracker.Poll(0), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(driver.legacy_records(), 0);
  driver.HoldEvents(false);
  EXPECT_EQ(tracker.Poll(0), CUDA_SUCCESS);
  EXPECT_EQ(driver.legacy_records(), 1);  // the thread's own stream has no handle for us
}

TEST(WorkTrackerTest, DestroyedStreamsStayCovered) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  WorkTracker tracker(&driver.table());
  const auto stream = reinterpret_cast<CUstream>(0x5000);
  ThreadSlot* const slot = gate.Enter();
  tracker.Note(slot, stream);
  Gate::Leave(slot);
  driver.HoldEvents(true);
  EXPECT_EQ(tracker.DestroyStream(stream, driver.table().cuStreamDestroy_v2), CUDA_SUCCESS);
  EXPECT_EQ(tracker.Poll(0), CUDA_ERROR_NOT_READY);
  driver.HoldEvents(false);
  EXPECT_EQ(tracker.Poll(0), CUDA_SUCCESS);
}

TEST(WorkTrackerTest, DestroyedStreamsLeaveNoEventsBehind) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  WorkTracker tracker(&driver.table());
  ThreadSlot* const slot = gate.Enter();
  for (uint64_t i = 0; i < 100; ++i) {
    const auto stream = reinterpret_cast<CUstream>(0x5000 + i);
    tracker.Note(slot, stream);
    EXPECT_EQ(tracker.DestroyStream(stream, driver.table().cuStreamDestroy_v2), CUDA_SUCCESS);
  }
  Gate::Leave(slot);
  EXPECT_EQ(driver.events(), 2);  // one of them asked whether the context is alive
}

TEST(WorkTrackerTest, WorkBeforeACaptureIsNotTakenForDone) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  WorkTracker tracker(&driver.table());
  ThreadSlot* const slot = gate.Enter();
  tracker.Note(slot, reinterpret_cast<CUstream>(0x5000));
  Gate::Leave(slot);
  driver.Capture(true);
  EXPECT_EQ(tracker.Begin(0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  driver.Capture(false);
  EXPECT_EQ(tracker.Begin(0), CUDA_SUCCESS);
  EXPECT_EQ(tracker.Poll(0), CUDA_SUCCESS);
}

TEST(WorkTrackerTest, AContextThatBreaksOnAnotherDeviceIsNotWaitedFor) {
  FakeDriver driver(MiB(8).count);
  int object = 0;
  const auto elsewhere = reinterpret_cast<CUcontext>(&object);
  driver.Place(elsewhere, 1);
  WorkTracker tracker(&driver.table());
  Gate gate;
  gate.Open();
  tracker.AddContext(driver.context());
  tracker.AddContext(elsewhere);
  ThreadSlot* const slot = gate.Enter();
  tracker.Note(slot, nullptr);  // behind it, events in both contexts
  Gate::Leave(slot);
  driver.HoldEvents(true);
  EXPECT_EQ(tracker.Begin(0), CUDA_SUCCESS);
  EXPECT_EQ(tracker.Poll(0), CUDA_ERROR_NOT_READY);
  driver.HoldEvents(false);
  driver.Break(elsewhere);
  EXPECT_EQ(tracker.Poll(0), CUDA_SUCCESS);
  EXPECT_TRUE(tracker.TakeBroken(0).empty());
  EXPECT_EQ(tracker.TakeBroken(1), std::vector{elsewhere});
  EXPECT_EQ(tracker.AnyContext(0), driver.context());
  EXPECT_EQ(tracker.AnyContext(1), nullptr);
}

// No event lands in a capture that begins at the same time.
TEST(WorkTrackerTest, NoEventIsPutInACaptureThatBegins) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  WorkTracker tracker(&driver.table());
  ThreadSlot* const slot = gate.Enter();
  tracker.Note(slot, reinterpret_cast<CUstream>(0x5000));
  Gate::Leave(slot);
  std::atomic<bool> stop{false};
  std::atomic<int> captures{0};
  std::thread program([&] {
    for (; !stop; ++captures) {
      tracker.JoinCapture([&] {
        driver.Capture(true);
        return CUDA_SUCCESS;
      });
      std::this_thread::yield();
      driver.Capture(false);
      std::this_thread::yield();
    }
  });
  for (int put = 0; put < 500 || captures < 500;) put += tracker.Begin(0) == CUDA_SUCCESS;
  stop = true;
  program.join();
  EXPECT_EQ(driver.captured_records(), 0);
}

}  // namespace
}  // namespace tandem::shim
