// shfl, vote and match with random lanes, values and members, against the document's steps.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

// 32 warps, each thread with three words of its own and two for results.
class ExchangeTest : public KernelTest {
 protected:
  static constexpr uint32_t kThreads = 1024, kWarp = 32;
  static constexpr uint64_t kSecond = 8192, kA = 16384, kB = 24576, kC = 32768;

  // Runs `body` with %r1, %r2 and %r3 as a, b and c. It leaves its results in %r4 and %p1.
  void Exchange(const std::string& body) {
    SCOPED_TRACE(body);
    Go("ld.global.u32 %r1, [%at+16384]; ld.global.u32 %r2, [%at+24576];\n"
       "ld.global.u32 %r3, [%at+32768]; setp.ne.u32 %p1, %t, %t;\n" +
           body +
           "\nst.global.u32 [%at], %r4; selp.u32 %r5, 1, 0, %p1;\n"
           "st.global.u32 [%at+8192], %r5; ret;",
       kThreads);
  }
  uint32_t* Words(uint64_t where, uint32_t warp) {
    return device_.Array<uint32_t>(where) + size_t{warp} * kWarp;
  }
  void ExpectLane(uint32_t warp, uint32_t lane, uint32_t value, bool predicate) {
    EXPECT_EQ(Words(0, warp)[lane], value) << "warp " << warp << ", lane " << lane;
    EXPECT_EQ(Words(kSecond, warp)[lane], predicate ? 1u : 0u)
        << "warp " << warp << ", lane " << lane;
  }

  // In a few values, so that some are alike; each warp's lanes in two groups, named by masks in c.
  void FillGroups(uint32_t kinds) {
    for (uint32_t warp = 0; warp < kThreads / kWarp; ++warp) {
      const uint32_t members = warp == 0 ? ~0u : random_();
      const bool alike = warp % 4 == 1;
      for (uint32_t lane = 0; lane < kWarp; ++lane) {
        const bool member = (members >> lane & 1) != 0;
        Words(kA, warp)[lane] = alike ? (member ? 1 : 0) : random_() % kinds;
        Words(kC, warp)[lane] = member ? members : ~members;
      }
    }
  }
  // The members of a lane's group for which `holds`.
  template <class Holds>
  uint32_t Those(uint32_t warp, uint32_t lane, Holds holds) {
    const uint32_t members = Words(kC, warp)[lane];
    uint32_t those = 0;
    for (uint32_t i = 0; i < kWarp; ++i) {
      if ((members >> i & 1) != 0 && holds(Words(kA, warp)[i])) those |= 1u << i;
    }
    return those;
  }
  template <class CheckLane>
  void ForEachLane(const CheckLane& check) {
    for (uint32_t warp = 0; warp < kThreads / kWarp; ++warp) {
      for (uint32_t lane = 0; lane < kWarp; ++lane) check(warp, lane);
    }
  }

  std::mt19937 random_{Seed()};
};
INSTANTIATE_TEST_SUITE_P(Paths, ExchangeTest, ::testing::ValuesIn(Paths()));

struct Source {
  uint32_t lane;
  bool inside;
};

// The lane that `lane` reads, by the document's names.
Source SourceOf(const std::string& mode, uint32_t lane, uint32_t b, uint32_t c) {
  const int own = static_cast<int>(lane), by = static_cast<int>(b & 31);
  const int clamp = static_cast<int>(c & 31), mask = static_cast<int>(c >> 8 & 31);
  const int most = (own & mask) | (clamp & ~mask), least = own & mask;
  const int from = mode == "up"     ? own - by
                   : mode == "down" ? own + by
                   : mode == "bfly" ? own ^ by
                                    : least | (by & ~mask);
  const bool inside = mode == "up" ? from >= most : from <= most;
  return {inside ? static_cast<uint32_t>(from) : lane, inside};
}

TEST_P(ExchangeTest, Shuffles) {
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  for (const std::string mode : {"up", "down", "bfly", "idx"}) {
    for (const bool sync : {true, false}) {
      for (uint32_t i = 0; i < kThreads; ++i) {
        device_.Array<uint32_t>(kA)[i] = random_();
        device_.Array<uint32_t>(kB)[i] = random_();
        // Half of them with the masks that compilers write: segments of a power of two.
        const uint32_t segment = 0x1f & ~0u << random_() % 6;
        const uint32_t clamp = mode == "up" ? 0 : 31;
        device_.Array<uint32_t>(kC)[i] = i / 32 % 2 == 0 ? random_() : segment << 8 | clamp;
      }
      Exchange("shfl." + std::string(sync ? "sync." : "") + mode + ".b32 %r4|%p1, %r1, %r2, %r3" +
               (sync ? ", -1;" : ";"));
      ForEachLane([&](uint32_t warp, uint32_t lane) {
        const Source source = SourceOf(mode, lane, Words(kB, warp)[lane], Words(kC, warp)[lane]);
        ExpectLane(warp, lane, Words(kA, warp)[source.lane], source.inside);
      });
    }
  }
}

TEST_P(ExchangeTest, Votes) {
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  for (const bool negated : {false, true}) {
    const std::string operands = std::string(negated ? " !%p2" : " %p2") + ", %r3;";
    const std::string begin = "setp.ne.u32 %p2, %r1, 0;\nvote.sync.";
    const auto votes = [&](uint32_t warp, uint32_t lane) {
      return Those(warp, lane, [&](uint32_t value) { return (value != 0) != negated; });
    };
    for (const std::string mode : {"all", "any", "uni"}) {
      FillGroups(2);
      Exchange(begin + mode + ".pred %p1," + operands + " mov.u32 %r4, 0;");
      ForEachLane([&](uint32_t warp, uint32_t lane) {
        const uint32_t yes = votes(warp, lane), members = Words(kC, warp)[lane];
        const bool all = yes == members, none = yes == 0;
        ExpectLane(warp, lane, 0, mode == "all" ? all : mode == "any" ? !none : all || none);
      });
    }
    FillGroups(2);
    Exchange(begin + "ballot.b32 %r4," + operands);
    ForEachLane(
        [&](uint32_t warp, uint32_t lane) { ExpectLane(warp, lane, votes(warp, lane), false); });
  }
}

TEST_P(ExchangeTest, Matches) {
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  for (const bool wide : {false, true}) {
    // The upper halves tell the numbers of 64 bits apart.
    const std::string widened =
        wide ? "cvt.u64.u32 %rd1, %r1; shl.b64 %rd1, %rd1, 33;\n" : std::string();
    const std::string operands = wide ? ".sync.b64 " : ".sync.b32 ";
    const std::string value = wide ? "%rd1" : "%r1";
    const auto alike = [&](uint32_t warp, uint32_t lane) {
      const uint32_t own = Words(kA, warp)[lane];
      return Those(warp, lane, [=](uint32_t other) { return other == own; });
    };
    FillGroups(5);
    Exchange(widened + "match.any" + operands + "%r4, " + value + ", %r3;");
    ForEachLane(
        [&](uint32_t warp, uint32_t lane) { ExpectLane(warp, lane, alike(warp, lane), false); });
    FillGroups(2);
    Exchange(widened + "match.all" + operands + "%r4|%p1, " + value + ", %r3;");
    ForEachLane([&](uint32_t warp, uint32_t lane) {
      const uint32_t members = Words(kC, warp)[lane];
      const bool all = alike(warp, lane) == members;
      ExpectLane(warp, lane, all ? members : 0, all);
    });
  }
}

}  // namespace
}  // namespace tandem::ptx
