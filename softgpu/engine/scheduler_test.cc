#include "softgpu/engine/scheduler.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string>

namespace tandem::soft {
namespace {

// Engines live as long as the process, so one set serves all tests.
Scheduler& TheScheduler() {
  static auto* scheduler = new Scheduler();
  return *scheduler;
}

Engines* TheEngines() {
  static auto* engines = new Engines(&TheScheduler(), nullptr, [](EngineKind) {});
  return engines;
}

class Gate {
 public:
  CUresult Pass() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
    return CUDA_SUCCESS;
  }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

class SchedulerTest : public testing::Test {
 protected:
  std::shared_ptr<Stream> NewStream(StreamKind kind, int priority = 0) {
    return std::make_shared<Stream>(group_, kind, priority);
  }
  Dependency Submit(const std::shared_ptr<Stream>& stream, EngineKind engine,
                    std::function<CUresult()> run, std::vector<Dependency> after = {}) {
    Task task;
    task.engine = engine;
    task.run = std::move(run);
    task.after = std::move(after);
    return TheScheduler().Submit(stream, std::move(task));
  }
  std::shared_ptr<StreamGroup> group_ = std::make_shared<StreamGroup>(TheEngines());
};

TEST_F(SchedulerTest, TheHigherPriorityGoesFirst) {
  Gate started, gate;
  std::vector<int> order;
  const auto blocker = NewStream(StreamKind::kNonBlocking, 0);
  Submit(blocker, EngineKind::kCompute, [&] {
    started.Open();
    return gate.Pass();
  });
  started.Pass();
  for (const int priority : {0, -3, -1, -5, -3}) {
    Submit(NewStream(StreamKind::kNonBlocking, priority), EngineKind::kCompute, [&, priority] {
      order.push_back(priority);
      return CUDA_SUCCESS;
    });
  }
  gate.Open();
  TheScheduler().Wait(TheScheduler().PendingOf(group_.get()));
  EXPECT_EQ(order, std::vector<int>({-5, -3, -3, -1, 0}));
}

TEST_F(SchedulerTest, UrgentWorkIsDoneInTheMiddleOfAnother) {
  Gate started;
  std::atomic<bool> interrupted = false, lesser = false;
  Submit(NewStream(StreamKind::kNonBlocking, -1), EngineKind::kCompute, [&] {
    started.Open();
    while (!interrupted.load()) {
      if (UrgentWork::Waits()) UrgentWork::Do();
    }
    EXPECT_FALSE(UrgentWork::Waits());
    EXPECT_FALSE(lesser.load());
    return CUDA_SUCCESS;
  });
  started.Pass();
  Submit(NewStream(StreamKind::kNonBlocking, -1), EngineKind::kCompute, [&] {
    lesser.store(true);
    return CUDA_SUCCESS;
  });
  Submit(NewStream(StreamKind::kNonBlocking, -2), EngineKind::kCompute, [&] {
    interrupted.store(true);
    return CUDA_SUCCESS;
  });
  TheScheduler().Wait(TheScheduler().PendingOf(group_.get()));
  EXPECT_TRUE(lesser.load());
}

TEST_F(SchedulerTest, EnginesWorkAtTheSameTime) {
  // Each task waits for one of another engine: only possible if all run at once.
  Gate first, second;
  std::atomic<int> passed = 0;
  const auto one = NewStream(StreamKind::kNonBlocking), two = NewStream(StreamKind::kNonBlocking);
  const auto three = NewStream(StreamKind::kNonBlocking);
  Submit(one, EngineKind::kCompute, [&] {
    const CUresult result = first.Pass();
    ++passed;
    return result;
  });
  Submit(two, EngineKind::kToDevice, [&] {
    first.Open();
    const CUresult result = second.Pass();
    ++passed;
    return result;
  });
  Submit(three, EngineKind::kToHost, [&] {
    second.Open();
    return CUDA_SUCCESS;
  });
  TheScheduler().Wait(TheScheduler().PendingOf(group_.get()));
  EXPECT_EQ(passed, 2);
}

TEST_F(SchedulerTest, DependenciesHoldAcrossStreams) {
  Gate gate;
  std::atomic<int> value = 0;
  const auto one = NewStream(StreamKind::kNonBlocking), two = NewStream(StreamKind::kNonBlocking);
  const Dependency first = Submit(one, EngineKind::kCompute, [&] {
    gate.Pass();
    value = 1;
    return CUDA_SUCCESS;
  });
  const Dependency second = Submit(two, EngineKind::kToHost,
                                   [&] {
                                     EXPECT_EQ(value, 1);
                                     return CUDA_SUCCESS;
                                   },
                                   {first});
  EXPECT_FALSE(TheScheduler().Done({second}));
  gate.Open();
  TheScheduler().Wait({second});
  EXPECT_TRUE(TheScheduler().Done({first, second}));
}

TEST_F(SchedulerTest, AFailurePoisonsTheGroupAndNobodyHangs) {
  const auto stream = NewStream(StreamKind::kBlocking);
  std::atomic<int> runs = 0;
  Submit(stream, EngineKind::kCompute, [] { return CUDA_ERROR_ILLEGAL_ADDRESS; });
  const Dependency last = Submit(stream, EngineKind::kCompute, [&] {
    ++runs;
    return CUDA_SUCCESS;
  });
  TheScheduler().Wait({last});
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(group_->error.load(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(SchedulerTest, LegacyComesAfterBlockingAndBeforeLaterOnes) {
  Gate gate;
  std::vector<int> order;
  const auto legacy = NewStream(StreamKind::kLegacy), blocking = NewStream(StreamKind::kBlocking);
  const auto later = NewStream(StreamKind::kBlocking);
  Submit(blocking, EngineKind::kToHost, [&] {
    gate.Pass();
    order.push_back(1);
    return CUDA_SUCCESS;
  });
  Submit(legacy, EngineKind::kCompute, [&] {
    order.push_back(2);
    return CUDA_SUCCESS;
  });
  const Dependency last = Submit(later, EngineKind::kToDevice, [&] {
    order.push_back(3);
    return CUDA_SUCCESS;
  });
  gate.Open();
  TheScheduler().Wait({last});
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

// A fault in an engine must reach the program's handler; what others send must not be taken there.
TEST_F(SchedulerTest, EnginesTakeOnlyTheSignalsTheyRaise) {
  sigset_t blocked;
  sigemptyset(&blocked);
  const auto stream = NewStream(StreamKind::kNonBlocking);
  TheScheduler().Wait({Submit(stream, EngineKind::kToHost, [&] {
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return CUDA_SUCCESS;
  })});
  for (const int raised : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    EXPECT_EQ(sigismember(&blocked, raised), 0) << raised;
  }
  for (const int sent : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1}) {
    EXPECT_EQ(sigismember(&blocked, sent), 1) << sent;
  }
}

// Random graphs, launched again before they are done: no task runs before one that it comes after,
// and launches do not mix with what their stream has before and behind them.
TEST_F(SchedulerTest, GraphsKeepTheirOrder) {
  const char* text = std::getenv("TANDEM_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : std::random_device()();
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto stream = NewStream(StreamKind::kBlocking);
  std::atomic<int> wrong = 0, rounds = 0;
  for (int round = 0; round < 20; ++round) {
    const size_t count = 1 + random() % 60;
    auto done = std::make_shared<std::vector<std::atomic<bool>>>(count);
    std::vector<GraphTask> tasks(count);
    Submit(stream, EngineKind::kHost, [&, round] {
      wrong += rounds != round;
      return CUDA_SUCCESS;
    });
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (random() % count < 2) tasks[i].before.push_back(j);
      }
      tasks[i].group = group_;
      tasks[i].task.engine = static_cast<EngineKind>(random() % (kEngineCount + 1));
      tasks[i].task.run = [&, done, round, i, before = tasks[i].before] {
        for (const size_t j : before) wrong += !(*done)[j];
        wrong += rounds != round;
        (*done)[i] = true;
        return CUDA_SUCCESS;
      };
    }
    TheScheduler().SubmitGraph(stream, std::move(tasks), {});
    Submit(stream, EngineKind::kCompute, [&, done] {
      for (const auto& one : *done) wrong += !one;
      ++rounds;
      return CUDA_SUCCESS;
    });
  }
  TheScheduler().Wait(TheScheduler().Pending(stream));
  EXPECT_EQ(rounds, 20);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tandem::soft
