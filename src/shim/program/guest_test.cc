#include "src/shim/program/guest.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "src/base/time.h"
#include "src/shim/testing/await.h"
#include "src/shim/testing/guest_fixture.h"

namespace tandem::shim {
namespace {

class ContextTest : public GuestTest {
 protected:
  // With 8 MiB of a context's and 8 MiB of none.
  void RunWithMapped() {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    VmmMemory::Handle handle = 0;
    RunWith(MiB(8), 1);
    ASSERT_EQ(guest_->vmm().Create(MiB(8).count, properties, &handle), CUDA_SUCCESS);
    std::thread work = SubmitLater([] {});
    daemon_.Expect<wire::Ready>();
    daemon_.Send(wire::Credit{MiB(16).count});
    daemon_.Expect<wire::Running>();
    work.join();
  }
  CUcontext MakeAnother() {
    const auto context = reinterpret_cast<CUcontext>(&objects_[made_++]);
    EXPECT_TRUE(guest_->WaitForContext());
    guest_->ContextMade(context);
    return context;
  }

 private:
  int objects_[2] = {};
  int made_ = 0;
};

TEST_F(GuestTest, RevokedEvictedAndBackAgain) {
  const CUdeviceptr pointer = RunWith(MiB(16), 1);
  daemon_.Send(wire::Revoke{1, 1000000});
  EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, 1u);
  daemon_.Send(wire::Evict{MiB(6).count});
  uint64_t resident = MiB(16).count;
  while (resident > MiB(6).count) {
    const auto evicted = daemon_.Expect<wire::Evicted>();
    EXPECT_EQ(evicted.copied_bytes, kChunk.count);
    EXPECT_EQ(evicted.resident_bytes, resident - kChunk.count);
    resident = evicted.resident_bytes;
  }
  EXPECT_EQ(resident, MiB(4).count);  // less than one chunk more than was asked
  EXPECT_EQ(driver_.used(), resident);

  bool intact = false;
  std::thread work = SubmitLater([&] { intact = AllBytes(pointer, MiB(16), 0x5a); });
  EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, MiB(16).count);
  daemon_.Send(wire::Grant{2, MiB(9).count, 1000});
  daemon_.Send(wire::Credit{MiB(16).count});
  const auto running = daemon_.Expect<wire::Running>();
  EXPECT_EQ(running.epoch, 2u);
  EXPECT_EQ(running.bytes_in, MiB(12).count);
  work.join();
  EXPECT_TRUE(intact);
}

TEST_F(GuestTest, GrowsUnderItsLease) {
  RunWith(MiB(16), 1);
  const CUdeviceptr more = Allocate(MiB(8));
  std::thread work = SubmitLater([=] { std::memset(reinterpret_cast<void*>(more), 1, 100); });
  EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, MiB(24).count);
  daemon_.Send(wire::Credit{MiB(24).count});
  EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, 1u);
  work.join();
  // What is freed can be had again without asking.
  EXPECT_EQ(guest_->Free(more), CUDA_SUCCESS);
  EXPECT_EQ(guest_->Free(more), std::nullopt);
  const CUdeviceptr again = Allocate(MiB(8));
  Submit([=] { std::memset(reinterpret_cast<void*>(again), 2, 100); });
}

