#include "src/shim/fixed_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "src/shim/fake_daemon.h"

namespace tandem::shim {
namespace {

class FixedMemoryTest : public testing::Test {
 protected:
  FixedMemoryTest() {
    EXPECT_TRUE(link_.Register(Bytes()).ok());
    daemon_.Expect<wire::Register>();
  }

  // What a thread of the program is told where the daemon answers so.
  bool Reserve(Bytes bytes, uint8_t answer) {
    std::atomic<bool> answered = false;
    bool granted = false;
    std::thread thread([&] {
      granted = fixed_.Reserve(bytes);
      answered = true;
    });
    const auto wanted = daemon_.Expect<wire::FixedWanted>();
    EXPECT_EQ(Bytes(wanted.bytes), bytes);
    daemon_.Send(wire::FixedReserved{wanted.sequence, answer});
    while (!answered) {
      EXPECT_TRUE(link_.Receive().ok());
      std::this_thread::yield();
    }
    thread.join();
    return granted;
  }

  const CUcontext first_ = reinterpret_cast<CUcontext>(16);
  const CUcontext second_ = reinterpret_cast<CUcontext>(32);
  FakeDaemon daemon_{MiB(64), MiB(64), MiB(4)};
  DaemonLink link_{Identity{"test", 0, "GPU-0", "me"}};
  FixedMemory fixed_{&link_};
};

TEST_F(FixedMemoryTest, GoesBackOnceWithItsObjectOrItsContext) {
  int one = 0, two = 0, three = 0;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Reserve(MiB(1), 1));
  EXPECT_FALSE(Reserve(MiB(100), 0));
  fixed_.Put(&one, {first_, MiB(1)});
  fixed_.Put(&two, {first_, MiB(1)});
  fixed_.Put(&three, {second_, MiB(1)});
  fixed_.GiveBack(fixed_.Take(&one).bytes);
  EXPECT_EQ(Bytes(daemon_.Expect<wire::FixedGone>().bytes), MiB(1));
  fixed_.GiveBack(fixed_.Take(&one).bytes);  // unknown by now: nothing is said
  fixed_.GiveBack(fixed_.TakeAll(first_));
  EXPECT_EQ(Bytes(daemon_.Expect<wire::FixedGone>().bytes), MiB(1));
  EXPECT_EQ(fixed_.Take(&two).bytes, Bytes());
  EXPECT_EQ(fixed_.Take(&three).context, second_);
}

TEST_F(FixedMemoryTest, IsToldToTheNextDaemon) {
  EXPECT_TRUE(Reserve(MiB(3), 1));
  daemon_.HangUp();
  link_.Lose();
  fixed_.GiveBack(MiB(1));
  EXPECT_TRUE(link_.Register(Bytes()).ok());
  EXPECT_EQ(Bytes(daemon_.Expect<wire::Register>().fixed_bytes), MiB(2));
}

}  // namespace
}  // namespace tandem::shim
