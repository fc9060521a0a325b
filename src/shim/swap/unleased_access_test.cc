#include "src/shim/swap/unleased_access.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "src/shim/testing/await.h"
#include "src/shim/testing/unleased_fixture.h"

namespace tandem::shim {
namespace {

// A page without access rights.
class NobodysPage {
 public:
  NobodysPage() : page_(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~NobodysPage() { munmap(page_, 4096); }
  void* get() const { return page_; }

 private:
  void* const page_;
};

TEST_F(UnleasedAccessTest, IsReadWithoutTheCard) {
  const CUdeviceptr pointer = AllocateAway(MiB(24));
  ASSERT_TRUE(access().MayServe(nullptr));
  const uint64_t size = MiB(20).count + 3;
  Data data(size + 1, 1);
  EXPECT_TRUE(access().Read(data.data(), pointer + 5, size));
  EXPECT_EQ(Data(data.begin(), data.end() - 1), Data(size, 0x5a));
  EXPECT_EQ(data.back(), 1);
  EXPECT_EQ(driver_.used(), 0u);
}

TEST_F(UnleasedAccessTest, WhatIsWrittenComesToTheCard) {
  const CUdeviceptr pointer = AllocateAway(MiB(24));
  const Data data = Counted(MiB(20));
  EXPECT_TRUE(access().Write(pointer + 7, data.data(), data.size()));
  const CUdeviceptr end = pointer + MiB(24).count;
  EXPECT_TRUE(access().Fill(end - 16, {0xb1, 1}, 3));
  EXPECT_TRUE(access().Fill(end - 12, {0xc1c2, 2}, 2));
  EXPECT_TRUE(access().Fill(end - 8, {0xd1d2d3d4, 4}, 1));
  EXPECT_TRUE(access().Move(end - 1024, pointer + 7, 100));
  RunUnderLease(2, MiB(24), [&] {
    EXPECT_TRUE(AllBytes(pointer, Bytes(7), 0x5a));
    EXPECT_TRUE(Holds(pointer + 7, data));
    EXPECT_TRUE(Holds(end - 1024, Data(data.begin(), data.begin() + 100)));
    EXPECT_TRUE(Holds(end - 16, {0xb1, 0xb1, 0xb1, 0x5a, 0xc2, 0xc1, 0xc2, 0xc1, 0xd4, 0xd3, 0xd2,
                                 0xd1, 0x5a, 0x5a, 0x5a, 0x5a}));
  });
}

TEST_F(UnleasedAccessTest, WhatIsWrittenCanLeaveAndBeWrittenAgain) {
  const CUdeviceptr pointer = AllocateAway(MiB(8));
  EXPECT_TRUE(access().Fill(pointer, {1, 1}, MiB(8).count));
  RunUnderLease(2, MiB(8), [] {});
  TakeTheCard(2, Bytes());
  EXPECT_TRUE(access().Fill(pointer, {2, 1}, MiB(4).count));
  RunUnderLease(3, MiB(8), [=] {
    EXPECT_TRUE(AllBytes(pointer, MiB(4), 2));
    EXPECT_TRUE(AllBytes(pointer + MiB(4).count, MiB(4), 1));
  });
}

TEST_F(UnleasedAccessTest, MemoryIsFilledBeforeItWasEverOnTheCard) {
  daemon_.decisions().host_share_bytes = MiB(16).count;
  const CUdeviceptr pointer = Allocate(MiB(16));
  ASSERT_TRUE(access().MayServe(nullptr));
  Data data(100, 1);
  EXPECT_TRUE(access().Read(data.data(), pointer, data.size()));
  EXPECT_EQ(data, Data(100));  // anything but another process's
  const Data written = Counted(MiB(12));
  EXPECT_TRUE(access().Write(pointer + MiB(4).count, written.data(), written.size()));
  RunUnderLease(1, MiB(16), [&] { EXPECT_TRUE(Holds(pointer + MiB(4).count, written)); });
}

TEST_F(UnleasedAccessTest, NoMoreIsPutOnTheHostThanWasPromised) {
  daemon_.decisions().host_share_bytes = MiB(8).count;
  const CUdeviceptr pointer = Allocate(MiB(16));
  EXPECT_FALSE(access().Fill(pointer, {1, 1}, MiB(16).count));
  EXPECT_TRUE(access().Fill(pointer, {1, 1}, MiB(8).count));
  EXPECT_FALSE(access().Fill(pointer + MiB(8).count, {1, 1}, 1));
  EXPECT_TRUE(access().Fill(pointer, {2, 1}, MiB(8).count));
}

// Copies need nothing that the holder has; the rest is for the card's engines.
TEST_F(UnleasedAccessTest, WhatIsPartlyOnTheCardIsCopiedAndNothingElse) {
  const CUdeviceptr pointer = RunWith(MiB(16), 1);
  TakeTheCard(1, MiB(8));
  daemon_.decisions().host_share_bytes = MiB(16).count;
  Data data(MiB(8).count);
  EXPECT_TRUE(access().Read(data.data(), pointer + MiB(7).count, MiB(8).count));
  EXPECT_EQ(data, Data(MiB(8).count, 0x5a));
  data.assign(data.size(), 0x77);
  EXPECT_TRUE(access().Write(pointer + MiB(6).count, data.data(), MiB(4).count));
  EXPECT_FALSE(access().Fill(pointer, {1, 1}, MiB(16).count));
  EXPECT_FALSE(access().Move(pointer + MiB(8).count, pointer, 1));
  EXPECT_FALSE(access().Move(pointer, pointer + MiB(8).count, 1));
  daemon_.Send(wire::Evict{0});  // what was written there must not be lost
  while (daemon_.Expect<wire::Evicted>().resident_bytes != 0) {
  }
  RunUnderLease(2, MiB(16), [=] {
    EXPECT_TRUE(AllBytes(pointer, MiB(6), 0x5a));
    EXPECT_TRUE(AllBytes(pointer + MiB(6).count, MiB(4), 0x77));
    EXPECT_TRUE(AllBytes(pointer + MiB(10).count, MiB(6), 0x5a));
  });
}

TEST_F(UnleasedAccessTest, WhatHasOnlyComeBackAndIsWrittenIsCopiedWhenItLeaves) {
  const CUdeviceptr pointer = AllocateAway(MiB(8));
  std::thread work = SubmitLater([=] {
    EXPECT_TRUE(AllBytes(pointer, MiB(4), 1));
    EXPECT_TRUE(AllBytes(pointer + MiB(4).count, MiB(4), 0x5a));
  });
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Grant{2, MiB(4).count, 1000});
  AWAIT(driver_.used() != 0);
  daemon_.Send(wire::Revoke{2, 1000000});
  EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, 2u);
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Evict{MiB(4).count});
  EXPECT_EQ(daemon_.Expect<wire::Evicted>().resident_bytes, MiB(4).count);
  const Data data(MiB(4).count, 1);
  EXPECT_TRUE(access().Write(pointer, data.data(), data.size()));
  daemon_.Send(wire::Evict{0});
  EXPECT_EQ(daemon_.Expect<wire::Evicted>().copied_bytes, MiB(4).count);
  daemon_.Send(wire::Grant{3, MiB(8).count, 1000});
  EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, 3u);
  work.join();
}