TEST_F(GuestTest, LimitIsOutOfMemory) {
  Allocate(MiB(40));
  CUdeviceptr pointer = 0;
  EXPECT_EQ(guest_->Allocate(MiB(9).count, driver_.context(), &pointer), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(guest_->used(), MiB(40));
  daemon_.decisions().run_others_used_bytes = MiB(6).count;
  EXPECT_EQ(guest_->used(), MiB(46));
  Allocate(MiB(8));
}

TEST_F(GuestTest, SmallBlocksOfManyThreadsShareAPage) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 24; ++i) threads.emplace_back([this] { Allocate(KiB(64)); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(guest_->used(), MiB(2));
}

TEST_F(GuestTest, SmallBlocksGoIntoLargerSlotsWhereNoMorePagesMayBe) {
  Allocate(KiB(700));  // there are two of its kind in a page
  Allocate(MiB(46));
  Allocate(Bytes(512));
  EXPECT_EQ(guest_->used(), kLimit);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(guest_->Allocate(512, driver_.context(), &pointer), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(GuestTest, BusyWhenWorkDoesNotEnd) {
  RunWith(MiB(8), 1);
  driver_.HoldEvents(true);
  daemon_.Send(wire::Revoke{1, 500});
  EXPECT_EQ(daemon_.Expect<wire::Busy>().epoch, 1u);
  Submit([] {});  // the gate is open again
  driver_.HoldEvents(false);
  daemon_.Send(wire::Revoke{1, 1000000});
  EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, 1u);
}

TEST_F(GuestTest, IdlenessIsToldWhileSomebodyWaits) {
  RunWith(MiB(8), 1);
  daemon_.Contend();
  EXPECT_EQ(daemon_.Expect<wire::Idle>().epoch, 1u);
  Submit([] {});
  EXPECT_EQ(daemon_.Expect<wire::Active>().epoch, 1u);
  EXPECT_EQ(daemon_.Expect<wire::Idle>().epoch, 1u);
}

TEST_F(GuestTest, IdlenessIsToldAlsoWithMemoryThatNothingHasUsed) {
  RunWith(MiB(8), 1);
  Allocate(MiB(8));  // shuts the gate until there is work again
  daemon_.Contend();
  EXPECT_EQ(daemon_.Expect<wire::Idle>().epoch, 1u);
}

TEST_F(GuestTest, FreedMemoryIsGivenBackWhileSomebodyWaits) {
  RunWith(MiB(8), 1);
  const CUdeviceptr more = Allocate(MiB(8));
  std::thread work = SubmitLater([] {});
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Credit{MiB(16).count});
  daemon_.Expect<wire::Running>();
  work.join();
  Submit([&] {  // so that it is not idle
    daemon_.Contend();
    EXPECT_EQ(guest_->Free(more), CUDA_SUCCESS);
    EXPECT_EQ(daemon_.Expect<wire::Evicted>().resident_bytes, MiB(8).count);
  });
}

TEST_F(GuestTest, TheDriverIsAskedOnlyWhereItMayRefuse) {
  RunWith(MiB(8), 1);
  EXPECT_EQ(guest_->Health(driver_.context()), CUDA_SUCCESS);
  daemon_.Send(wire::Revoke{1, 1000000});
  daemon_.Expect<wire::Released>();
  const int queries = driver_.queries();
  EXPECT_EQ(guest_->Health(driver_.context()), CUDA_SUCCESS);  // all work was seen done
  EXPECT_EQ(driver_.queries(), queries);
  tracker_.OnCaptureBegun();
  EXPECT_EQ(guest_->Health(driver_.context()), CUDA_SUCCESS);
  EXPECT_EQ(driver_.queries(), queries + 1);
  tracker_.OnCaptureEnded();
  int other = 0;  // may be broken for all we know
  EXPECT_EQ(guest_->Health(reinterpret_cast<CUcontext>(&other)), CUDA_SUCCESS);
  EXPECT_EQ(driver_.queries(), queries + 2);
}

// Beside a run that has all of the card that it may have.
class FullGuestTest : public GuestTest {
 protected:
  FullGuestTest() { daemon_.decisions().most_resident_bytes = MiB(8).count; }

  static bool Await(const std::function<bool()>& done) {
    const Instant late = MonotonicNow() + Seconds(20);
    while (!done() && MonotonicNow() < late) std::this_thread::yield();
    return done();
  }
  // The agent may see memory that is about to be refused, and shut the gate for it. An
  // allocation then succeeds: it is freed, and tried again once the gate is open.
  CUresult Refusal(const std::function<CUresult()>& allocate, const std::function<void()>& free) {
    for (int i = 0; i < 100; ++i) {
      if (const CUresult result = allocate(); result != CUDA_SUCCESS) return result;
      free();
      EXPECT_TRUE(Await([this] { return gate_.open(); }));
    }
    return CUDA_SUCCESS;
  }
  bool AwaitHostUsed(Bytes bytes) {
    return Await([&] { return driver_.host_used() == bytes.count; });
  }
};

TEST_F(FullGuestTest, MemoryIsOutWhereTheHostHasNoRoomForWhatTheCardHasNot) {
  RunWith(MiB(8), 1);
  driver_.LimitHost(MiB(4));
  CUdeviceptr pointer = 0;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  const auto allocate = [&](Bytes bytes) {
    return guest_->Allocate(bytes.count, driver_.context(), &pointer);
  };
  const auto free = [&] { EXPECT_EQ(guest_->Free(pointer), CUDA_SUCCESS); };
  const auto create = [&] { return *guest_->vmm().Create(MiB(8).count, properties, &handle); };
  const auto release = [&] { EXPECT_EQ(guest_->vmm().Release(handle), CUDA_SUCCESS); };
  EXPECT_EQ(Refusal([&] { return allocate(MiB(8)); }, free), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Refusal(create, release), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(AwaitHostUsed(Bytes()));
  driver_.LimitHost(Bytes());
  EXPECT_EQ(Refusal([&] { return allocate(Bytes(512)); }, free), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(guest_->used(), MiB(8));
  EXPECT_TRUE(AwaitHostUsed(Bytes()));
  EXPECT_TRUE(Await([this] { return gate_.open(); }));
  driver_.LimitHost(MiB(8));
  EXPECT_EQ(allocate(MiB(8)), CUDA_SUCCESS);
  EXPECT_TRUE(AwaitHostUsed(MiB(8)));
}

TEST_F(FullGuestTest, WhereTheDriverMakesNoMemoryOfTheHostNothingOversubscribes) {
  const Identity identity{"test", 5, "GPU-0", "me", false};
  for (const Bytes host : {MiB(2), Bytes()}) {
    for_gate_ = nullptr;
    guest_.reset();
    driver_.LimitHost(host);
    auto opened = Guest::Open(&driver_.table(), &gate_, &tracker_, 0, identity);
    ASSERT_TRUE(opened.ok());
    guest_ = std::move(*opened);
    for_gate_ = guest_.get();
    EXPECT_EQ(daemon_.Expect<wire::Register>().oversubscribes, wire::Register::kCan);
    EXPECT_EQ(driver_.host_used(), 0u);
  }
  EXPECT_EQ(daemon_.Expect<wire::Register>().oversubscribes, 0);
}

// Once, not again while nothing new has been submitted.
TEST_F(GuestTest, AFreeWaitsForTheWorkOfItsContext) {
  const CUdeviceptr pointer = RunWith(MiB(8), 1);
  const CUdeviceptr more = Allocate(MiB(8));
  for (const CUdeviceptr each : {pointer, more}) {
    EXPECT_EQ(guest_->Free(each), CUDA_SUCCESS);
    EXPECT_EQ(driver_.context_waits(), 1);
  }
}

TEST_F(GuestTest, WhatAnotherContextMayUseIsThereUntilItsWorkIsDone) {
  const CUdeviceptr pointer = RunWith(MiB(8), 1);
  int object = 0;
  tracker_.AddContext(reinterpret_cast<CUcontext>(&object));
  driver_.HoldEvents(true);
  EXPECT_EQ(guest_->Free(pointer), CUDA_SUCCESS);
  EXPECT_EQ(driver_.used(), MiB(8).count);
  driver_.HoldEvents(false);
  AWAIT(driver_.used() == 0);
}

TEST_F(GuestTest, AFreeDuringACaptureWaitsForNoWork) {
  const CUdeviceptr pointer = RunWith(MiB(8), 1);
  tracker_.OnCaptureBegun();  // of another stream
  driver_.HoldEvents(true);
  EXPECT_EQ(guest_->Free(pointer), CUDA_SUCCESS);
  EXPECT_EQ(driver_.context_waits(), 0);
  EXPECT_EQ(driver_.used(), MiB(8).count);  // work under way may use it
  EXPECT_EQ(guest_->used(), MiB(8));
  driver_.HoldEvents(false);
  AWAIT(driver_.used() == 0);
  EXPECT_EQ(guest_->used(), Bytes());
  tracker_.OnCaptureEnded();
}

// Freed memory stays until the capture ends, and the next block needs more memory.
TEST_F(GuestTest, WhatIsFreedAndAllocatedDuringACaptureIsThereForItsLaunches) {
  const CUdeviceptr pointer = RunWith(MiB(8), 1);
  tracker_.OnCaptureBegun();
  driver_.Capture(true);
  EXPECT_EQ(guest_->Free(pointer), CUDA_SUCCESS);
  const CUdeviceptr next = Allocate(MiB(8));
  EXPECT_NE(next, pointer);
  std::thread work = SubmitLater([] {});
  EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, MiB(16).count);
  daemon_.Send(wire::Credit{MiB(16).count});
  daemon_.Expect<wire::Running>();
  work.join();
  driver_.Capture(false);
  tracker_.OnCaptureEnded();
  AWAIT(guest_->used() == MiB(8));
}

TEST_F(GuestTest, FindsTheNextDaemon) {
  const CUdeviceptr pointer = RunWith(MiB(8), 1);
  daemon_.HangUp();
  const auto hello = daemon_.Expect<wire::Register>();
  EXPECT_EQ(hello.allocated_bytes, MiB(8).count);
  EXPECT_EQ(hello.resident_bytes, MiB(8).count);
  EXPECT_EQ(hello.contexts, 1u);
  // The old lease is void once the new daemon knows us.
  bool intact = false;
  std::thread work([&] {
    AWAIT(!gate_.open());
    Submit([&] { intact = AllBytes(pointer, MiB(8), 0x5a); });
  });
  EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, MiB(8).count);
  daemon_.Send(wire::Grant{9, MiB(8).count, 1000});
  EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, 9u);
  work.join();
  EXPECT_TRUE(intact);
}

