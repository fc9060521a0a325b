// The agent on its own: between what threads of the program do in unlucky moments.
#include "src/shim/agent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "src/shim/fake_daemon.h"
#include "src/shim/fake_driver.h"
#include "src/shim/testing/submit.h"

namespace tandem::shim {
namespace {

class AgentTest : public testing::Test {
 protected:
  AgentTest()
      : daemon_(kCard, kCard, kChunk),
        driver_(kCard.count),
        gate_([](void* agent) { static_cast<Agent*>(agent)->Wake(); }, &agent_),
        tracker_(&driver_.table()),
        link_(Identity{"test", 0, "GPU-0", "me"}),
        memory_(&driver_.table(), MiB(256), kChunk),
        fence_(&driver_.table(), 0, &tracker_, &memory_,
               [this](Bytes shrunk) { link_.Unreserve(shrunk); }),
        swapper_(&driver_.table(), 0, &memory_, kChunk),
        agent_(AgentParts{&driver_.table(), 0, &link_, &vote_, &tracker_, &memory_, &fence_,
                          &swapper_}) {
    EXPECT_TRUE(link_.Register(Bytes()).ok());
    daemon_.Expect<wire::Register>();
    {
      MutexLock lock(swapper_.mutex());
      swapper_.UseContext(driver_.context());
    }
    gate_.Open();
    vote_.Shut();
    EXPECT_TRUE(agent_.Start());
  }
  ~AgentTest() override {
    gate_.Open();
    agent_.Stop();
  }

  // As far as an allocation gets before its thread is put off: in the table, not on the card.
  CUdeviceptr AllocateUnnoticed(Bytes bytes) {
    Block block;
    EXPECT_EQ(memory_.AllocateRun(bytes.count, driver_.context(), &block), CUDA_SUCCESS);
    return block.address;
  }
  template <typename Function>
  void Submit(Function inside) {
    SubmitThrough(gate_, tracker_, inside);
  }
  // Submits while the daemon grants a lease of all that may be had.
  void RunUnderGrant(uint64_t epoch) {
    std::thread work([this] { Submit([] {}); });
    daemon_.Expect<wire::Ready>();
    daemon_.Send(wire::Grant{epoch, kCard.count, 1000});
    EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, epoch);
    work.join();
  }

  FakeDaemon daemon_;
  FakeDriver driver_;
  Gate gate_;
  GateVote vote_{&gate_, 0};
  WorkTracker tracker_;
  DaemonLink link_;
  DeviceMemory memory_;
  FreeFence fence_;
  Swapper swapper_;
  Agent agent_;
};

TEST_F(AgentTest, MemoryItBacksUnderAnOpenGateIsNotTakenForUnwritten) {
  AllocateUnnoticed(MiB(4));
  RunUnderGrant(1);
  const CUdeviceptr late = AllocateUnnoticed(MiB(8));
  agent_.Wake();
  while (memory_.GetView().missing != Bytes()) std::this_thread::yield();
  Submit([&] { std::memset(reinterpret_cast<void*>(late), 0x5a, MiB(8).count); });

  daemon_.Send(wire::Revoke{1, 1000000});
  EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, 1u);
  daemon_.Send(wire::Evict{0});
  while (daemon_.Expect<wire::Evicted>().resident_bytes != 0) {
  }
  RunUnderGrant(2);
  const auto* const begin = reinterpret_cast<const unsigned char*>(late);
  EXPECT_TRUE(std::all_of(begin, begin + MiB(8).count, [](auto byte) { return byte == 0x5a; }));
}

TEST_F(AgentTest, ChunksComeInWhileEarlierOnesAreOnTheirWay) {
  const CUdeviceptr block = AllocateUnnoticed(MiB(12));
  RunUnderGrant(1);
  Submit([&] { std::memset(reinterpret_cast<void*>(block), 0x5a, MiB(12).count); });
  daemon_.Send(wire::Revoke{1, 1000000});
  daemon_.Expect<wire::Released>();
  daemon_.Send(wire::Evict{0});
  while (daemon_.Expect<wire::Evicted>().resident_bytes != 0) {
  }
  driver_.HoldCopies();
  std::thread work([this] { Submit([] {}); });
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Grant{2, kChunk.count, 1000});
  while (driver_.used() != kChunk.count) std::this_thread::yield();
  for (const Bytes credit : {MiB(8), MiB(12)}) {
    daemon_.Send(wire::Credit{credit.count});
    while (driver_.used() != credit.count) std::this_thread::yield();
  }
  EXPECT_EQ(memory_.GetView().missing, MiB(12));
  driver_.LetCopies(3);
  EXPECT_EQ(daemon_.Expect<wire::Running>().bytes_in, MiB(12).count);
  work.join();
  const auto* const begin = reinterpret_cast<const unsigned char*>(block);
  EXPECT_TRUE(std::all_of(begin, begin + MiB(12).count, [](auto byte) { return byte == 0x5a; }));
}

TEST_F(AgentTest, HostMemoryIsThereBeforeAnythingHasToLeave) {
  EXPECT_EQ(driver_.registered(), 0u);
  daemon_.decisions().host_share_bytes = MiB(10).count;
  agent_.Wake();
  while (driver_.registered() == 0) std::this_thread::yield();
  EXPECT_EQ(Bytes(driver_.registered()), MiB(12));  // chunks of 4 MiB
  const CUdeviceptr block = AllocateUnnoticed(MiB(12));
  RunUnderGrant(1);
  Submit([&] { std::memset(reinterpret_cast<void*>(block), 0x5a, MiB(12).count); });
  daemon_.Send(wire::Revoke{1, 1000000});
  daemon_.Expect<wire::Released>();
  daemon_.Send(wire::Evict{0});
  while (daemon_.Expect<wire::Evicted>().resident_bytes != 0) {
  }
  EXPECT_EQ(Bytes(driver_.registered()), MiB(12));
}

TEST_F(AgentTest, WhatTheCardLacksOthersLeaveFor) {
  AllocateUnnoticed(kCard);
  CUmemAllocationProp anything{};
  CUmemGenericAllocationHandle others = 0;
  ASSERT_EQ(driver_.table().cuMemCreate(&others, kChunk.count, &anything, 0), CUDA_SUCCESS);
  std::thread work([this] { Submit([] {}); });
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Grant{1, kCard.count, 1000});
  const auto wanted = daemon_.Expect<wire::FixedWanted>();
  ASSERT_EQ(driver_.table().cuMemRelease(others), CUDA_SUCCESS);
  daemon_.Send(wire::FixedReserved{wanted.sequence, 1});
  EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, 1u);
  work.join();
}

TEST_F(AgentTest, NothingLeavesTheCardWhileACaptureHidesWhatRuns) {
  AllocateUnnoticed(MiB(4));
  RunUnderGrant(1);
  driver_.Capture(true);
  daemon_.Send(wire::Revoke{1, 1000000});
  EXPECT_EQ(daemon_.Expect<wire::Busy>().epoch, 1u);
  EXPECT_EQ(memory_.GetView().resident, MiB(4));
  driver_.Capture(false);
  daemon_.Send(wire::Revoke{1, 1000000});
  EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, 1u);
}

}  // namespace
}  // namespace tandem::shim