TEST_F(UnleasedAccessTest, WhatIsColdIsCopiedWhereItIs) {
  daemon_.decisions().host_share_bytes = kLimit.count;
  daemon_.decisions().most_resident_bytes = MiB(8).count;
  const CUdeviceptr pointer = Allocate(MiB(16));
  RunUnderLease(1, MiB(8),
                [=] { std::memset(reinterpret_cast<void*>(pointer), 0x5a, MiB(16).count); });
  TakeTheCard(1, Bytes());
  Data data(MiB(16).count);
  EXPECT_TRUE(access().Read(data.data(), pointer, data.size()));
  EXPECT_EQ(data, Data(data.size(), 0x5a));
  const Data written = Counted(MiB(12));
  EXPECT_TRUE(access().Write(pointer + MiB(3).count, written.data(), written.size()));
  EXPECT_EQ(driver_.used(), 0u);
  RunUnderLease(2, MiB(8), [&] {
    EXPECT_TRUE(AllBytes(pointer, MiB(3), 0x5a));
    EXPECT_TRUE(Holds(pointer + MiB(3).count, written));
  });
}

TEST_F(UnleasedAccessTest, WhatIsArrivingIsTheDriversAffair) {
  const CUdeviceptr pointer = AllocateAway(MiB(4));
  driver_.HoldCopies();
  std::atomic<bool> done{false};
  std::thread work = SubmitLater([&] {
    EXPECT_TRUE(AllBytes(pointer, MiB(4), 0x5a));
    done = true;
  });
  daemon_.Expect<wire::Ready>();
  daemon_.Send(wire::Grant{2, MiB(4).count, 1000});
  AWAIT(driver_.used() != 0);
  unsigned char byte = 0;
  EXPECT_FALSE(access().Read(&byte, pointer, 1));
  EXPECT_FALSE(access().Fill(pointer, {1, 1}, 1));
  while (!done) driver_.LetCopies(1);
  work.join();
}