TEST_F(GuestTest, WithoutDaemonItAllocatesNoMoreThanFitsBesideFixedMemory) {
  daemon_.decisions().most_allocated_bytes = MiB(12).count;
  daemon_.Refuse(true);
  daemon_.HangUp();
  daemon_.AwaitRefusal();
  Allocate(MiB(8));
  CUdeviceptr pointer = 0;
  EXPECT_EQ(guest_->Allocate(MiB(8).count, driver_.context(), &pointer), CUDA_ERROR_OUT_OF_MEMORY);
  Allocate(MiB(4));
  EXPECT_EQ(guest_->used(), MiB(12));
}

TEST_F(GuestTest, SaysOnceThatItWaitsForTheNextDaemon) {
  testing::internal::CaptureStderr();
  daemon_.Refuse(true);
  daemon_.HangUp();
  Allocate(MiB(8));
  std::thread work = SubmitLater([] {});
  for (int i = 0; i < 3; ++i) daemon_.AwaitRefusal();
  daemon_.Refuse(false);
  daemon_.Expect<wire::Register>();
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Grant{1, MiB(8).count, 1000});
  daemon_.Expect<wire::Running>();
  work.join();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("waits until one runs again"), said.rfind("waits until one runs again"));
  EXPECT_NE(said.find("waits until one runs again"), std::string::npos);
}

