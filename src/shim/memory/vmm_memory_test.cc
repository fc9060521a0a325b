#include "src/shim/memory/vmm_memory.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "src/shim/testing/guest_fixture.h"

namespace tandem::shim {
namespace {

using Handle = CUmemGenericAllocationHandle;

class VmmMemoryTest : public GuestTest {
 protected:
  VmmMemoryTest() {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    EXPECT_EQ(driver_.table().cuMemAddressReserve(&base_, MiB(64).count, kGranule, 0, 0),
              CUDA_SUCCESS);
  }

  VmmMemory& vmm() { return guest_->vmm(); }
  Handle Create(Bytes bytes) {
    Handle handle = 0;
    EXPECT_EQ(vmm().Create(bytes.count, properties_, &handle), CUDA_SUCCESS);
    return handle;
  }
  CUdeviceptr At(Bytes offset) const { return base_ + offset.count; }
  // Maps the handle and lets its device use it.
  CUdeviceptr Map(Handle handle, Bytes offset, Bytes bytes) {
    EXPECT_EQ(vmm().Map(At(offset), bytes.count, handle, true), CUDA_SUCCESS);
    EXPECT_EQ(SetAccess(offset, bytes), CUDA_SUCCESS);
    return At(offset);
  }
  std::optional<CUresult> SetAccess(Bytes offset, Bytes bytes) {
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return vmm().SetAccess(At(offset), bytes.count, &access, 1);
  }
  // The first lease, under which `work` is done.
  template <typename Work>
  void RunUnderLease(uint64_t epoch, Bytes need, Work work) {
    std::thread thread = SubmitLater(work);
    EXPECT_EQ(daemon_.Expect<wire::Ready>().need_bytes, need.count);
    daemon_.Send(wire::Grant{epoch, need.count, 1000});
    EXPECT_EQ(daemon_.Expect<wire::Running>().epoch, epoch);
    thread.join();
  }
  void TakeTheCard(uint64_t epoch, Bytes keep) {
    daemon_.Send(wire::Revoke{epoch, 1000000});
    EXPECT_EQ(daemon_.Expect<wire::Released>().epoch, epoch);
    daemon_.Send(wire::Evict{keep.count});
    while (daemon_.Expect<wire::Evicted>().resident_bytes > keep.count) {
    }
  }

