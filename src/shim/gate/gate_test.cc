#include "src/shim/gate/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "src/base/time.h"
#include "src/shim/testing/await.h"

namespace tandem::shim {
namespace {

Instant Far() {
  return MonotonicNow() + Seconds(100);
}

// While the gate is closed no thread may be inside, whatever the threads do.
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

TEST(GateTest, WhereItRefusesNoThreadWaits) {
  Gate gate;
  GateVote vote(&gate, 0);
  gate.Open();
  vote.Shut();
  std::thread waiter([&] { EXPECT_EQ(gate.Enter(), nullptr); });
  AWAIT(gate.waiting() != 0);
  vote.Refuse(true);
  waiter.join();
  EXPECT_FALSE(gate.open());
  EXPECT_EQ(gate.Enter(), nullptr);
  EXPECT_FALSE(Gate::AnyInside());
  vote.Open();  // an open gate lets everything through
  ThreadSlot* const outer = gate.Enter();
  ASSERT_NE(outer, nullptr);
  vote.Shut();
  ThreadSlot* const inner = gate.Enter();  // a call within a call is never held back
  ASSERT_NE(inner, nullptr);
  Gate::Leave(inner);
  Gate::Leave(outer);
  EXPECT_EQ(gate.Enter(), nullptr);
  vote.Refuse(false);
  std::thread patient([&] { Gate::Leave(gate.Enter()); });
  AWAIT(gate.waiting() != 0);
  vote.Open();
  patient.join();
}

TEST(GateTest, AVoteForOpenRefusesNothing) {
  Gate gate;
  GateVote first(&gate, 0), second(&gate, 1);
  gate.Open();
  first.Refuse(true);
  second.Shut();
  std::thread waiter([&] { Gate::Leave(gate.Enter()); });
  AWAIT(gate.waiting() != 0);
  second.Open();
  waiter.join();
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

TEST(GateTest, IsOpenWhileNobodyVotesForShut) {
  int asked = 0;
  Gate gate([](void* count) { ++*static_cast<int*>(count); }, &asked);
  GateVote first(&gate, 0), second(&gate, 1);
  gate.Open();
  EXPECT_TRUE(gate.open());
  first.Shut();
  second.Shut();
  first.Open();
  EXPECT_FALSE(gate.open());
  EXPECT_TRUE(first.open());
  EXPECT_FALSE(second.open());
  second.Open(true);
  EXPECT_TRUE(gate.open());
  EXPECT_TRUE(gate.metered());
  first.Meter(true);
  second.Meter(false);
  EXPECT_TRUE(gate.metered());
  first.Meter(false);
  EXPECT_FALSE(gate.metered());
  EXPECT_TRUE(second.Close(Far()));
  EXPECT_FALSE(gate.open());
  second.Meter(true);  // shut: nothing
  second.Open();
  EXPECT_FALSE(gate.metered());
  EXPECT_EQ(asked, 0);  // no thread waits
}

TEST(GateTest, WhoWaitsIsWaitedForInOneOrder) {
  std::atomic<int> asked = 0;
  Gate gate([](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &asked);
  GateVote first(&gate, 0), second(&gate, 1);
  first.Shut();
  second.Shut();
  gate.Open();
  EXPECT_FALSE(first.wanted());
  std::thread thread([&] { Gate::Leave(gate.Enter()); });
  AWAIT(gate.waiting() != 0 && asked != 0);
  EXPECT_TRUE(first.wanted());
  EXPECT_FALSE(second.wanted());
  first.Open();  // and lets the others know
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(second.wanted());
  second.Open();
  thread.join();
  EXPECT_FALSE(second.wanted());
}

TEST(GateTest, ThreadsComeAndGo) {
  Gate gate;
  gate.Open();
  for (int i = 0; i < 50; ++i) {
    std::thread([&] { Gate::Leave(gate.Enter()); }).join();
  }
  EXPECT_TRUE(gate.Close(Far()));
}

}  // namespace
}  // namespace tandem::shim