TEST_F(GuestTest, StickyErrorGivesTheLeaseBackAndLetsCallsThrough) {
  RunWith(MiB(8), 1);
  daemon_.Send(wire::Revoke{1, 1000000});
  daemon_.Expect<wire::Released>();
  driver_.FailCopy(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  driver_.Break(driver_.context());
  daemon_.Send(wire::Evict{0});
  EXPECT_EQ(daemon_.Expect<wire::Evicted>().resident_bytes, MiB(8).count);
  Submit([] {});  // the driver itself answers what becomes of it
  // Nothing can be saved, but the card's memory goes back.
  uint64_t resident = 1;
  while (resident != 0) resident = daemon_.Expect<wire::Evicted>().resident_bytes;
  EXPECT_EQ(driver_.used(), 0u);
}

TEST_F(GuestTest, ContextsItDidNotMakeGiveNoCreditBack) {
  int other = 0;
  const auto context = reinterpret_cast<CUcontext>(&other);
  CUdeviceptr pointer = 0;
  ASSERT_EQ(guest_->Allocate(MiB(8).count, context, &pointer), CUDA_SUCCESS);
  EXPECT_TRUE(guest_->Has(context));
  EXPECT_FALSE(guest_->ContextEnds(context));
  EXPECT_EQ(guest_->used(), Bytes());
  EXPECT_TRUE(guest_->ContextEnds(driver_.context()));
}

TEST_F(GuestTest, NoBrokenContextTakesTheSwapperOver) {
  int objects[2] = {};
  const auto broken = reinterpret_cast<CUcontext>(&objects[0]);
  const auto healthy = reinterpret_cast<CUcontext>(&objects[1]);
  for (CUcontext context : {broken, healthy}) {
    ASSERT_TRUE(guest_->WaitForContext());
    guest_->ContextMade(context);
  }
  RunWith(MiB(8), 1, healthy);
  driver_.Break(broken);
  daemon_.Send(wire::Revoke{1, 1000000});
  EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, 1u);
  guest_->ContextEnded(guest_->ContextEnds(driver_.context()));
  daemon_.Expect<wire::ContextGone>();
  daemon_.Send(wire::Evict{0});
  while (daemon_.Expect<wire::Evicted>().resident_bytes != 0) {
  }
  EXPECT_EQ(driver_.used(), 0u);
}

