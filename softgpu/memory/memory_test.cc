#include "softgpu/memory/memory.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>
#include <random>
#include <string>

namespace tandem::soft {
namespace {

class SoftMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tandem-soft-test-XXXXXX";
    directory_ = mkdtemp(pattern);
    shared_ = SharedDevice::Open(directory_, "gpu", MiB(32)).value();
    space_ = AddressSpace::Create(GiB(4).count).value();
    store_ = PhysicalStore::Create(shared_.get()).value();
  }
  void TearDown() override {
    unlink((directory_ + "/tandem-soft-gpu").c_str());
    rmdir(directory_.c_str());
  }
  uint8_t* At(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

  std::string directory_;
  std::unique_ptr<SharedDevice> shared_;
  std::unique_ptr<AddressSpace> space_;
  std::unique_ptr<PhysicalStore> store_;
};

TEST_F(SoftMemoryTest, SmallBlocksShareAPage) {
  Heap heap(space_.get(), store_.get(), 0);
  const uint64_t one = heap.Allocate(1, 100), two = heap.Allocate(1, 100);
  EXPECT_EQ(shared_->Free(), MiB(30));
  const uint64_t other = heap.Allocate(2, 100);
  EXPECT_EQ(shared_->Free(), MiB(28));
  EXPECT_EQ(one % kBlockAlignment, 0u);
  EXPECT_EQ(two - one, kBlockAlignment);
  EXPECT_TRUE(heap.Free(one));
  EXPECT_FALSE(heap.Free(one));
  EXPECT_FALSE(heap.Find(one).has_value());
  EXPECT_TRUE(heap.Find(two + 99).has_value());
  EXPECT_FALSE(heap.Find(two + 100).has_value());
  heap.FreeAll(1);
  EXPECT_EQ(shared_->Free(), MiB(30));
  EXPECT_TRUE(heap.Free(other));
  EXPECT_EQ(shared_->Free(), MiB(32));
}

TEST_F(SoftMemoryTest, FreedMemoryComesBackZeroAndUnmapped) {
  Heap heap(space_.get(), store_.get(), 0);
  const uint64_t block = heap.Allocate(1, MiB(4).count);
  ASSERT_NE(block, 0u);
  EXPECT_TRUE(space_->Allows(block, MiB(4).count, Access::kReadWrite));
  EXPECT_FALSE(space_->Allows(block, MiB(4).count + 1, Access::kRead));
  std::memset(At(block), 0xab, MiB(4).count);
  ASSERT_TRUE(heap.Free(block));
  EXPECT_FALSE(space_->Allows(block, 1, Access::kRead));
  const uint64_t again = heap.Allocate(1, MiB(4).count);
  EXPECT_EQ(At(again)[0], 0);
  EXPECT_EQ(At(again)[MiB(4).count - 1], 0);
  heap.FreeAll(1);
}

// For the next who wants some; of more than that the host gets the rest back.
TEST_F(SoftMemoryTest, SomeOfWhatIsFreedStays) {
  const uint64_t most = PhysicalStore::kMostKept, vram = most + MiB(16).count;
  auto shared = SharedDevice::Open(directory_, "large", Bytes(vram)).value();
  unlink((directory_ + "/tandem-soft-large").c_str());
  auto store = PhysicalStore::Create(shared.get()).value();
  store->Free(store->Allocate(vram));
  EXPECT_EQ(store->kept(), most);
  EXPECT_EQ(shared->Free(), Bytes(vram));
  const std::vector<Range> some = store->Allocate(MiB(4).count);
  EXPECT_EQ(store->kept(), most - MiB(4).count);
  const std::vector<Range> rest = store->Allocate(vram - MiB(4).count);
  EXPECT_EQ(store->kept(), 0u);
  EXPECT_TRUE(store->Allocate(kPageBytes).empty());
  store->Free(some);
  store->Free(rest);
  EXPECT_EQ(store->kept(), most);
  store->Free(store->Allocate(vram));  // all of it is free, and once
}

TEST_F(SoftMemoryTest, FragmentsAddUp) {
  Heap heap(space_.get(), store_.get(), 0);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(heap.Allocate(1, kPageBytes));
  for (int i = 0; i < 16; i += 2) EXPECT_TRUE(heap.Free(blocks[i]));
  const uint64_t large = heap.Allocate(1, 8 * kPageBytes);
  ASSERT_NE(large, 0u);
  for (uint64_t page = 0; page < 8; ++page) At(large)[page * kPageBytes] = uint8_t(page + 1);
  for (uint64_t page = 0; page < 8; ++page) EXPECT_EQ(At(large)[page * kPageBytes], page + 1);
  EXPECT_EQ(heap.Allocate(1, 1), 0u);
  heap.FreeAll(1);
  EXPECT_EQ(shared_->Free(), MiB(32));
}

// Addresses that were left without any mapping would be the program's next mmap's.
TEST_F(SoftMemoryTest, AFailedMappingKeepsItsAddresses) {
  const uint64_t address = space_->Reserve(kPageBytes);
  void* gone =
      mmap(nullptr, kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  munmap(gone, kPageBytes);
  // Linux refuses it, some versions of it only after they have cleared the target.
  EXPECT_FALSE(space_->Map(address, gone, kPageBytes));
  EXPECT_EQ(mmap(At(address), kPageBytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
            MAP_FAILED);
}

TEST_F(SoftMemoryTest, AHandleMayBeMappedTwice) {
  Vmm vmm(space_.get());
  uint64_t address = 0;
  Vmm::Handle handle = 0;
  ASSERT_EQ(vmm.Reserve(2 * kPageBytes, 0, 0, &address), CUDA_SUCCESS);
  ASSERT_EQ(vmm.Create(store_.get(), {}, kPageBytes, {}, &handle), CUDA_SUCCESS);
  ASSERT_EQ(vmm.Map(address, kPageBytes, handle), CUDA_SUCCESS);
  ASSERT_EQ(vmm.Map(address + kPageBytes, kPageBytes, handle), CUDA_SUCCESS);
  EXPECT_EQ(vmm.Map(address, kPageBytes, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(space_->Allows(address, 1, Access::kRead));
  ASSERT_EQ(vmm.SetAccess(address, 2 * kPageBytes, {{0, Access::kRead}}), CUDA_SUCCESS);
  EXPECT_TRUE(space_->Allows(address, 2 * kPageBytes, Access::kRead));
  EXPECT_FALSE(space_->Allows(address, 1, Access::kReadWrite));
  // Another device that is named takes nothing from the one the memory is on.
  EXPECT_EQ(vmm.SetAccess(address, kPageBytes, {{0, Access::kReadWrite}, {1, Access::kRead}}),
            CUDA_SUCCESS);
  EXPECT_EQ(vmm.SetAccess(address, kPageBytes, {{1, Access::kNone}}), CUDA_SUCCESS);
  EXPECT_EQ(vmm.Find(address)->access, Access::kReadWrite);
  At(address)[5] = 42;
  EXPECT_EQ(At(address + kPageBytes)[5], 42);
  EXPECT_EQ(vmm.Release(handle), CUDA_SUCCESS);
  EXPECT_EQ(vmm.FreeReservation(address, 2 * kPageBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(vmm.Unmap(address, kPageBytes), CUDA_SUCCESS);
  EXPECT_EQ(shared_->Free(), MiB(30));
  EXPECT_EQ(vmm.Unmap(address + kPageBytes, kPageBytes), CUDA_SUCCESS);
  EXPECT_EQ(shared_->Free(), MiB(32));
  EXPECT_EQ(vmm.FreeReservation(address, 2 * kPageBytes), CUDA_SUCCESS);
}

// A letter for each device: what its kernels may do there.
std::string UsersOf(const AddressSpace& space, uint64_t address) {
  const uint64_t page = (address - space.base()) >> kPageShift;
  const auto has = [&](const std::atomic<uint64_t>* bitmap) {
    return (bitmap[page / 64].load() >> (page % 64) & 1) != 0;
  };
  std::string users;
  for (int device = 0; device < 3; ++device) {
    users += has(space.writable(device)) ? 'w' : has(space.readable(device)) ? 'r' : '-';
  }
  return users;
}

TEST_F(SoftMemoryTest, DevicesUseWhatTheyHaveLeaveFor) {
  auto space = AddressSpace::Create(GiB(1).count, 3).value();
  Heap heap(space.get(), store_.get(), 1);
  constexpr uint64_t kOne = 100, kTwo = 200, kBehalf = 300, kOther = 301;
  const uint64_t one = heap.Allocate(kOne, 100), two = heap.Allocate(kTwo, 100);
  const uint64_t all = heap.Allocate(kOne, 100, Heap::Use::kProgram, Heap::Users::kEveryDevice);
  EXPECT_EQ(UsersOf(*space, one), "-w-");
  EXPECT_EQ(UsersOf(*space, all), "www");
  space->Give({0, kOne, kBehalf});
  space->Give({0, kOne, kOther});
  space->Give({2, kTwo, kOther});
  const uint64_t later = heap.Allocate(kOne, 2 * kPageBytes);
  EXPECT_EQ(UsersOf(*space, one), "ww-");
  EXPECT_EQ(UsersOf(*space, later + kPageBytes), "ww-");
  EXPECT_EQ(UsersOf(*space, two), "-ww");
  space->Take({0, kOne, kBehalf});
  EXPECT_EQ(UsersOf(*space, one), "ww-");  // the grant to kOther remains
  space->TakeAll(kOther);
  EXPECT_EQ(UsersOf(*space, one), "-w-");
  EXPECT_EQ(UsersOf(*space, two), "-w-");
  EXPECT_EQ(UsersOf(*space, all), "www");
  ASSERT_TRUE(heap.Free(later));
  EXPECT_EQ(UsersOf(*space, later), "---");
  space->Give({2, kOne, kBehalf});
  EXPECT_EQ(UsersOf(*space, later), "---");
  heap.FreeAll(kOne);
  space->TakeAll(kOne);
  EXPECT_EQ(UsersOf(*space, heap.Allocate(kOne, 100)), "-w-");
  heap.FreeAll(kOne);
  heap.FreeAll(kTwo);
}

// Advice is about pages of the host's, so that a block has its own.
TEST_F(SoftMemoryTest, ManagedBlocksShareNoPageOfTheHost) {
  Heap heap(space_.get(), store_.get(), 0);
  constexpr auto kManaged = Heap::Users::kEveryDevice;
  const uint64_t one = heap.Allocate(1, 1, Heap::Use::kProgram, kManaged);
  const uint64_t two = heap.Allocate(1, HostPageBytes() + 1, Heap::Use::kProgram, kManaged);
  const uint64_t three = heap.Allocate(1, 100, Heap::Use::kProgram, kManaged);
  EXPECT_EQ(shared_->Free(), MiB(30));
  for (const uint64_t block : {one, two, three}) EXPECT_EQ(block % HostPageBytes(), 0u);
  EXPECT_GE(two, one + HostPageBytes());
  EXPECT_GE(three, two + 2 * HostPageBytes());
  EXPECT_NE(heap.Find(two)->managed, nullptr);
  EXPECT_NE(heap.Find(two)->managed, heap.Find(three)->managed);
  EXPECT_EQ(heap.Find(heap.Allocate(1, 100))->managed, nullptr);
  // A block's advice goes with it.
  const std::weak_ptr<ManagedBlock> said = heap.Find(two)->managed;
  EXPECT_TRUE(heap.Free(two));
  EXPECT_TRUE(said.expired());
  heap.FreeAll(1);
  EXPECT_EQ(shared_->Free(), MiB(32));
}

TEST(ManagedBlockTest, SaysOfEachPageWhatWasSaidOfIt) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  constexpr uint64_t kPages = 20;
  const uint64_t page = HostPageBytes();
  ManagedBlock block;
  std::vector<CUdevice> expected(kPages, CU_DEVICE_INVALID);
  for (int step = 0; step < 500; ++step) {
    const uint64_t first = random() % kPages, count = 1 + random() % (kPages - first);
    const auto device = static_cast<CUdevice>(random() % 3);
    // From somewhere in the first page to somewhere in the last.
    const uint64_t begin = first * page + random() % page;
    const uint64_t end = (first + count - 1) * page + page - random() % page;
    if (begin >= end) continue;
    block.NotePrefetch({begin, end - begin}, device);
    std::fill_n(expected.begin() + static_cast<ptrdiff_t>(first), count, device);
    for (uint64_t i = 0; i < kPages; ++i) {
      ASSERT_EQ(block.AdviceFor({i * page, page}).prefetched, expected[i]) << step << ", " << i;
    }
  }
}

int64_t PageFaults() {
  rusage used = {};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_minflt;
}

// A card's memory is there: used memory is used again without a page fault of the host's.
TEST_F(SoftMemoryTest, MemoryThatComesBackGivesNoPageFaults) {
#ifdef TANDEM_SANITIZED
  GTEST_SKIP() << "sanitizers have pages of their own";
#endif
  if (!space_->tables_move()) GTEST_SKIP() << "the host's kernel cannot move page tables";
  constexpr uint64_t kBytes = 2 * kPageBytes;
  Vmm vmm(space_.get());
  Heap heap(space_.get(), store_.get(), 0);
  uint64_t reserved = 0;
  ASSERT_EQ(vmm.Reserve(kBytes, 0, 0, &reserved), CUDA_SUCCESS);
  const auto touch = [&](uint64_t address) {
    for (uint64_t at = 0; at < kBytes; at += HostPageBytes()) At(address + at)[0] = 1;
  };
  const auto map_and_touch = [&] {
    Vmm::Handle handle = 0;
    ASSERT_EQ(vmm.Create(store_.get(), {}, kBytes, {}, &handle), CUDA_SUCCESS);
    ASSERT_EQ(vmm.Map(reserved, kBytes, handle), CUDA_SUCCESS);
    touch(reserved);
    ASSERT_EQ(vmm.Unmap(reserved, kBytes), CUDA_SUCCESS);
    ASSERT_EQ(vmm.Release(handle), CUDA_SUCCESS);
  };
  const auto allocate_and_touch = [&] {
    const uint64_t block = heap.Allocate(1, kBytes);
    ASSERT_NE(block, 0u);
    touch(block);
    ASSERT_TRUE(heap.Free(block));
  };
  map_and_touch();
  const int64_t before = PageFaults();
  allocate_and_touch();
  map_and_touch();
  map_and_touch();
  EXPECT_LT(PageFaults() - before, static_cast<int64_t>(kPageBytes / HostPageBytes()) / 4);
}

// Whichever of two mappings goes first, and with the page tables of either.
TEST_F(SoftMemoryTest, MappingsOfTheSameMemoryGoInAnyOrder) {
  for (const bool first_goes_first : {true, false}) {
    Vmm vmm(space_.get());
    uint64_t address = 0;
    Vmm::Handle handle = 0;
    ASSERT_EQ(vmm.Reserve(2 * kPageBytes, 0, 0, &address), CUDA_SUCCESS);
    ASSERT_EQ(vmm.Create(store_.get(), {}, kPageBytes, {}, &handle), CUDA_SUCCESS);
    const uint64_t one = address, two = address + kPageBytes;
    ASSERT_EQ(vmm.Map(one, kPageBytes, handle), CUDA_SUCCESS);
    std::memset(At(one), 1, kPageBytes);
    ASSERT_EQ(vmm.Map(two, kPageBytes, handle), CUDA_SUCCESS);
    At(two)[0] = 2;
    const uint64_t gone = first_goes_first ? one : two, left = first_goes_first ? two : one;
    ASSERT_EQ(vmm.Unmap(gone, kPageBytes), CUDA_SUCCESS);
    EXPECT_EQ(At(left)[0], 2);
    EXPECT_EQ(At(left)[kPageBytes - 1], 1);
    ASSERT_EQ(vmm.Map(gone, kPageBytes, handle), CUDA_SUCCESS);
    EXPECT_EQ(At(gone)[0], 2);
    EXPECT_EQ(At(gone)[kPageBytes - 1], 1);
    ASSERT_EQ(vmm.Unmap(address, 2 * kPageBytes), CUDA_SUCCESS);
    ASSERT_EQ(vmm.Release(handle), CUDA_SUCCESS);
    ASSERT_EQ(vmm.FreeReservation(address, 2 * kPageBytes), CUDA_SUCCESS);
  }
}

// Bits are set word by word: at every edge, none too many and none too few.
TEST_F(SoftMemoryTest, ReachEndsWhereItWasSaidTo) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  constexpr uint64_t kPages = 200;
  const uint64_t base = space_->Reserve(kPages * kPageBytes);
  for (int round = 0; round < 100; ++round) {
    const uint64_t first = random() % kPages, count = 1 + random() % (kPages - first);
    const uint64_t address = base + first * kPageBytes, bytes = count * kPageBytes;
    space_->SetReach(address, bytes, ReachOf(0, 0));
    for (uint64_t page = 0; page < kPages; ++page) {
      ASSERT_EQ(space_->Allows(base + page * kPageBytes, kPageBytes, Access::kReadWrite),
                page >= first && page < first + count)
          << first << ", " << count << ", " << page;
    }
    space_->Unmap(address, bytes);
    ASSERT_FALSE(space_->Allows(address + bytes - kPageBytes, 1, Access::kRead));
  }
}

TEST_F(SoftMemoryTest, RandomBlocksNeverOverlap) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  Heap heap(space_.get(), store_.get(), 0);
  std::map<uint64_t, uint64_t> live;
  for (int step = 0; step < 2000; ++step) {
    if (random() % 3 != 0) {
      const uint64_t bytes = 1 + random() % (random() % 4 == 0 ? MiB(3).count : 60000);
      const uint64_t block = heap.Allocate(1, bytes);
      if (block == 0) continue;
      const auto after = live.lower_bound(block);
      if (after != live.end()) {
        ASSERT_LE(block + bytes, after->first);
      }
      if (after != live.begin()) {
        ASSERT_LE(std::prev(after)->first + std::prev(after)->second, block);
      }
      live[block] = bytes;
    } else if (!live.empty()) {
      const auto victim = std::next(live.begin(), random() % live.size());
      ASSERT_TRUE(heap.Free(victim->first));
      live.erase(victim);
    }
  }
  heap.FreeAll(1);
  EXPECT_EQ(shared_->Free(), MiB(32));
}

}  // namespace
}  // namespace tandem::soft
