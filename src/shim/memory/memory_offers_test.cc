// Blocks that other processes may have, from both sides: the guest opens what it has offered
// itself, as another process would.
#include "src/shim/memory/memory_offers.h"

#include <cstring>

#include "src/shim/testing/await.h"
#include "src/shim/testing/guest_fixture.h"

namespace tandem::shim {
namespace {

void FillBytes(CUdeviceptr pointer, Bytes bytes, int value) {
  std::memset(reinterpret_cast<void*>(pointer), value, bytes.count);
}

class MemoryOffersTest : public GuestTest {
 protected:
  MemoryOffersTest() { daemon_.GrantFixed(kCard); }

  CUresult Offer(CUdeviceptr pointer, IpcHandle* handle = nullptr) {
    CUipcMemHandle packed = {};
    const CUresult result = guest_->offers().Offer(
        pointer, [this] { Submit([] {}); }, &packed);
    if (result == CUDA_SUCCESS && handle != nullptr) *handle = *Unpack(packed);
    return result;
  }
  CUresult Open(const IpcHandle& handle, CUdeviceptr* pointer) {
    return guest_->opened().Open(handle, driver_.context(), 0, pointer);
  }
  // A block with the same byte all over, on the card.
  CUdeviceptr Filled(Bytes bytes, int value) {
    const CUdeviceptr pointer = RunWith(bytes, 1);
    FillBytes(pointer, bytes, value);
    return pointer;
  }
  // Freed memory that the mover works on leaves the card when the mover has finished.
  void AwaitEmptyCard() {
    const Instant deadline = MonotonicNow() + Seconds(30);
    while (driver_.used() != 0 && MonotonicNow() < deadline) std::this_thread::yield();
    EXPECT_EQ(driver_.used(), 0u);
  }
  void LoseTheCard(uint64_t epoch) {
    daemon_.Send(wire::Revoke{epoch, 1000000});
    EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, epoch);
    daemon_.Send(wire::Evict{0});
    while (daemon_.Expect<wire::Evicted>().resident_bytes != 0) {
    }
  }
};

TEST_F(MemoryOffersTest, ABlockMovesIntoOnePieceWhereItIs) {
  const CUdeviceptr pointer = Filled(MiB(10), 7);
  EXPECT_TRUE(driver_.IsMapped(pointer + kChunk.count));
  IpcHandle handle;
  ASSERT_EQ(Offer(pointer + 5, &handle), CUDA_SUCCESS);
  EXPECT_FALSE(driver_.IsMapped(pointer + kChunk.count));
  EXPECT_TRUE(AllBytes(pointer, MiB(10), 7));
  EXPECT_EQ(Bytes(driver_.used()), MiB(10));
  EXPECT_EQ(daemon_.fixed(), MiB(10));
  EXPECT_EQ(guest_->used(), MiB(10));
  CUdeviceptr opened = 0;
  ASSERT_EQ(Open(handle, &opened), CUDA_SUCCESS);
  EXPECT_TRUE(AllBytes(opened, MiB(10), 7));
  EXPECT_EQ(daemon_.fixed(), MiB(20));  // it counts on both sides
  FillBytes(opened, MiB(10), 8);
  EXPECT_TRUE(AllBytes(pointer, MiB(10), 8));
  EXPECT_EQ(guest_->opened().Close(opened + 1), std::nullopt);
  EXPECT_EQ(guest_->opened().Close(opened), CUDA_SUCCESS);
  EXPECT_EQ(guest_->opened().Close(opened), std::nullopt);
  daemon_.AwaitFixed(MiB(10));
  EXPECT_EQ(guest_->Free(pointer), CUDA_SUCCESS);
  daemon_.Expect<wire::Withdraw>();
  daemon_.AwaitFixed(Bytes());
  EXPECT_EQ(driver_.used(), 0u);
}

TEST_F(MemoryOffersTest, OnlyTheRestLeavesTheCard) {
  const CUdeviceptr pointer = Filled(MiB(8), 7);
  ASSERT_EQ(Offer(pointer), CUDA_SUCCESS);
  const CUdeviceptr other = Allocate(MiB(4));
  Submit([&] { FillBytes(other, MiB(4), 9); });
  LoseTheCard(1);
  EXPECT_EQ(Bytes(driver_.used()), MiB(8));
  EXPECT_TRUE(AllBytes(pointer, MiB(8), 7));
  EXPECT_EQ(Offer(pointer), CUDA_SUCCESS);  // a handle that there is needs no lease
  EXPECT_EQ(daemon_.offered(), 1);
}

TEST_F(MemoryOffersTest, APageIsSharedAsAWholeUntilItsLastBlockGoes) {
  const CUdeviceptr small = Allocate(Bytes(1000)), neighbour = Allocate(Bytes(1000));
  ASSERT_EQ(small / kGranule, neighbour / kGranule);
  std::thread work = SubmitLater([=] { FillBytes(neighbour, Bytes(1000), 3); });
  EXPECT_EQ(Bytes(daemon_.Expect<wire::Ready>().need_bytes), MiB(2));
  daemon_.Send(wire::Grant{1, MiB(2).count, 1000});
  daemon_.Expect<wire::Running>();
  work.join();
  IpcHandle of_small, of_neighbour;
  ASSERT_EQ(Offer(small, &of_small), CUDA_SUCCESS);
  ASSERT_EQ(Offer(neighbour, &of_neighbour), CUDA_SUCCESS);
  EXPECT_EQ(of_small.token(), of_neighbour.token());
  CUdeviceptr opened[2] = {};
  ASSERT_EQ(Open(of_small, &opened[0]), CUDA_SUCCESS);
  ASSERT_EQ(Open(of_neighbour, &opened[1]), CUDA_SUCCESS);
  EXPECT_EQ(opened[1] - opened[0], neighbour - small);
  EXPECT_TRUE(AllBytes(opened[1], Bytes(1000), 3));
  EXPECT_EQ(daemon_.fixed(), MiB(4));
  guest_->opened().ContextEnds(driver_.context());
  daemon_.AwaitFixed(MiB(2));
  for (const CUdeviceptr pointer : {small, neighbour}) {
    EXPECT_EQ(guest_->Free(pointer), CUDA_SUCCESS);
  }
  daemon_.Expect<wire::Withdraw>();
  daemon_.AwaitFixed(Bytes());
}

TEST_F(MemoryOffersTest, WhatFailsLeavesAllAsItWas) {
  const CUdeviceptr pointer = Filled(MiB(8), 7);
  const auto refused = [&](CUresult with) {
    EXPECT_EQ(Offer(pointer), with);
    EXPECT_TRUE(AllBytes(pointer, MiB(8), 7));
    EXPECT_EQ(Bytes(driver_.used()), MiB(8));
    daemon_.AwaitFixed(Bytes());
  };
  driver_.FailCreate(1);
  refused(CUDA_ERROR_OUT_OF_MEMORY);
  driver_.FailMap(1);  // where it is copied to
  refused(CUDA_ERROR_OUT_OF_MEMORY);
  driver_.FailMap(2);  // in the old one's place
  refused(CUDA_ERROR_OUT_OF_MEMORY);
  driver_.FailCopy(1, CUDA_ERROR_NOT_SUPPORTED);
  refused(CUDA_ERROR_NOT_SUPPORTED);
  daemon_.GrantFixed(MiB(7));
  refused(CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(daemon_.offered(), 0);
  LoseTheCard(1);
  EXPECT_EQ(driver_.used(), 0u);
}

TEST_F(MemoryOffersTest, WhatTheDriverWillNotPutBackIsLostAndCountsForNothing) {
  const CUdeviceptr pointer = Filled(MiB(8), 7);
  driver_.FailMaps(2, 3);  // in the old one's place, and twice the first chunk
  EXPECT_EQ(Offer(pointer), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(driver_.IsMapped(pointer));
  EXPECT_TRUE(driver_.IsMapped(pointer + kChunk.count));
  EXPECT_EQ(Bytes(driver_.used()), MiB(4));
  daemon_.AwaitFixed(Bytes());
  Submit([] {});  // nothing is waited for
  EXPECT_EQ(Offer(pointer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(guest_->Free(pointer), CUDA_SUCCESS);
  AwaitEmptyCard();
  EXPECT_EQ(guest_->used(), Bytes());
}

// The program's other threads may free what is being shared.
TEST_F(MemoryOffersTest, WhatIsFreedWhileItMovesIsGoneAfterwards) {
  const CUdeviceptr pointer = Filled(MiB(8), 7);
  driver_.DuringMove([&] {
    std::thread frees([&] { EXPECT_EQ(guest_->Free(pointer), CUDA_SUCCESS); });
    frees.join();
  });
  IpcHandle handle;
  ASSERT_EQ(Offer(pointer, &handle), CUDA_SUCCESS);
  const auto gone = daemon_.Expect<wire::Withdraw>();
  EXPECT_EQ(OfferToken(gone.token_high, gone.token_low), handle.token());
  daemon_.AwaitFixed(Bytes());
  EXPECT_EQ(guest_->used(), Bytes());
  EXPECT_EQ(driver_.used(), 0u);
  EXPECT_EQ(Offer(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryOffersTest, APageThatIsFreedWhileItMovesIsGoneAfterwards) {
  const CUdeviceptr pointer = Allocate(Bytes(1000));
  std::thread work = SubmitLater([=] { FillBytes(pointer, Bytes(1000), 3); });
  EXPECT_EQ(Bytes(daemon_.Expect<wire::Ready>().need_bytes), MiB(2));
  daemon_.Send(wire::Grant{1, MiB(2).count, 1000});
  daemon_.Expect<wire::Running>();
  work.join();
  driver_.DuringMove([&] {
    std::thread frees([&] { EXPECT_EQ(guest_->Free(pointer), CUDA_SUCCESS); });
    frees.join();
  });
  ASSERT_EQ(Offer(pointer), CUDA_SUCCESS);
  daemon_.Expect<wire::Withdraw>();
  daemon_.AwaitFixed(Bytes());
  EXPECT_EQ(guest_->used(), Bytes());
  EXPECT_EQ(driver_.used(), 0u);
  guest_->GiveWay();  // no page of it is kept
  EXPECT_EQ(guest_->used(), Bytes());
}

TEST_F(MemoryOffersTest, WhatIsFreedBeforeItMovesIsNotShared) {
  const CUdeviceptr pointer = Filled(MiB(8), 7);
  CUipcMemHandle packed = {};
  const auto frees = [&] { guest_->Free(pointer); };
  EXPECT_EQ(guest_->offers().Offer(pointer, frees, &packed), CUDA_ERROR_INVALID_VALUE);
  daemon_.AwaitFixed(Bytes());
  EXPECT_EQ(guest_->used(), Bytes());
  EXPECT_EQ(daemon_.offered(), 0);
}

TEST_F(MemoryOffersTest, WhatTheDaemonRefusesStaysWhereItIs) {
  const CUdeviceptr pointer = Filled(MiB(8), 7);
  daemon_.TurnAwayOffers(wire::RefusalCode::kTooMany, 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Offer(pointer), CUDA_ERROR_OUT_OF_MEMORY);
    daemon_.Expect<wire::Withdraw>();  // should the agent have told it meanwhile
  }
  EXPECT_EQ(daemon_.fixed(), MiB(8));
  EXPECT_EQ(guest_->Free(pointer), CUDA_SUCCESS);
  daemon_.AwaitFixed(Bytes());
}

// As a daemon does that is slow, or that does not know the session yet.
TEST_F(MemoryOffersTest, WhatTheDaemonDidNotHearItIsToldLater) {
  std::optional<wire::RefusalCode> reasons[] = {std::nullopt, wire::RefusalCode::kNoSession};
  const CUdeviceptr large = Filled(MiB(8), 7);
  int offered = 0;
  for (const auto& why : reasons) {
    const CUdeviceptr pointer = offered == 0 ? large : Allocate(MiB(2));
    IpcHandle handle;
    daemon_.TurnAwayOffers(why, 2);
    ASSERT_EQ(Offer(pointer, &handle), CUDA_SUCCESS);
    ++offered;
    AWAIT(daemon_.offered() >= offered);
    CUdeviceptr opened = 0;
    ASSERT_EQ(Open(handle, &opened), CUDA_SUCCESS);
    ASSERT_EQ(Offer(pointer), CUDA_SUCCESS);  // the same
  }
}

TEST_F(MemoryOffersTest, EverythingIsToldAgainThoughTheFirstTryFails) {
  ASSERT_EQ(Offer(Filled(MiB(8), 7)), CUDA_SUCCESS);
  ASSERT_EQ(Offer(Allocate(MiB(2))), CUDA_SUCCESS);
  daemon_.TurnAwayOffers(std::nullopt, 1);
  daemon_.HangUp();
  daemon_.Expect<wire::Register>();
  AWAIT(daemon_.offered() >= 4);
}

TEST_F(MemoryOffersTest, TheNextDaemonIsToldAgain) {
  const CUdeviceptr pointer = Filled(MiB(8), 7);
  IpcHandle handle;
  ASSERT_EQ(Offer(pointer, &handle), CUDA_SUCCESS);
  daemon_.HangUp();
  EXPECT_EQ(Bytes(daemon_.Expect<wire::Register>().fixed_bytes), MiB(8));
  AWAIT(daemon_.offered() >= 2);
  CUdeviceptr opened = 0;
  ASSERT_EQ(Open(handle, &opened), CUDA_SUCCESS);
  EXPECT_TRUE(AllBytes(opened, MiB(8), 7));
}

TEST_F(MemoryOffersTest, WhoOpensWhileThereIsNoDaemonWaitsForTheNext) {
  const CUdeviceptr pointer = Filled(MiB(8), 7);
  IpcHandle handle;
  ASSERT_EQ(Offer(pointer, &handle), CUDA_SUCCESS);
  daemon_.Refuse(true);
  daemon_.HangUp();
  daemon_.AwaitRefusal();
  CUdeviceptr opened = 0;
  std::thread opens([&] { EXPECT_EQ(Open(handle, &opened), CUDA_SUCCESS); });
  daemon_.AwaitRefusal();
  daemon_.Refuse(false);
  opens.join();
  EXPECT_TRUE(AllBytes(opened, MiB(8), 7));
}

// The same with events while an opener waits for room.
class OpenedMemoryTest : public MemoryOffersTest, public Reclaim {
 protected:
  OpenedMemoryTest() : opened_(&driver_.table(), 0, &guest_->fixed(), this) {}

  bool GiveWay() override { return guest_->GiveWay(); }
  bool MakeRoom(Bytes bytes) override {
    if (const auto in_wait = std::exchange(in_wait_, nullptr)) in_wait();
    return guest_->MakeRoom(bytes);
  }

  CUresult Open(const IpcHandle& handle, CUdeviceptr* pointer) {
    return opened_.Open(handle, driver_.context(), 0, pointer);
  }

  std::function<void()> in_wait_;  // happens while an opener waits for room, once
  OpenedMemory opened_;
};

TEST_F(OpenedMemoryTest, WhoWaitsForRoomKeepsNoMemoryAlive) {
  const CUdeviceptr pointer = Filled(MiB(8), 7);
  IpcHandle handle;
  ASSERT_EQ(Offer(pointer, &handle), CUDA_SUCCESS);
  in_wait_ = [this] { daemon_.ForgetOffers(); };
  CUdeviceptr opened = 0;
  EXPECT_EQ(Open(handle, &opened), CUDA_ERROR_MAP_FAILED);
  daemon_.AwaitFixed(MiB(8));
}

TEST_F(OpenedMemoryTest, NobodyWaitsForWhoWaitsForRoomButForTheSame) {
  IpcHandle first, second;
  ASSERT_EQ(Offer(Filled(MiB(8), 7), &first), CUDA_SUCCESS);
  ASSERT_EQ(Offer(Allocate(MiB(2)), &second), CUDA_SUCCESS);
  CUdeviceptr before = 0, opened = 0, again = 0;
  ASSERT_EQ(Open(second, &before), CUDA_SUCCESS);
  std::thread opens_again;
  in_wait_ = [&] {
    opens_again = std::thread([&] { EXPECT_EQ(Open(first, &again), CUDA_SUCCESS); });
    int other = 0;
    opened_.ContextEnds(reinterpret_cast<CUcontext>(&other));
    EXPECT_EQ(opened_.Close(before), CUDA_SUCCESS);
    EXPECT_EQ(Open(second, &before), CUDA_SUCCESS);
    EXPECT_EQ(opened_.Close(before), CUDA_SUCCESS);
  };
  ASSERT_EQ(Open(first, &opened), CUDA_SUCCESS);
  opens_again.join();
  EXPECT_EQ(opened, again);
  daemon_.AwaitFixed(MiB(18));
  opened_.ContextEnds(driver_.context());
  daemon_.AwaitFixed(MiB(10));
}

TEST_F(OpenedMemoryTest, WhatItsContextDidNotLiveToSeeIsUnmapped) {
  IpcHandle handle;
  ASSERT_EQ(Offer(Filled(MiB(8), 7), &handle), CUDA_SUCCESS);
  in_wait_ = [this] { opened_.ContextEnds(driver_.context()); };
  CUdeviceptr opened = 0;
  EXPECT_EQ(Open(handle, &opened), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  daemon_.AwaitFixed(MiB(8));
  EXPECT_EQ(Open(handle, &opened), CUDA_SUCCESS);
}

// The maker has freed a small block, and another one of the page has its place.
TEST_F(OpenedMemoryTest, ABlockIsAsLargeAsTheLargestThere) {
  IpcHandle handle;
  ASSERT_EQ(Offer(Filled(MiB(8), 7), &handle), CUDA_SUCCESS);
  CUdeviceptr opened = 0;
  handle.bytes = 1000;
  ASSERT_EQ(Open(handle, &opened), CUDA_SUCCESS);
  handle.bytes = 1500;
  ASSERT_EQ(Open(handle, &opened), CUDA_SUCCESS);
  EXPECT_TRUE(opened_.Find(opened + 1499).has_value());
  EXPECT_FALSE(opened_.Find(opened + 1500).has_value());
}

TEST_F(MemoryOffersTest, AHandleIsOpenInOneContextAndNamesWhatThereIs) {
  const CUdeviceptr pointer = Filled(MiB(8), 7);
  IpcHandle handle;
  ASSERT_EQ(Offer(pointer, &handle), CUDA_SUCCESS);
  EXPECT_TRUE(guest_->offers().Has(handle.token()));
  CUdeviceptr opened = 0, again = 0;
  ASSERT_EQ(Open(handle, &opened), CUDA_SUCCESS);
  ASSERT_EQ(Open(handle, &again), CUDA_SUCCESS);
  EXPECT_EQ(opened, again);
  int other = 0;
  EXPECT_EQ(guest_->opened().Open(handle, reinterpret_cast<CUcontext>(&other), 0, &again),
            CUDA_ERROR_ALREADY_MAPPED);
  EXPECT_EQ(daemon_.fixed(), MiB(16));
  handle.token_low ^= 1;
  EXPECT_EQ(Open(handle, &again), CUDA_ERROR_MAP_FAILED);
  EXPECT_EQ(daemon_.fixed(), MiB(16));
  EXPECT_FALSE(guest_->offers().Has(handle.token()));
}

}  // namespace
}  // namespace tandem::shim