  CUmemAllocationProp properties_ = {};
  CUdeviceptr base_ = 0;
};

void Fill(CUdeviceptr pointer, Bytes bytes, int value) {
  std::memset(reinterpret_cast<void*>(pointer), value, bytes.count);
}

TEST_F(VmmMemoryTest, ComesBackWhereItWasMapped) {
  const CUdeviceptr pointer = Map(Create(MiB(10)), MiB(2), MiB(10));
  RunUnderLease(1, MiB(10), [=] { Fill(pointer, MiB(10), 0x5a); });
  EXPECT_EQ(driver_.used(), MiB(10).count);
  TakeTheCard(1, Bytes());
  EXPECT_EQ(driver_.used(), 0u);
  EXPECT_FALSE(driver_.IsMapped(pointer));
  bool intact = false;
  RunUnderLease(2, MiB(10), [&] { intact = AllBytes(pointer, MiB(10), 0x5a); });
  EXPECT_TRUE(intact);
}

TEST_F(VmmMemoryTest, MovesFromOneAddressToAnotherAlsoWhileItIsAway) {
  const Handle handle = Create(MiB(8));
  const CUdeviceptr before = Map(handle, Bytes(), MiB(8));
  RunUnderLease(1, MiB(8), [=] { Fill(before, MiB(8), 7); });
  TakeTheCard(1, MiB(4));
  EXPECT_EQ(vmm().Unmap(before, MiB(8).count), CUDA_SUCCESS);
  const CUdeviceptr after = Map(handle, MiB(16), MiB(8));
  const CUdeviceptr too = Map(handle, MiB(32), MiB(8));
  bool intact = false;
  RunUnderLease(2, MiB(8), [&] {
    intact = AllBytes(after, MiB(8), 7);
    Fill(after, MiB(8), 8);
    intact &= AllBytes(too, MiB(8), 8);  // the same memory
  });
  EXPECT_TRUE(intact);
  EXPECT_EQ(vmm().Unmap(after, MiB(8).count), CUDA_SUCCESS);
  EXPECT_FALSE(driver_.IsMapped(after));
  EXPECT_TRUE(driver_.IsMapped(too));
}

TEST_F(VmmMemoryTest, LivesUntilItsHandleAndItsMappingsAreGone) {
  const Handle handle = Create(MiB(4));
  EXPECT_EQ(guest_->used(), MiB(4));
  const CUdeviceptr pointer = Map(handle, Bytes(), MiB(4));
  Handle again = 0;
  EXPECT_EQ(vmm().Retain(pointer + 5, &again), CUDA_SUCCESS);
  EXPECT_EQ(again, handle);
  EXPECT_EQ(vmm().Release(handle), CUDA_SUCCESS);
  EXPECT_EQ(vmm().Release(handle), CUDA_SUCCESS);
  EXPECT_EQ(vmm().Release(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(vmm().Map(At(MiB(8)), MiB(4).count, handle, true), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(guest_->used(), MiB(4));
  EXPECT_EQ(vmm().Unmap(pointer, MiB(4).count), CUDA_SUCCESS);
  EXPECT_EQ(guest_->used(), Bytes());
  EXPECT_FALSE(vmm().Release(handle).has_value());  // unknown by now
}

TEST_F(VmmMemoryTest, GoesFromTheCardAtOnce) {
  const Handle handle = Create(MiB(8));
  const CUdeviceptr pointer = Map(handle, Bytes(), MiB(8));
  RunUnderLease(1, MiB(8), [=] { Fill(pointer, MiB(8), 1); });
  EXPECT_EQ(vmm().Release(handle), CUDA_SUCCESS);
  EXPECT_EQ(driver_.used(), MiB(8).count);
  EXPECT_EQ(vmm().Unmap(pointer, MiB(8).count), CUDA_SUCCESS);
  EXPECT_EQ(driver_.used(), 0u);
  EXPECT_FALSE(vmm().Find(pointer).has_value());
  // What it took can be had again without asking.
  const CUdeviceptr next = Map(Create(MiB(8)), Bytes(), MiB(8));
  Submit([=] { Fill(next, MiB(8), 2); });
}

TEST_F(VmmMemoryTest, TheRunsLimitIsOutOfMemory) {
  Create(MiB(40));
  Handle handle = 0;
  EXPECT_EQ(vmm().Create(MiB(10).count, properties_, &handle), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(handle, 0u);
  Create(MiB(8));
}

TEST_F(VmmMemoryTest, AnAbsurdSizeIsOutOfMemoryAndNothingMore) {
  Create(MiB(4));
  Handle handle = 0;
  const uint64_t absurd = ~uint64_t{0} - MiB(2).count + 1;
  EXPECT_EQ(vmm().Create(absurd, properties_, &handle), CUDA_ERROR_OUT_OF_MEMORY);
  Create(MiB(4));
  EXPECT_EQ(guest_->used(), MiB(8));
}

TEST_F(VmmMemoryTest, AMappingThatFailsLeavesNothing) {
  const Handle handle = Create(MiB(12));
  RunUnderLease(1, MiB(12), [] {});
  driver_.FailMap(3);  // of three chunks
  EXPECT_EQ(vmm().Map(At(Bytes()), MiB(12).count, handle, true), CUDA_ERROR_OUT_OF_MEMORY);
  for (const Bytes offset : {Bytes(), MiB(4), MiB(8)}) EXPECT_FALSE(driver_.IsMapped(At(offset)));
  EXPECT_FALSE(vmm().Find(At(Bytes())).has_value());
  const CUdeviceptr pointer = Map(handle, Bytes(), MiB(12));
  Submit([=] { Fill(pointer, MiB(12), 1); });
}

TEST_F(VmmMemoryTest, ComesBackAlsoIfMappingFailsAtFirst) {
  const Handle handle = Create(MiB(8));
  const CUdeviceptr pointer = Map(handle, Bytes(), MiB(8));
  const CUdeviceptr too = Map(handle, MiB(16), MiB(8));
  RunUnderLease(1, MiB(8), [=] { Fill(pointer, MiB(8), 9); });
  TakeTheCard(1, Bytes());
  driver_.FailMap(3);  // the first chunk at its second address
  bool intact = false;
  RunUnderLease(2, MiB(8), [&] { intact = AllBytes(too, MiB(8), 9); });
  EXPECT_TRUE(intact);
}

// Granted while nothing is there to be asked about, it must not keep the memory away for ever.
TEST_F(VmmMemoryTest, AccessThatTheDriverRefusesKeepsNothingAway) {
  const CUdeviceptr pointer = Map(Create(MiB(4)), Bytes(), MiB(4));
  const CUmemAccessDesc other = {{CU_MEM_LOCATION_TYPE_DEVICE, 1},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(vmm().SetAccess(pointer, MiB(4).count, &other, 1), CUDA_SUCCESS);
  driver_.Refuse(1);
  RunUnderLease(1, MiB(4), [=] { Fill(pointer, MiB(4), 1); });
  EXPECT_EQ(driver_.UsersOf(pointer), (std::set<CUdevice>{0}));
  EXPECT_EQ(vmm().SetAccess(pointer, MiB(4).count, &other, 1), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(VmmMemoryTest, WhoMayUseItStaysSo) {
  const CUdeviceptr pointer = Map(Create(MiB(4)), Bytes(), MiB(4));
  const CUmemAccessDesc more[] = {
      {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
      {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ}};
  EXPECT_EQ(vmm().SetAccess(pointer, MiB(4).count, more, 2), CUDA_SUCCESS);
  RunUnderLease(1, MiB(4), [] {});
  EXPECT_EQ(driver_.UsersOf(pointer), (std::set<CUdevice>{0, 1}));
  const CUmemAccessDesc none = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  EXPECT_EQ(vmm().SetAccess(pointer, MiB(4).count, &none, 1), CUDA_SUCCESS);
  EXPECT_EQ(driver_.UsersOf(pointer), (std::set<CUdevice>{0}));
  TakeTheCard(1, Bytes());
  RunUnderLease(2, MiB(4), [] {});
  EXPECT_EQ(driver_.UsersOf(pointer), (std::set<CUdevice>{0}));
  unsigned long long flags = 99;
  EXPECT_EQ(vmm().GetAccess(pointer, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READ));
  EXPECT_EQ(vmm().GetAccess(pointer, {CU_MEM_LOCATION_TYPE_DEVICE, 1}, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, 0u);
}

TEST_F(VmmMemoryTest, OneCallSpansItsMappingsAndTheDrivers) {
  const Handle handle = Create(MiB(2));
  EXPECT_EQ(vmm().Map(At(Bytes()), MiB(2).count, handle, true), CUDA_SUCCESS);
  Handle drivers = 0;  // as if imported
  ASSERT_EQ(driver_.table().cuMemCreate(&drivers, MiB(2).count, &properties_, 0), CUDA_SUCCESS);
  EXPECT_EQ(vmm().Map(At(MiB(2)), MiB(2).count, drivers, true), CUDA_SUCCESS);
  EXPECT_EQ(SetAccess(Bytes(), MiB(4)), CUDA_SUCCESS);
  EXPECT_EQ(driver_.UsersOf(At(MiB(2))), (std::set<CUdevice>{0}));
  EXPECT_FALSE(SetAccess(MiB(2), MiB(2)).has_value());  // the driver's affair
  EXPECT_EQ(SetAccess(Bytes(), MiB(6)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(vmm().Unmap(At(Bytes()), MiB(3).count), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(driver_.IsMapped(At(MiB(2))));
  EXPECT_EQ(vmm().Unmap(At(Bytes()), MiB(6).count), CUDA_SUCCESS);  // and what is unmapped already
  EXPECT_FALSE(driver_.IsMapped(At(MiB(2))));
  EXPECT_FALSE(vmm().Find(At(Bytes())).has_value());
}

TEST_F(VmmMemoryTest, RefusesWhatTheDriverWould) {
  const Handle handle = Create(MiB(4));
  EXPECT_EQ(vmm().Map(At(Bytes()), MiB(4).count, handle, false), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(vmm().Map(At(Bytes(4096)), MiB(4).count, handle, true), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(vmm().Map(At(Bytes()), MiB(2).count, handle, true), CUDA_ERROR_INVALID_VALUE);
  Map(handle, MiB(4), MiB(4));
  const Handle other = Create(MiB(4));
  for (const Bytes offset : {MiB(2), MiB(4), MiB(6)}) {
    EXPECT_EQ(vmm().Map(At(offset), MiB(4).count, other, true), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(vmm().Unmap(At(MiB(4)), MiB(2).count), CUDA_ERROR_INVALID_VALUE);
  // Nor a range that begins inside, also where the driver has a mapping of just that size.
  RunUnderLease(1, MiB(8), [] {});
  EXPECT_EQ(vmm().Unmap(At(MiB(6)), MiB(2).count), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SetAccess(MiB(6), MiB(2)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(driver_.IsMapped(At(MiB(4))));
  EXPECT_TRUE(vmm().AnyIn(At(Bytes()), MiB(6).count));
  EXPECT_FALSE(vmm().AnyIn(At(MiB(8)), MiB(2).count));
  Handle made = 0;
  EXPECT_FALSE(vmm().Create(MiB(2).count + 1, properties_, &made).has_value());
  properties_.location.id = 1;
  EXPECT_FALSE(vmm().Create(MiB(2).count, properties_, &made).has_value());
}

TEST_F(VmmMemoryTest, WhatIsExportedStaysOnTheCardAndCountsAsFixed) {
  properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const Handle handle = Create(MiB(12));  // in one piece, though chunks are smaller
  const CUdeviceptr pointer = Map(handle, Bytes(), MiB(12));
  RunUnderLease(1, MiB(12), [=] { Fill(pointer, MiB(12), 3); });
  TakeTheCard(1, Bytes());
  bool intact = false;
  RunUnderLease(2, MiB(12), [&] { intact = AllBytes(pointer, MiB(12), 3); });
  EXPECT_TRUE(intact);

  EXPECT_EQ(vmm().PrepareExport(handle, CU_MEM_HANDLE_TYPE_FABRIC), CUDA_ERROR_INVALID_VALUE);
  std::thread program([&] {
    EXPECT_EQ(vmm().PrepareExport(handle, properties_.requestedHandleTypes), CUDA_SUCCESS);
  });
  const auto wanted = daemon_.Expect<wire::FixedWanted>();
  EXPECT_EQ(wanted.bytes, MiB(12).count);
  daemon_.Send(wire::FixedReserved{wanted.sequence, 1});
  program.join();
  Handle given = 0;
  const auto give = [&](Handle real) {
    given = real;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(vmm().Export(handle, give), CUDA_SUCCESS);
  EXPECT_NE(given, 0u);
  EXPECT_NE(given, handle);
  EXPECT_EQ(vmm().PrepareExport(handle, properties_.requestedHandleTypes), CUDA_SUCCESS);  // again

  TakeTheCard(2, Bytes());
  EXPECT_EQ(driver_.used(), MiB(12).count);
  EXPECT_TRUE(AllBytes(pointer, MiB(12), 3));
  EXPECT_EQ(vmm().Release(handle), CUDA_SUCCESS);
  EXPECT_EQ(vmm().Unmap(pointer, MiB(12).count), CUDA_SUCCESS);
  EXPECT_EQ(daemon_.Expect<wire::FixedGone>().bytes, MiB(12).count);
  EXPECT_EQ(driver_.used(), 0u);
}

class ImportedMemoryTest : public VmmMemoryTest {
 protected:
  ImportedMemoryTest() {
    daemon_.GrantFixed(MiB(16));
    int fd = -1;
    EXPECT_EQ(driver_.table().cuMemCreate(&made_, MiB(8).count, &properties_, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_.table().cuMemExportToShareableHandle(
                  &fd, made_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
              CUDA_SUCCESS);
    exported_ = UniqueFd(fd);
  }

  Handle Import() {
    Handle handle = 0;
    void* const fd = reinterpret_cast<void*>(static_cast<intptr_t>(exported_.get()));
    EXPECT_EQ(driver_.table().cuMemImportFromShareableHandle(
                  &handle, fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
              CUDA_SUCCESS);
    vmm().Imported(handle, properties_);
    return handle;
  }
  CUresult MapAt(Handle handle, Bytes offset, Bytes bytes) {
    return vmm().Map(At(offset), bytes.count, handle, true);
  }

  Handle made_ = 0;
  UniqueFd exported_;
};

TEST_F(ImportedMemoryTest, CountsFromItsFirstMappingUntilItIsGone) {
  const Handle handle = Import();
  EXPECT_EQ(daemon_.fixed(), Bytes());
  EXPECT_EQ(MapAt(handle, Bytes(), MiB(8)), CUDA_SUCCESS);
  EXPECT_EQ(daemon_.fixed(), MiB(8));
  EXPECT_EQ(guest_->used(), MiB(8));
  EXPECT_EQ(MapAt(handle, MiB(8), MiB(8)), CUDA_SUCCESS);  // it is the same memory
  EXPECT_EQ(daemon_.fixed(), MiB(8));
  EXPECT_EQ(vmm().Release(handle), CUDA_SUCCESS);
  EXPECT_EQ(vmm().Unmap(At(Bytes()), MiB(8).count), CUDA_SUCCESS);
  EXPECT_EQ(daemon_.fixed(), MiB(8));
  EXPECT_EQ(vmm().Unmap(At(MiB(8)), MiB(8).count), CUDA_SUCCESS);
  daemon_.AwaitFixed(Bytes());
}

TEST_F(ImportedMemoryTest, IsOutBeyondTheLimit) {
  daemon_.GrantFixed(MiB(4));
  const Handle handle = Import();
  EXPECT_EQ(MapAt(handle, Bytes(), MiB(8)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(guest_->used(), Bytes());
  daemon_.GrantFixed(MiB(16));
  EXPECT_EQ(MapAt(handle, Bytes(), MiB(8)), CUDA_SUCCESS);
}

TEST_F(ImportedMemoryTest, DoesNotCountWhereItIsNotMapped) {
  const Handle handle = Import();
  driver_.FailMap(1);
  EXPECT_NE(MapAt(handle, Bytes(), MiB(8)), CUDA_SUCCESS);
  daemon_.AwaitFixed(Bytes());
  EXPECT_EQ(MapAt(handle, Bytes(), MiB(8)), CUDA_SUCCESS);
  EXPECT_EQ(vmm().Unmap(At(Bytes()), MiB(8).count), CUDA_SUCCESS);
  EXPECT_EQ(daemon_.fixed(), MiB(8));  // it can be mapped again
  EXPECT_EQ(vmm().Release(handle), CUDA_SUCCESS);
  daemon_.AwaitFixed(Bytes());
}

}  // namespace
}  // namespace tandem::shim
