#include "src/shim/swap/host_arena.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "src/shim/testing/fake_driver.h"

namespace tandem::shim {
namespace {

constexpr uint64_t kArenaSlot = 4 << 20;

Bytes available;  // on the host

class HostArenaTest : public testing::Test {
 protected:
  HostArenaTest() { available = GiB(64); }

  void PrepareAll(const HostShare& ahead) {
    while (arena_.PrepareSome(ahead)) {
    }
  }
  std::byte* TakeWritten() {
    std::byte* const slot = arena_.Take(kArenaSlot);
    EXPECT_NE(slot, nullptr);
    std::memset(slot, 0x5a, kArenaSlot);
    return slot;
  }
  static bool AllZero(const std::byte* slot) {
    return slot[0] == std::byte{} && std::memcmp(slot, slot + 1, kArenaSlot - 1) == 0;
  }

  FakeDriver driver_{MiB(8).count};
  HostArena arena_{&driver_.table(), kArenaSlot, [] { return available; }, 1};
  const Instant now_ = Instant{} + Seconds(1);
};

// The kernel's flags ("dc dd …") of the mapping around `address`.
std::string FlagsOf(const void* address) {
  const auto wanted = reinterpret_cast<uint64_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= wanted && wanted < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line;
    }
  }
  return "";
}

TEST_F(HostArenaTest, SmallChunksShareWhatALargeOneWouldTake) {
  std::vector<std::byte*> taken;
  for (int i = 0; i < 32; ++i) taken.push_back(arena_.Take(MiB(2).count));
  EXPECT_EQ(arena_.mappings(), 1u);
  std::sort(taken.begin(), taken.end());
  for (size_t i = 1; i < taken.size(); ++i) EXPECT_GE(taken[i] - taken[i - 1], MiB(2).count);
  taken.push_back(arena_.Take(MiB(4).count));
  EXPECT_EQ(arena_.mappings(), 2u);
  for (size_t i = 0; i < 32; ++i) arena_.Return(taken[i], MiB(2).count, now_);
  arena_.Trim(now_ + Seconds(9), Seconds(10), {});
  EXPECT_EQ(arena_.mappings(), 2u);
  arena_.Trim(now_ + Seconds(10), Seconds(10), {});
  EXPECT_EQ(arena_.mappings(), 1u);
  arena_.Return(taken.back(), MiB(4).count, now_);
}

TEST_F(HostArenaTest, NeitherChildrenNorCoreDumpsHaveIt) {
  const std::string flags = FlagsOf(arena_.Take(kArenaSlot)) + " ";
  EXPECT_NE(flags.find(" dc "), std::string::npos) << flags;  // not copied on fork
  EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;  // not dumped
}

TEST_F(HostArenaTest, WhatWasReturnedIsZeroWhenItIsTakenAtOnce) {
  std::byte* const slot = TakeWritten();
  arena_.Return(slot, kArenaSlot, now_);
  for (int i = 0; i < 16; ++i)
    EXPECT_TRUE(AllZero(arena_.Take(kArenaSlot)));  // all the mapping has
  EXPECT_EQ(arena_.mappings(), 1u);
}

TEST_F(HostArenaTest, PreparingZeroesAllThatWasReturnedALittleAtATime) {
  std::byte* const first = TakeWritten();
  std::byte* const second = TakeWritten();
  std::byte* const kept = TakeWritten();
  arena_.Return(first, kArenaSlot, now_);
  arena_.Return(second, kArenaSlot, now_);
  EXPECT_TRUE(arena_.PrepareSome({}));
  EXPECT_FALSE(AllZero(first) && AllZero(second));
  size_t steps = 1;
  while (arena_.PrepareSome({})) ++steps;
  EXPECT_EQ(steps, 2 * kArenaSlot / HostArena::kStep);
  EXPECT_TRUE(AllZero(first) && AllZero(second));
  EXPECT_EQ(kept[kArenaSlot - 1], std::byte{0x5a});
}

// Whether the host has given memory for all of it.
bool AllPopulated(const std::byte* slot) {
  std::vector<unsigned char> pages(kArenaSlot / 4096);
  if (mincore(const_cast<std::byte*>(slot), kArenaSlot, pages.data()) != 0) return false;
  return std::all_of(pages.begin(), pages.end(), [](auto page) { return (page & 1) != 0; });
}

