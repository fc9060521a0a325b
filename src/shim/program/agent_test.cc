// The agent on its own: between what threads of the program do in unlucky moments.
#include "src/shim/program/agent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "src/cuda/uuid.h"
#include "src/shim/testing/await.h"
#include "src/shim/testing/fake_daemon.h"
#include "src/shim/testing/fake_driver.h"
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
                          &swapper_, &leases_}) {
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
    EXPECT_EQ(memory_.AllocateExtent(bytes.count, driver_.context(), &block), CUDA_SUCCESS);
    return block.address;
  }
  template <typename Function>
  void Submit(Function inside) {
    SubmitThrough(gate_, tracker_, inside);
  }
  // Submits while the daemon grants a lease, of all that may be had unless told.
  void RunUnderGrant(uint64_t epoch, Bytes credit = kCard) {
    std::thread work([this] { Submit([] {}); });
    daemon_.Expect<wire::Ready>();
    daemon_.Send(wire::Grant{epoch, credit.count, 1000});
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
  ProgramLeases leases_{[this](const wire::Declare& declared) {
    link_.With([&](client::Lease& lease) { lease.Declare(declared); });
  }};
  Agent agent_;
};

TEST_F(AgentTest, MemoryItBacksUnderAnOpenGateIsNotTakenForUnwritten) {
  AllocateUnnoticed(MiB(4));
  RunUnderGrant(1);
  const CUdeviceptr late = AllocateUnnoticed(MiB(8));
  agent_.Wake();
  AWAIT(memory_.GetView().missing == Bytes());
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
  daemon_.TakeRestored();
  int begun = driver_.copies();
  std::thread work([this] { Submit([] {}); });
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Grant{2, kChunk.count, 1000});
  AWAIT(driver_.copies() == begun + 1);
  for (const Bytes credit : {MiB(8), MiB(12)}) {
    ++begun;
    daemon_.Send(wire::Credit{credit.count});
    AWAIT(driver_.copies() == begun + 1);
    EXPECT_EQ(driver_.used(), credit.count);
  }
  EXPECT_EQ(memory_.GetView().missing, MiB(12));
  driver_.LetCopies(3);
  EXPECT_EQ(daemon_.Expect<wire::Running>().bytes_in, MiB(12).count);
  uint64_t told = 0;
  for (const wire::Restored& restored : daemon_.TakeRestored()) {
    told += restored.copied_bytes;
    EXPECT_EQ(restored.epoch, 2u);
    EXPECT_EQ(restored.resident_bytes, told);  // chunks on their way do not count yet
    EXPECT_EQ(restored.from_file_bytes, 0u);
  }
  EXPECT_EQ(told, MiB(12).count);
  work.join();
  const auto* const begin = reinterpret_cast<const unsigned char*>(block);
  EXPECT_TRUE(std::all_of(begin, begin + MiB(12).count, [](auto byte) { return byte == 0x5a; }));
}

TEST_F(AgentTest, HostMemoryIsThereBeforeAnythingHasToLeave) {
  EXPECT_EQ(driver_.registered(), 0u);
  daemon_.decisions().host_share_bytes = MiB(10).count;
  agent_.Wake();
  AWAIT(driver_.registered() != 0);
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

// The agent does not ask for the eviction of others.
TEST_F(AgentTest, WhatTheCardRefusesIsReachedOnTheHost) {
  daemon_.decisions().most_resident_bytes = kCard.count;
  AllocateUnnoticed(kCard + MiB(8));
  CUmemAllocationProp anything{};
  CUmemGenericAllocationHandle others = 0;
  ASSERT_EQ(driver_.table().cuMemCreate(&others, MiB(12).count, &anything, 0), CUDA_SUCCESS);
  RunUnderGrant(1);
  EXPECT_EQ(driver_.used(), kCard.count);
  EXPECT_EQ(driver_.host_used(), MiB(20).count);
  daemon_.Send(wire::Revoke{1, 1000000});
  EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, 1u);
  RunUnderGrant(2);  // cold memory is tried once, and not again and again
  EXPECT_EQ(driver_.used(), kCard.count);
  ASSERT_EQ(driver_.table().cuMemRelease(others), CUDA_SUCCESS);
}

