// FixedScene: a registered link to a daemon that grants memory which cannot be swapped, and a
// thread in the agent's place that hears its answers.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "src/shim/memory/fixed_memory.h"
#include "src/shim/testing/fake_daemon.h"

namespace tandem::shim {

class FixedScene : public testing::Test {
 protected:
  FixedScene() {
    EXPECT_TRUE(link_.Register(Bytes()).ok());
    daemon_.Expect<wire::Register>();
    daemon_.GrantFixed(MiB(64));
    listener_ = std::thread([this] {
      while (!ended_) {
        EXPECT_TRUE(link_.Receive().ok());
        std::this_thread::yield();
      }
    });
  }
  ~FixedScene() override {
    ended_ = true;
    listener_.join();
  }

  // What the driver has taken without leave counts when the daemon has answered.
  template <typename Recount>
  void RecountUntil(Bytes counted, Recount recount) {
    const Instant deadline = MonotonicNow() + Seconds(20);
    while (daemon_.fixed() != counted && MonotonicNow() < deadline) {
      recount();
      std::this_thread::yield();
    }
    EXPECT_EQ(daemon_.fixed(), counted);
  }

  FakeDaemon daemon_{MiB(64), MiB(64), MiB(4)};
  DaemonLink link_{Identity{"test", 0, "GPU-0", "me"}};
  FixedMemory fixed_{&link_};

 private:
  std::atomic<bool> ended_ = false;
  std::thread listener_;
};

}  // namespace tandem::shim
