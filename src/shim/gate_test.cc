#include "src/shim/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "src/base/bytes.h"
#include "src/shim/fake_driver.h"
#include "src/shim/work_tracker.h"

namespace tandem::shim {
namespace {

Instant Far() {
  return MonotonicNow() + Seconds(100);
}

// While the gate is closed nobody may be inside, whatever the threads do.
void Hammer() {
  Gate gate;
  gate.Open();
  std::atomic<bool> closed{false}, stop{false};
  std::atomic<int> breaches{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        ThreadSlot* const outer = gate.Enter();
        ThreadSlot* const inner = gate.Enter();
        if (closed) ++breaches;
        Gate::Leave(inner);
        Gate::Leave(outer);
      }
    });
  }
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(gate.Close(Far()));
    closed = true;
    std::this_thread::yield();
    closed = false;
    gate.Open();
    std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(breaches, 0);
}

// First of all: once the process has registered there is no way back to an order of our own.
TEST(GateTest, NobodyInsideWhileClosed) {
  EXPECT_FALSE(Gate::registered());
  Hammer();
  Gate::RegisterProcess();
  Hammer();
}

TEST(GateTest, CloseWaitsForCallsInside) {
  Gate::RegisterProcess();
  Gate gate;
  gate.Open();
  std::atomic<bool> inside{false}, leave{false};
  std::thread caller([&] {
    ThreadSlot* const slot = gate.Enter();
    inside = true;
    inside.notify_all();
    leave.wait(false);
    Gate::Leave(slot);
  });
  inside.wait(false);
  EXPECT_FALSE(gate.Close(MonotonicNow()));
  leave = true;
  leave.notify_all();
  EXPECT_TRUE(gate.Close(Far()));
  caller.join();
}

TEST(GateTest, NestedCallsDoNotWait) {
  Gate gate;
  gate.Open();
  ThreadSlot* const outer = gate.Enter();
  gate.Shut();
  ThreadSlot* const inner = gate.Enter();  // would wait for ever
  EXPECT_EQ(inner, outer);
  Gate::Leave(inner);
  EXPECT_TRUE(Gate::AnyInside());
  Gate::Leave(outer);
  EXPECT_FALSE(Gate::AnyInside());
}

TEST(GateTest, QuickEntryIsForKnownThreadsOutsideAnOpenGate) {
  Gate::RegisterProcess();
  Gate gate;
  gate.Open();
  std::thread([&] {
    ThreadSlot* none;
    EXPECT_FALSE(gate.EnterIfOpen(&none));  // it has no slot yet
  }).join();
  ThreadSlot* const slot = gate.Enter();
  ThreadSlot* entered = nullptr;
  EXPECT_FALSE(gate.EnterIfOpen(&entered));
  Gate::Leave(slot);
  if (!Gate::registered()) GTEST_SKIP() << "the kernel has no membarrier: there is no quick entry";
  ASSERT_TRUE(gate.EnterIfOpen(&entered));
  EXPECT_EQ(entered, slot);
  EXPECT_FALSE(gate.Close(MonotonicNow()));  // which sees it
  Gate::LeaveWhole(slot);
  EXPECT_TRUE(gate.Close(Far()));
  EXPECT_FALSE(gate.EnterIfOpen(&entered));
  EXPECT_FALSE(Gate::AnyInside());
  gate.Open();
  gate.Meter(true);
  EXPECT_FALSE(gate.EnterIfOpen(&entered));
  gate.Meter(false);
  ASSERT_TRUE(gate.EnterIfOpen(&entered));
  Gate::LeaveWhole(entered);
}

TEST(GateTest, WaitersAreCountedToldAndLetIn) {
  std::atomic<int> told{0};
  Gate gate(
      [](void* context) {
        auto* const count = static_cast<std::atomic<int>*>(context);
        ++*count;
        count->notify_all();
      },
      &told);
  std::thread waiter([&] { Gate::Leave(gate.Enter()); });
  told.wait(0);
  EXPECT_EQ(gate.waiting(), 1u);
  gate.Open();
  waiter.join();
  EXPECT_EQ(gate.waiting(), 0u);
}

