#include "src/shim/memory/fixed_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "src/shim/testing/fake_daemon.h"

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
    return Answered([&] { return fixed_.Reserve(bytes); }, bytes, answer);
  }
  bool Reserve(const FixedMemory::Piece& piece, Bytes asked, uint8_t answer) {
    return Answered([&] { return fixed_.Reserve(piece); }, asked, answer);
  }

  template <typename Call>
  bool Answered(Call call, Bytes asked, uint8_t answer) {
    std::atomic<bool> answered = false;
    bool granted = false;
    std::thread thread([&] {
      granted = call();
      answered = true;
    });
    const auto wanted = daemon_.Expect<wire::FixedWanted>();
    EXPECT_EQ(Bytes(wanted.bytes), asked);
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

TEST_F(FixedMemoryTest, IsPutOnceByWhoeverIsFirst) {
  int one = 0;
  EXPECT_FALSE(fixed_.Has(&one));
  EXPECT_TRUE(fixed_.PutNew(&one, {first_, MiB(1)}));
  EXPECT_FALSE(fixed_.PutNew(&one, {second_, MiB(2)}));
  EXPECT_TRUE(fixed_.Has(&one));
  EXPECT_EQ(fixed_.Take(&one).bytes, MiB(1));
  EXPECT_FALSE(fixed_.Has(&one));
}

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

TEST_F(FixedMemoryTest, SmallPiecesOfAKindShareWholePages) {
  using Kind = FixedMemory::Kind;
  const FixedMemory::Piece small{first_, Bytes(700 << 10), Kind::kArrays};
  EXPECT_TRUE(Reserve(small, MiB(2), 1));
  EXPECT_TRUE(fixed_.Reserve(small));  // there is room in its page: no request
  EXPECT_TRUE(Reserve(small, MiB(2), 1));
  EXPECT_TRUE(Reserve({first_, Bytes(512), Kind::kManaged}, MiB(2), 1));
  EXPECT_TRUE(Reserve({second_, Bytes(512), Kind::kArrays}, MiB(2), 1));
  EXPECT_TRUE(Reserve({first_, MiB(3), Kind::kArrays}, MiB(4), 1));
  fixed_.GiveBack(small);  // the two left need one
  EXPECT_EQ(Bytes(daemon_.Expect<wire::FixedGone>().bytes), MiB(2));
  fixed_.GiveBack(FixedMemory::Piece{first_, MiB(3), Kind::kArrays});
  EXPECT_EQ(Bytes(daemon_.Expect<wire::FixedGone>().bytes), MiB(4));
  EXPECT_EQ(fixed_.TakeAll(first_), MiB(4));  // of two kinds
  fixed_.GiveBack(small);                     // its page has gone with the context
  EXPECT_EQ(fixed_.TakeAll(first_), Bytes());
  EXPECT_EQ(fixed_.TakeAll(second_), MiB(2));
}

TEST_F(FixedMemoryTest, ARefusedPageIsAskedForAgain) {
  const FixedMemory::Piece small{first_, Bytes(700 << 10), FixedMemory::Kind::kManaged};
  EXPECT_FALSE(Reserve(small, MiB(2), 0));
  EXPECT_TRUE(Reserve(small, MiB(2), 1));
  fixed_.GiveBack(small);
  EXPECT_EQ(Bytes(daemon_.Expect<wire::FixedGone>().bytes), MiB(2));
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