TEST_F(AgentTest, WhereNothingIsLeftOfTheCardAllIsReachedOnTheHost) {
  daemon_.decisions().most_resident_bytes = 1;  // the least that can be shown
  EXPECT_EQ(link_.most_resident(), Bytes());
  AllocateUnnoticed(MiB(8));
  std::thread work([this] { Submit([] {}); });
  EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, 0u);
  daemon_.Send(wire::Grant{1, 0, 1000});
  EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, 1u);
  work.join();
  EXPECT_EQ(driver_.used(), 0u);
  EXPECT_EQ(driver_.host_used(), MiB(8).count);
}

TEST_F(AgentTest, NobodyLeavesTheCardForWhatTheHostHasNoRoomFor) {
  daemon_.decisions().most_resident_bytes = 1;
  driver_.LimitHost(Bytes());
  AllocateUnnoticed(MiB(8));
  std::thread work([this] { Submit([] {}); });
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Grant{1, 0, 1000});
  constexpr int kRefusals = 5;  // more than would make others leave if it were the card
  AWAIT(driver_.host_refusals() >= kRefusals);
  driver_.LimitHost(kCard);
  EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, 1u);  // and no FixedWanted before
  work.join();
}

TEST_F(AgentTest, WhatIsColdComesOntoTheCardWhereALeaseBegins) {
  daemon_.decisions().most_resident_bytes = MiB(8).count;
  const CUdeviceptr block = AllocateUnnoticed(MiB(16));
  RunUnderGrant(1, MiB(8));
  Submit([&] { std::memset(reinterpret_cast<void*>(block), 0x5a, MiB(16).count); });
  EXPECT_EQ(driver_.host_used(), MiB(8).count);
  daemon_.Send(wire::Revoke{1, 1000000});
  daemon_.Expect<wire::Released>();

  daemon_.decisions().most_resident_bytes = MiB(20).count;
  std::thread work([this] { Submit([] {}); });
  EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, MiB(16).count);
  daemon_.Send(wire::Grant{2, MiB(8).count, 1000});
  daemon_.Send(wire::Credit{MiB(16).count});
  EXPECT_EQ(daemon_.Expect<wire::Running>().bytes_in, MiB(8).count);
  work.join();
  EXPECT_EQ(driver_.used(), MiB(16).count);
  EXPECT_EQ(driver_.host_used(), 0u);
  const auto* const begin = reinterpret_cast<const unsigned char*>(block);
  EXPECT_TRUE(std::all_of(begin, begin + MiB(16).count, [](auto byte) { return byte == 0x5a; }));
}

TEST_F(AgentTest, WhatIsColdStaysWhereMoreCameFreeThanWasAskedFor) {
  daemon_.decisions().most_resident_bytes = MiB(8).count;
  AllocateUnnoticed(MiB(16));
  RunUnderGrant(1, MiB(8));
  daemon_.Send(wire::Revoke{1, 1000000});
  daemon_.Expect<wire::Released>();
  std::thread work([this] { Submit([] {}); });
  EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, MiB(8).count);
  daemon_.decisions().most_resident_bytes = MiB(20).count;
  daemon_.Send(wire::Grant{2, MiB(8).count, 1000});
  EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, 2u);
  work.join();
  EXPECT_EQ(driver_.host_used(), MiB(8).count);
}

TEST_F(AgentTest, NothingChangesPlacesOnceTheLeaseIsRevoked) {
  daemon_.decisions().most_resident_bytes = MiB(8).count;
  AllocateUnnoticed(MiB(16));
  RunUnderGrant(1, MiB(8));
  daemon_.decisions().most_resident_bytes = MiB(16).count;
  {
    MutexLock lock(swapper_.mutex());  // the agent comes to both at once, as a rule
    Submit([] {});
    daemon_.Send(wire::Revoke{1, 1000000});
    daemon_.Send(wire::Credit{MiB(16).count});
  }
  EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, 1u);
  EXPECT_EQ(swapper_.exchanged(), Bytes());
  EXPECT_EQ(driver_.host_used(), MiB(8).count);
}