TEST(GateTest, MeteredThreadsAskBeforeTheySubmit) {
  struct Asked {
    std::vector<CUstream> streams;
  } asked;
  Gate gate(nullptr, &asked, [](void* context, CUstream stream) {
    EXPECT_FALSE(Gate::AnyInside());  // a closing gate does not wait for who is held back
    static_cast<Asked*>(context)->streams.push_back(stream);
  });
  const auto stream = reinterpret_cast<CUstream>(0x5000);
  gate.Meter(true);  // shut: nothing
  gate.Open();
  Gate::Leave(gate.Enter(stream));
  EXPECT_TRUE(asked.streams.empty());
  gate.Meter(true);
  EXPECT_TRUE(gate.open());
  ThreadSlot* const outer = gate.Enter(stream);
  Gate::Leave(gate.Enter(nullptr));  // a call within a call does not ask
  Gate::Leave(outer);
  EXPECT_EQ(asked.streams, std::vector{stream});
  gate.Shut();
  gate.Meter(false);
  EXPECT_FALSE(gate.open());
  gate.Open();
  Gate::Leave(gate.Enter(stream));
  EXPECT_EQ(asked.streams.size(), 1u);
}

TEST(GateTest, ThreadsComeAndGo) {
  Gate gate;
  gate.Open();
  for (int i = 0; i < 50; ++i) {
    std::thread([&] { Gate::Leave(gate.Enter()); }).join();
  }
  EXPECT_TRUE(gate.Close(Far()));
}

TEST(WorkTrackerTest, WaitsForMarkedStreamsUntilForgotten) {
  FakeDriver driver(MiB(8).count);
  Gate gate;
  gate.Open();
  WorkTracker tracker(&driver.table());
  EXPECT_EQ(tracker.Begin(), CUDA_SUCCESS);
  driver.HoldEvents(true);
  EXPECT_EQ(tracker.Poll(), CUDA_SUCCESS);  // nothing was submitted
  ThreadSlot* const slot = gate.Enter();
  const uint64_t before = Gate::Submits();
  tracker.Note(slot, reinterpret_cast<CUstream>(0x5000));
  tracker.Note(slot, nullptr);
  Gate::Leave(slot);
  EXPECT_EQ(Gate::Submits(), before + 2);
  EXPECT_EQ(tracker.Begin(), CUDA_SUCCESS);
  EXPECT_EQ(tracker.Poll(), CUDA_ERROR_NOT_READY);
  driver.HoldEvents(false);
  EXPECT_EQ(tracker.Poll(), CUDA_SUCCESS);
  tracker.Forget();
  driver.HoldEvents(true);
  EXPECT_EQ(tracker.Begin(), CUDA_SUCCESS);
  EXPECT_EQ(tracker.Poll(), CUDA_SUCCESS);
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
  EXPECT_EQ(tracker.Begin(), CUDA_SUCCESS);
  const int events = driver.events();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(tracker.Begin(), CUDA_SUCCESS);
  EXPECT_EQ(driver.events(), events);
  EXPECT_EQ(tracker.Poll(), CUDA_ERROR_NOT_READY);
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
  EXPECT_TRUE(tracker.TakeBroken().empty());
  driver.Break(broken);
  EXPECT_EQ(tracker.Begin(), CUDA_SUCCESS);  // the default streams come last
  EXPECT_EQ(tracker.Poll(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(tracker.TakeBroken(), std::vector{broken});
  EXPECT_EQ(tracker.AnyContext(0), driver.context());
  EXPECT_EQ(tracker.Begin(), CUDA_SUCCESS);
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
  EXPECT_EQ(tracker.Begin(), CUDA_SUCCESS);
  EXPECT_EQ(tracker.Poll(), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(driver.legacy_records(), 0);
  driver.HoldEvents(false);
  EXPECT_EQ(tracker.Poll(), CUDA_SUCCESS);
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
  EXPECT_EQ(tracker.Poll(), CUDA_ERROR_NOT_READY);
  driver.HoldEvents(false);
  EXPECT_EQ(tracker.Poll(), CUDA_SUCCESS);
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
  EXPECT_EQ(driver.events(), 1);
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
  EXPECT_EQ(tracker.Begin(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  driver.Capture(false);
  EXPECT_EQ(tracker.Begin(), CUDA_SUCCESS);
  EXPECT_EQ(tracker.Poll(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tandem::shim