TEST_F(ContextTest, WhatIsMappedLeavesTheCardAfterTheLastContextBroke) {
  RunWithMapped();
  EXPECT_EQ(driver_.used(), MiB(16).count);
  driver_.Break(driver_.context());
  guest_->ContextEnded(guest_->ContextEnds(driver_.context()));
  daemon_.Expect<wire::ContextGone>();
  daemon_.Send(wire::Revoke{1, 1000000});
  daemon_.Expect<wire::Released>();
  daemon_.Send(wire::Evict{0});
  while (daemon_.Expect<wire::Evicted>().resident_bytes != 0) {
  }
  EXPECT_EQ(driver_.used(), 0u);
}

// The broken one is there still: the program does not know it yet, or waits for the lease.
TEST_F(ContextTest, WhatIsMappedLeavesTheCardWhereOnlyABrokenContextIsLeft) {
  RunWithMapped();
  const CUcontext other = MakeAnother();
  driver_.Break(driver_.context());
  daemon_.Send(wire::Revoke{1, 1000000});
  daemon_.Expect<wire::Released>();
  guest_->ContextEnded(guest_->ContextEnds(other));
  daemon_.Expect<wire::ContextGone>();
  daemon_.Send(wire::Evict{0});
  while (daemon_.Expect<wire::Evicted>().resident_bytes != 0) {
  }
  EXPECT_EQ(driver_.used(), 0u);
}

// As by a kernel of the shim's own. Nothing has told the program or the agent.
TEST_F(ContextTest, WhatIsMappedLeavesTheCardWhereTheContextBreaksBeforeTheFirstCopy) {
  RunWithMapped();
  daemon_.Send(wire::Revoke{1, 1000000});
  daemon_.Expect<wire::Released>();
  driver_.Break(driver_.context());
  daemon_.Send(wire::Evict{0});
  uint64_t resident = MiB(16).count;
  for (int i = 0; i < 20 && resident != 0; ++i) {
    resident = daemon_.Expect<wire::Evicted>().resident_bytes;
  }
  EXPECT_EQ(resident, 0u);
}

TEST_F(ContextTest, WhoWaitsForWhatNoContextCanBringBackIsLetThrough) {
  RunWithMapped();
  daemon_.Send(wire::Revoke{1, 1000000});
  daemon_.Expect<wire::Released>();
  daemon_.Send(wire::Evict{0});
  while (daemon_.Expect<wire::Evicted>().resident_bytes != 0) {
  }
  const CUcontext other = MakeAnother();
  driver_.Break(driver_.context());
  guest_->ContextEnded(guest_->ContextEnds(driver_.context()));
  daemon_.Expect<wire::ContextGone>();
  guest_->ContextEnded(guest_->ContextEnds(other));
  daemon_.Expect<wire::ContextGone>();
  std::thread work = SubmitLater([] {});  // the driver itself answers that there is none
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Grant{2, MiB(8).count, 1000});
  EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, 2u);
  work.join();
  // A new one finds everything as it was.
  const int copies = driver_.copies();
  const CUcontext next = MakeAnother();
  work = SubmitLater([] {});
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Grant{3, MiB(8).count, 1000});
  EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, 3u);
  work.join();
  EXPECT_GT(driver_.copies(), copies);
  guest_->ContextEnded(guest_->ContextEnds(next));
}

TEST_F(ContextTest, WhatIsMappedIsCopiedAgainOnceThereIsAnotherContext) {
  RunWithMapped();
  driver_.Break(driver_.context());
  guest_->ContextEnded(guest_->ContextEnds(driver_.context()));
  daemon_.Expect<wire::ContextGone>();
  MakeAnother();
  const int copies = driver_.copies();
  daemon_.Send(wire::Revoke{1, 1000000});
  daemon_.Expect<wire::Released>();
  daemon_.Send(wire::Evict{0});
  while (daemon_.Expect<wire::Evicted>().resident_bytes != 0) {
  }
  EXPECT_GT(driver_.copies(), copies);
}

TEST_F(GuestTest, ContextsTakeTheirBlocksAlong) {
  RunWith(MiB(8), 1);
  guest_->ContextEnded(guest_->ContextEnds(driver_.context()));
  daemon_.Expect<wire::ContextGone>();
  EXPECT_EQ(driver_.used(), 0u);
  EXPECT_EQ(guest_->used(), Bytes());
}

}  // namespace
}  // namespace tandem::shim