TEST_F(AgentTest, UnderALeaseNobodyLeavesForWhatIsCold) {
  daemon_.decisions().most_resident_bytes = MiB(8).count;
  AllocateUnnoticed(MiB(16));
  RunUnderGrant(1, MiB(8));
  daemon_.decisions().most_resident_bytes = MiB(20).count;
  AllocateUnnoticed(MiB(4));
  vote_.Shut();
  link_.With([](client::Lease& lease) { lease.OnShut(); });
  std::thread work([this] { Submit([] {}); });
  EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, MiB(12).count);
  daemon_.Send(wire::Credit{MiB(12).count});
  daemon_.Expect<wire::Running>();
  work.join();
  EXPECT_EQ(driver_.used(), MiB(12).count);
  EXPECT_EQ(driver_.host_used(), MiB(8).count);
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

TEST_F(AgentTest, SaysNothingOfTheDriversEnd) {
  for (const CUresult error : {CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_OUT_OF_MEMORY}) {
    const CUdeviceptr block = AllocateUnnoticed(MiB(4));
    RunUnderGrant(1);
    Submit([&] { std::memset(reinterpret_cast<void*>(block), 0x5a, MiB(4).count); });
    daemon_.Send(wire::Revoke{1, 1000000});
    EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, 1u);
    driver_.FailCopy(1, error);
    testing::internal::CaptureStderr();
    daemon_.Send(wire::Evict{0});
    while (daemon_.Expect<wire::Evicted>().resident_bytes != 0) {
    }
    const std::string said = testing::internal::GetCapturedStderr();
    const bool complains =
        said.find(
            "could not swap out GPU memory (out of memory); retrying. Check free host "
            "memory") != std::string::npos;
    EXPECT_EQ(complains, error == CUDA_ERROR_OUT_OF_MEMORY) << said;
  }
}

// ---- Moves to another GPU

CUuuid UuidOfDevice(CUdevice device) {
  CUuuid uuid = {};
  std::memset(&uuid, device + 1, sizeof(uuid));
  return uuid;
}

// A driver with two GPUs whose checkpoints succeed.
void LetMove(cuda::RealDriver* real) {
  real->cuDriverGetVersion = [](int* version) noexcept {
    *version = 13000;
    return CUDA_SUCCESS;
  };
  real->cuDeviceGetCount = [](int* count) noexcept {
    *count = 2;
    return CUDA_SUCCESS;
  };
  real->cuDeviceGetUuid_v2 = [](CUuuid* uuid, CUdevice device) noexcept {
    *uuid = UuidOfDevice(device);
    return CUDA_SUCCESS;
  };
  real->cuCheckpointProcessLock = [](int, CUcheckpointLockArgs*) noexcept { return CUDA_SUCCESS; };
  real->cuCheckpointProcessCheckpoint = [](int, CUcheckpointCheckpointArgs*) noexcept {
    return CUDA_SUCCESS;
  };
  real->cuCheckpointProcessRestore = [](int, CUcheckpointRestoreArgs*) noexcept {
    return CUDA_SUCCESS;
  };
  real->cuCheckpointProcessUnlock = [](int, CUcheckpointUnlockArgs*) noexcept {
    return CUDA_SUCCESS;
  };
}

TEST_F(AgentTest, RegistersOnTheGpuItHasMovedTo) {
  LetMove(&driver_.table());
  const std::string there = cuda::FormatUuid(UuidOfDevice(1));
  AllocateUnnoticed(MiB(4));
  EXPECT_TRUE(link_.Reserve(MiB(4)));
  daemon_.Send(wire::Move{there});
  const auto moved = daemon_.Expect<wire::Register>();
  EXPECT_EQ(moved.device, there);
  EXPECT_EQ(moved.moved_from, "GPU-0");
  EXPECT_EQ(Bytes(moved.allocated_bytes), MiB(4));
  EXPECT_EQ(Bytes(moved.resident_bytes), Bytes());
  RunUnderGrant(1);
  daemon_.HangUp();
  const auto again = daemon_.Expect<wire::Register>();
  EXPECT_EQ(again.device, there);
  EXPECT_EQ(again.moved_from, "");
}

TEST_F(AgentTest, StaysWhereItHasMemory) {
  LetMove(&driver_.table());
  AllocateUnnoticed(MiB(4));
  RunUnderGrant(1);
  daemon_.Send(wire::Move{cuda::FormatUuid(UuidOfDevice(1))});
  EXPECT_EQ(daemon_.Expect<wire::NotMoved>().reason, "it has work or memory there");
  EXPECT_EQ(link_.device(), "GPU-0");
}