TEST_F(UnleasedAccessTest, TheDriverAnswersToWrongAddresses) {
  const CUdeviceptr pointer = AllocateAway(MiB(8));
  const NobodysPage page;
  Data data(100);
  for (void* const host : {page.get(), static_cast<void*>(nullptr),
                           reinterpret_cast<void*>(pointer), reinterpret_cast<void*>(~0ull - 10)}) {
    EXPECT_FALSE(access().Read(host, pointer, 100));
    EXPECT_FALSE(access().Write(pointer, host, 100));
  }
  EXPECT_FALSE(access().Read(data.data(), pointer + MiB(8).count - 99, 100));
  EXPECT_FALSE(access().Read(data.data(), pointer - 1, 100));
  EXPECT_FALSE(access().Read(data.data(), pointer, 0));
  EXPECT_FALSE(access().Read(data.data(), pointer, ~uint64_t{0}));
  EXPECT_FALSE(access().Fill(pointer + 1, {1, 2}, 1));
  EXPECT_FALSE(access().Fill(pointer, {1, 4}, ~uint64_t{0} / 2));
  EXPECT_FALSE(access().Move(pointer, reinterpret_cast<CUdeviceptr>(data.data()), 100));
  EXPECT_TRUE(access().Read(data.data(), pointer, 100));  // no call has kept the lock
  EXPECT_EQ(data, Data(100, 0x5a));
}

TEST_F(UnleasedAccessTest, NothingIsServedWhileTheDriverMayHaveASay) {
  const CUdeviceptr pointer = AllocateAway(MiB(8));
  EXPECT_TRUE(access().MayServe(nullptr));
  tracker_.OnCaptureBegun();
  EXPECT_FALSE(access().MayServe(nullptr));
  tracker_.OnCaptureEnded();
  RunUnderLease(2, MiB(8), [&] { EXPECT_FALSE(access().MayServe(nullptr)); });
  EXPECT_FALSE(access().MayServe(nullptr));  // what was submitted may be under way
  const CUdeviceptr more = Allocate(MiB(8));
  EXPECT_FALSE(gate_.open());
  EXPECT_FALSE(access().MayServe(nullptr));
  EXPECT_FALSE(access().Fill(more, {1, 1}, 1));
  unsigned char byte = 0;
  EXPECT_FALSE(access().Read(&byte, pointer, 1));
}

class UnleasedMappingTest : public UnleasedAccessTest {
 protected:
  UnleasedMappingTest() {
    daemon_.decisions().host_share_bytes = kLimit.count;
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    EXPECT_EQ(driver_.table().cuMemAddressReserve(&base_, MiB(16).count, kGranule, 0, 0),
              CUDA_SUCCESS);
  }

  // At the offset, to be read and written.
  void Map(Bytes offset, Bytes bytes) {
    VmmMemory::Handle handle = 0;
    ASSERT_EQ(guest_->vmm().Create(bytes.count, properties_, &handle), CUDA_SUCCESS);
    ASSERT_EQ(guest_->vmm().Map(base_ + offset.count, bytes.count, handle, true), CUDA_SUCCESS);
    Allow(offset, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
  void Allow(Bytes offset, Bytes bytes, CUmemAccess_flags flags) {
    const CUmemAccessDesc allowed = {properties_.location, flags};
    ASSERT_EQ(guest_->vmm().SetAccess(base_ + offset.count, bytes.count, &allowed, 1),
              CUDA_SUCCESS);
  }

  CUmemAllocationProp properties_ = {};
  CUdeviceptr base_ = 0;
};

TEST_F(UnleasedMappingTest, IsServedToo) {
  for (const Bytes offset : {Bytes(), MiB(6)}) Map(offset, MiB(6));
  const Data data = Counted(MiB(10));
  EXPECT_TRUE(access().Write(base_ + MiB(1).count, data.data(), data.size()));
  EXPECT_FALSE(access().Write(base_ + MiB(3).count, data.data(), data.size()));  // beyond the last
  Data back(data.size());
  EXPECT_TRUE(access().Read(back.data(), base_ + MiB(1).count, back.size()));
  EXPECT_EQ(back, data);
  RunUnderLease(1, MiB(12), [&] { EXPECT_TRUE(Holds(base_ + MiB(1).count, data)); });
  TakeTheCard(1, Bytes());
  Allow(Bytes(), MiB(6), CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_FALSE(access().Write(base_, data.data(), 1));
}

TEST_F(UnleasedMappingTest, OfColdMemoryIsNoMemoryOfTheHosts) {
  daemon_.decisions().most_resident_bytes = MiB(8).count;
  Map(Bytes(), MiB(16));
  RunUnderLease(1, MiB(8), [] {});
  TakeTheCard(1, Bytes());
  CUdeviceptr cold = base_;
  while (!driver_.IsMapped(cold)) cold += kChunk.count;
  unsigned int type = 0;
  ASSERT_EQ(driver_.table().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, cold),
            CUDA_SUCCESS);
  EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  const CUdeviceptr pointer = Allocate(MiB(2));
  EXPECT_FALSE(access().Read(reinterpret_cast<void*>(cold), pointer, 16));
  EXPECT_FALSE(access().Write(pointer, reinterpret_cast<const void*>(cold), 16));
}

}  // namespace
}  // namespace tandem::shim