TEST_F(HostArenaTest, GrowsAheadOfNeedALittleAtATime) {
  const Bytes need = MiB(10);
  EXPECT_TRUE(arena_.PrepareSome({need}));
  EXPECT_EQ(arena_.bytes(), 0u);  // none of it is ready yet
  size_t steps = 1;
  while (arena_.PrepareSome({need})) ++steps;
  EXPECT_GE(steps, need.count / HostArena::kStep);
  EXPECT_EQ(Bytes(arena_.bytes()), MiB(12));  // whole chunks
  for (int i = 0; i < 3; ++i) {
    const std::byte* const slot = arena_.Take(kArenaSlot);
    EXPECT_TRUE(AllPopulated(slot));
    const std::string flags = FlagsOf(slot) + " ";
    EXPECT_NE(flags.find(" dc "), std::string::npos) << flags;
    EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;
  }
  EXPECT_EQ(arena_.mappings(), 1u);
}

TEST_F(HostArenaTest, WhatMayBeNeededIsNotTrimmed) {
  PrepareAll({MiB(8)});
  PrepareAll({MiB(16)});
  EXPECT_EQ(Bytes(arena_.bytes()), MiB(16));
  arena_.Trim(now_ + Seconds(60), Seconds(10), {MiB(9)});
  EXPECT_EQ(Bytes(arena_.bytes()), MiB(16));
  arena_.Trim(now_ + Seconds(69), Seconds(10), {});
  EXPECT_EQ(Bytes(arena_.bytes()), MiB(16));  // it may be needed again soon
  arena_.Trim(now_ + Seconds(70), Seconds(10), {MiB(8)});
  EXPECT_EQ(Bytes(arena_.bytes()), MiB(8));
}

TEST_F(HostArenaTest, WhatIsNeededNoMoreIsNotMade) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(arena_.PrepareSome({MiB(16)}));
  EXPECT_FALSE(arena_.PrepareSome({}));
  PrepareAll({MiB(4)});
  EXPECT_EQ(Bytes(arena_.bytes()), MiB(4));
}

TEST_F(HostArenaTest, AHostThatHasTooLittleIsToldOnceAndAskedAgain) {
  available = MiB(7);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(arena_.PrepareSome({MiB(8)}));
  EXPECT_FALSE(arena_.PrepareSome({MiB(8)}));
  arena_.Trim(now_, Seconds(10), {MiB(8)});
  EXPECT_FALSE(arena_.PrepareSome({MiB(8)}));
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("8 MiB"), std::string::npos) << told;
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_NE(arena_.Take(kArenaSlot), nullptr);  // there is enough for one
  available = MiB(80);
  arena_.Trim(now_, Seconds(10), {MiB(80)});
  PrepareAll({MiB(80)});
  EXPECT_GE(Bytes(arena_.bytes()), MiB(80));
}

TEST_F(HostArenaTest, TakesNoMoreThanTheHostHas) {
  available = MiB(4);
  const std::byte* const slot = arena_.Take(kArenaSlot);
  ASSERT_NE(slot, nullptr);
  EXPECT_TRUE(AllPopulated(slot));
  EXPECT_EQ(Bytes(arena_.bytes()), MiB(4));  // and not a mapping of the usual size
  available = MiB(3);
  EXPECT_EQ(arena_.Take(kArenaSlot), nullptr);
  EXPECT_EQ(Bytes(arena_.bytes()), MiB(4));
  available = GiB(1);
  EXPECT_NE(arena_.Take(kArenaSlot), nullptr);
}

class SpillingArenaTest : public HostArenaTest {
 protected:
  SpillingArenaTest() { OfferFile(); }
  void OfferFile(std::function<Bytes()> promised = {}) {
    std::string path = testing::TempDir() + "tandem-arena-test-XXXXXX";
    UniqueFd fd(mkostemp(path.data(), O_CLOEXEC));
    unlink(path.c_str());
    EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(MiB(256).count)), 0);
    arena_.file().Offer(OwnFd(std::move(fd)), std::move(promised));
  }
  static bool InFile(const std::byte* slot) {
    return FlagsOf(slot).find(" sh ") != std::string::npos;  // shared with the file
  }
};

TEST_F(SpillingArenaTest, TheFileIsMadeAheadAndTakenLast) {
  PrepareAll({MiB(8), MiB(8)});
  EXPECT_EQ(arena_.made(), (HostShare{MiB(8), MiB(8)}));
  std::vector<std::byte*> slots;
  for (int i = 0; i < 4; ++i) slots.push_back(TakeWritten());
  EXPECT_FALSE(InFile(slots[0]));
  EXPECT_FALSE(InFile(slots[1]));
  EXPECT_TRUE(InFile(slots[2]));
  EXPECT_TRUE(InFile(slots[3]));
  EXPECT_EQ(arena_.made(), (HostShare{MiB(8), MiB(8)}));
  // More memory goes before what there is of the file.
  arena_.Return(slots[3], kArenaSlot, now_);
  PrepareAll({MiB(16), MiB(8)});
  EXPECT_FALSE(InFile(TakeWritten()));
}