TEST_F(AgentTest, SaysWhyItCannotMove) {
  daemon_.Send(wire::Move{cuda::FormatUuid(UuidOfDevice(1))});
  EXPECT_EQ(daemon_.Expect<wire::NotMoved>().reason,
            "the driver cannot move programs, which takes version 580 or newer");
}

// ---- Leases that the program itself begins and ends

class ProgramLeaseTest : public AgentTest {
 protected:
  using State = ProgramLease::State;

  void Begin(ProgramLease* lease) {
    leases_.Begin(lease);
    agent_.Wake();
  }
  void End(ProgramLease* lease) {
    leases_.End(lease);
    agent_.Wake();
  }
  static void AwaitState(const ProgramLease& lease, State state) {
    while (lease.state() != state) lease.Await(Milliseconds(1));
  }
};

TEST_F(ProgramLeaseTest, IsGrantedOnceAllItDeclaredIsThere) {
  daemon_.decisions().most_needed_bytes = kCard.count;
  wire::Declare declared;
  declared.memory_bytes = MiB(12).count;
  ProgramLease lease{declared};
  Begin(&lease);
  // In this order, or the daemon would not know that it may be asked for that much.
  EXPECT_EQ(daemon_.Expect<wire::Declare>().memory_bytes, MiB(12).count);
  EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, MiB(12).count);
  daemon_.Send(wire::Grant{1, MiB(4).count, 1000});
  daemon_.Send(wire::Credit{MiB(12).count});
  EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, 1u);
  AwaitState(lease, State::kGranted);
  ProgramLease second{wire::Declare{}};  // the program has the card already
  Begin(&second);
  AwaitState(second, State::kGranted);
}

TEST_F(ProgramLeaseTest, AsksForNoMoreThanCanBeHad) {
  daemon_.decisions().most_needed_bytes = MiB(8).count;
  wire::Declare declared;
  declared.memory_bytes = kCard.count;
  ProgramLease lease{declared};
  Begin(&lease);
  daemon_.Expect<wire::Declare>();
  EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, MiB(8).count);
  daemon_.Send(wire::Grant{1, MiB(8).count, 1000});
  AwaitState(lease, State::kGranted);
}

TEST_F(ProgramLeaseTest, ItsEndIsToldAtOnceThoughNoSessionWaits) {
  ProgramLease lease{wire::Declare{}};
  Begin(&lease);
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Grant{1, 0, 1000});
  EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, 1u);
  AwaitState(lease, State::kGranted);
  End(&lease);
  EXPECT_EQ(daemon_.Expect<wire::Idle>().epoch, 1u);
  EXPECT_EQ(lease.state(), State::kEnded);
}

TEST_F(ProgramLeaseTest, OneThatIsCancelledWaitsNoLonger) {
  ProgramLease lease{wire::Declare{}};
  Begin(&lease);
  daemon_.Expect<wire::Ready>();
  lease.Cancel();
  AwaitState(lease, State::kCancelled);
  End(&lease);
  daemon_.Expect<wire::NotReady>();
  lease.Cancel();  // before it begins
  Begin(&lease);
  EXPECT_EQ(lease.state(), State::kCancelled);
  End(&lease);
  Begin(&lease);
  daemon_.Expect<wire::Ready>();
  EXPECT_EQ(lease.state(), State::kWaiting);
  End(&lease);
}

TEST_F(ProgramLeaseTest, OneThatGivesUpDoesNotTakeThePlaceOfAThreadAtTheGate) {
  ProgramLease lease{wire::Declare{}};
  Begin(&lease);
  daemon_.Expect<wire::Ready>();
  std::thread work([this] { Submit([] {}); });
  AWAIT(gate_.waiting() != 0);
  End(&lease);
  daemon_.Send(wire::Grant{1, 0, 1000});
  EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, 1u);  // and no NotReady before
  work.join();
}

TEST_F(ProgramLeaseTest, WhileOneLastsAShortPauseIsNotTold) {
  ProgramLease lease{wire::Declare{}};
  Begin(&lease);
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Grant{1, 0, 1000});
  daemon_.Expect<wire::Running>();
  AwaitState(lease, State::kGranted);
  const Instant began = MonotonicNow();
  Submit([] {});
  daemon_.Contend();
  agent_.Wake();
  daemon_.Expect<wire::Idle>();
  EXPECT_GE(MonotonicNow() - began, Seconds(1));
  End(&lease);
}

}  // namespace
}  // namespace tandem::shim