TEST_F(SpillingArenaTest, WhatIsNotMadeYetIsMappedWhereItBelongs) {
  EXPECT_TRUE(arena_.PrepareSome({MiB(4), MiB(64)}));
  EXPECT_FALSE(InFile(TakeWritten()));
  while (arena_.made().file == Bytes()) EXPECT_NE(TakeWritten(), nullptr);
  available = Bytes();
  EXPECT_TRUE(InFile(TakeWritten()));
}

// Nothing is zeroed for a copy that writes all of it; the others still get zeroes.
TEST_F(HostArenaTest, WhatIsWrittenAllOverIsNotZeroedBefore) {
  std::byte* const slot = TakeWritten();
  std::byte* const other = TakeWritten();
  while (arena_.TakeMade(kArenaSlot) != nullptr) continue;  // what else was mapped
  arena_.Return(slot, kArenaSlot, now_);
  EXPECT_EQ(arena_.TakeToWrite(kArenaSlot), slot);
  EXPECT_EQ(slot[0], std::byte{0x5a});
  EXPECT_EQ(std::memcmp(slot, slot + 1, kArenaSlot - 1), 0);
  EXPECT_FALSE(arena_.HasReturned());
  arena_.Return(other, kArenaSlot, now_);
  EXPECT_TRUE(arena_.PrepareSome({}));  // a part of it
  EXPECT_EQ(arena_.TakeToWrite(kArenaSlot), other);
  EXPECT_TRUE(AllZero(other));
  arena_.Return(slot, kArenaSlot, now_);
  EXPECT_EQ(arena_.Take(kArenaSlot), slot);
  EXPECT_TRUE(AllZero(slot));
}

// The daemon ends a program that goes on as it was promised before.
TEST_F(SpillingArenaTest, NoMoreOfTheFileIsMappedThanIsPromisedByThen) {
  Bytes promised = MiB(6);
  OfferFile([&] { return promised; });
  EXPECT_TRUE(arena_.PrepareSome({Bytes(), MiB(128)}));  // a piece
  available = Bytes();
  while (arena_.TakeMade(kArenaSlot) != nullptr) continue;
  const Bytes before = arena_.made().file;
  promised = before + MiB(6);
  EXPECT_NE(arena_.Take(kArenaSlot), nullptr);
  EXPECT_EQ(arena_.made().file, before + MiB(8));  // whole chunks
  promised = before;
  while (arena_.TakeMade(kArenaSlot) != nullptr) continue;
  EXPECT_EQ(arena_.Take(kArenaSlot), nullptr);
  EXPECT_EQ(arena_.made().file, before + MiB(8));
}

TEST_F(SpillingArenaTest, NoMemoryIsRegisteredThatTheKernelMayWriteToTheFile) {
  PrepareAll({MiB(8), MiB(8)});
  EXPECT_EQ(Bytes(driver_.registered()), MiB(8));
}

TEST_F(SpillingArenaTest, WhatIsTakenAgainIsZeroAndWhatIsNotNeededIsGivenBack) {
  PrepareAll({Bytes(), MiB(4)});
  std::byte* const slot = TakeWritten();
  ASSERT_TRUE(InFile(slot));
  arena_.Return(slot, kArenaSlot, now_);
  PrepareAll({Bytes(), MiB(4)});
  EXPECT_EQ(arena_.TakeMade(kArenaSlot), slot);
  EXPECT_TRUE(AllZero(slot));
  arena_.Return(slot, kArenaSlot, now_);
  arena_.Trim(now_ + Seconds(60), Seconds(10), {Bytes(), MiB(4)});
  EXPECT_EQ(arena_.made().file, MiB(4));
  arena_.Trim(now_ + Seconds(120), Seconds(10), {});
  EXPECT_EQ(arena_.made(), HostShare{});
}

TEST_F(SpillingArenaTest, ItsMappingsAreOfNoChildAndInNoCoreDump) {
  PrepareAll({Bytes(), MiB(4)});
  const std::string flags = FlagsOf(TakeWritten());
  EXPECT_NE(flags.find(" dc "), std::string::npos) << flags;
  EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;
}

}  // namespace
}  // namespace tandem::shim
