// What only tells a card how to do something: orders, scopes, cache operators and hints, the ways
// that one thing may be written. Each way has to do the same.
#include <algorithm>
#include <random>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

class ModifiersTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Paths, ModifiersTest, ::testing::ValuesIn(Paths()));

using Words = std::vector<std::string>;

constexpr uint64_t kOriginal = 0, kCopied = 16384;
constexpr uint64_t kSlot = 512;  // 16 bytes for each lane

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

struct Element {
  std::string type;  // with .v2 or .v4
  uint64_t bytes;
};

std::vector<Element> Elements() {
  std::vector<Element> elements;
  for (const std::string kind : {"b", "u", "s", "f"}) {
    for (const uint64_t bytes : {1, 2, 4, 8}) {
      if (kind == "f" && bytes < 4) continue;
      const std::string type = "." + kind + std::to_string(8 * bytes);
      elements.push_back({type, bytes});
      elements.push_back({".v2" + type, 2 * bytes});
      if (bytes <= 4) elements.push_back({".v4" + type, 4 * bytes});
    }
  }
  return elements;
}

// From one place to another through registers of the element's kind.
std::string Copy(const Element& element, const std::string& load, const std::string& from,
                 const std::string& store, const std::string& to) {
  const bool vector = element.type[1] == 'v';
  const std::string kind = element.type.substr(vector ? 4 : 1);
  const std::string registers = kind.ends_with("64") ? "%w" : kind.ends_with("32") ? "%v" : "%h";
  std::string list = registers + "0";
  for (int i = 1; vector && i < element.type[2] - '0'; ++i) {
    list += ", " + registers + std::to_string(i);
  }
  if (vector) list = "{" + list + "}";
  return "ld" + load + element.type + " " + list + ", [" + from + "];\nst" + store + element.type +
         " [" + to + "], " + list + ";\n";
}

constexpr char kCopies[] = R"(
  .reg .b16 %h<4>; .reg .b32 %v<4>; .reg .b64 %w<4>, %in, %to;
  mul.wide.u32 %in, %t, 16; add.u64 %to, %out, %in; add.u64 %in, %out, %in;
)";

// Every element by every way of loading, and of storing.
class CopiesTest : public ModifiersTest {
 protected:
  void FillInput() {
    std::mt19937 random(Seed());
    uint32_t* words = device_.Array<uint32_t>(kOriginal);
    for (size_t i = 0; i < kSlot / 4; ++i) words[i] = random();
  }
  void Check(const Words& loads, const Words& stores) {
    SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
    FillInput();
    const std::vector<Element> elements = Elements();
    for (const std::string& load : loads) {
      for (const std::string& store : stores) {
        SCOPED_TRACE("ld" + load + ", st" + store);
        std::memset(device_.Array<uint8_t>(kCopied), 0, kSlot * elements.size());
        std::string body = kCopies;
        for (size_t i = 0; i < elements.size(); ++i) {
          body +=
              Copy(elements[i], load, "%in", store, "%to+" + std::to_string(kCopied + kSlot * i));
        }
        Go(body + "ret;");
        for (size_t i = 0; i < elements.size(); ++i) ExpectCopied(i, elements[i]);
      }
    }
  }
  void ExpectCopied(size_t slot, const Element& element) {
    for (uint64_t at = 0; at < kSlot; ++at) {
      const uint8_t byte = device_.Array<uint8_t>(kOriginal)[at];
      const uint8_t copy = device_.Array<uint8_t>(kCopied + kSlot * slot)[at];
      ASSERT_EQ(copy, at % 16 < element.bytes ? byte : 0) << element.type << ", byte " << at;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Paths, CopiesTest, ::testing::ValuesIn(Paths()));

TEST_P(CopiesTest, WaysOfLoading) {
  Words loads = {"",
                 ".volatile",
                 ".volatile.global",
                 ".weak",
                 ".weak.global",
                 ".mmio.relaxed.sys",
                 ".mmio.relaxed.sys.global",
                 ".global.unified",
                 ".global.nc",
                 ".global.ca.nc",
                 ".global.L1::no_allocate.L2::64B",
                 ".global.nc.L1::evict_last.L2::256B"};
  for (const std::string order : {".relaxed", ".acquire"}) {
    for (const std::string scope : {".cta", ".cluster", ".gpu", ".sys"}) {
      loads.push_back(order + scope);
      loads.push_back(order + scope + ".global");
    }
  }
  for (const std::string cache : {".ca", ".cg", ".cs", ".lu", ".cv"})
    loads.push_back(".global" + cache);
  for (const std::string hint : {"normal", "unchanged", "first", "last"}) {
    loads.push_back(".global.L1::evict_" + hint);
  }
  for (const std::string size : {"64", "128", "256"}) loads.push_back(".L2::" + size + "B");
  Check(loads, {".global"});
}

TEST_P(CopiesTest, WaysOfStoring) {
  Words stores = {"",
                  ".volatile",
                  ".volatile.global",
                  ".weak",
                  ".weak.global",
                  ".mmio.relaxed.sys.global",
                  ".global.L1::no_allocate"};
  for (const std::string order : {".relaxed", ".release"}) {
    for (const std::string scope : {".cta", ".cluster", ".gpu", ".sys"}) {
      stores.push_back(order + scope);
      stores.push_back(order + scope + ".global");
    }
  }
  for (const std::string cache : {".wb", ".cg", ".cs", ".wt"}) stores.push_back(".global" + cache);
  for (const std::string hint : {"normal", "unchanged", "first", "last"}) {
    stores.push_back(".global.L1::evict_" + hint);
  }
  Check({".global"}, stores);
}

// Nothing else writes there, so ldu may be used, too.
TEST_P(CopiesTest, LoadsOfWhatIsTheSameForAll) {
  FillInput();
  for (const std::string load : {"u", "u.global"}) {
    const std::vector<Element> elements = Elements();
    std::string body = kCopies;
    for (size_t i = 0; i < elements.size(); ++i) {
      body +=
          Copy(elements[i], load, "%out", ".global", "%to+" + std::to_string(kCopied + kSlot * i));
    }
    Go(body + "ret;");
    for (size_t i = 0; i < elements.size(); ++i) {
      for (uint64_t at = 0; at < kSlot; ++at) {
        if (at % 16 >= elements[i].bytes) continue;
        ASSERT_EQ(device_.Array<uint8_t>(kCopied + kSlot * i)[at],
                  device_.Array<uint8_t>(kOriginal)[at % 16])
            << elements[i].type;
      }
    }
  }
}

// Through shared and local memory, and that in which parameters are passed.
TEST_P(CopiesTest, SpacesOfABlockAndAThread) {
  FillInput();
  const std::vector<Element> elements = Elements();
  struct Place {
    std::string space, at;
  };
  const Place kPlaces[] = {{".shared", "%box"},          {".shared::cta", "%box"},
                           {".volatile.shared", "%box"}, {".relaxed.cta.shared::cta", "%box"},
                           {".weak.shared", "%box"},     {".local", "mine"},
                           {".weak.local", "mine"},      {".local.cs", "mine"},
                           {".param", "passed"},         {".param::func", "passed"}};
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.space);
    std::memset(device_.Array<uint8_t>(kCopied), 0, kSlot * elements.size());
    std::string body = std::string(kCopies) + R"(
  .shared .align 16 .b8 boxes[512]; .local .align 16 .b8 mine[16]; .reg .b64 %box;
  .param .align 16 .b8 passed[16];
  mul.wide.u32 %box, %t, 16; mov.u64 %rd1, boxes; add.u64 %box, %box, %rd1;
)";
    for (size_t i = 0; i < elements.size(); ++i) {
      body += Copy(elements[i], ".global", "%in", place.space, place.at) +
              Copy(elements[i], place.space, place.at, ".global",
                   "%to+" + std::to_string(kCopied + kSlot * i));
    }
    Go(body + "ret;");
    for (size_t i = 0; i < elements.size(); ++i) ExpectCopied(i, elements[i]);
  }
}

// Of barriers for all, for some, and with a vote: each in each way.
TEST_P(ModifiersTest, WaysOfWritingABarrier) {
  for (const auto& [name, aligned] : {std::pair<std::string, std::string>{"bar", ""},
                                      {"bar.cta", ""},
                                      {"barrier", ""},
                                      {"barrier", ".aligned"},
                                      {"barrier.cta", ""},
                                      {"barrier.cta", ".aligned"}}) {
    SCOPED_TRACE(name + aligned);
    std::string text = R"(
    .shared .b32 box[3];
    shr.u32 %r1, %t, 5; rem.u32 %r2, %t, 3; setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r1, 1;
    BAR.red.popcALIGNED.u32 %r3, 0, %p1;
    BAR.red.andALIGNED.pred %p3, 1, 96, %p1;
    BAR.red.orALIGNED.pred %p4, 2, !%p1;
    selp.u32 %r4, 1000, 0, %p3; selp.u32 %r5, 2000, 0, %p4;
    add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5;
    @%p2 bra SECOND;
    setp.eq.u32 %p5, %r1, 2; @%p5 bra THIRD;
    st.shared.u32 [box], 10000;
    BAR.arriveALIGNED 3, 64;
    bra OUT;
  SECOND:
    BAR.syncALIGNED 3, 64;
    ld.shared.u32 %r6, [box]; add.u32 %r3, %r3, %r6;
    bra OUT;
  THIRD:
    add.u32 %r3, %r3, 50000;
  OUT:
    BAR.syncALIGNED 0;
    st.global.u32 [%at], %r3; ret;)";
    text = Replaced(Replaced(text, "BAR", name), "ALIGNED", aligned);
    const auto out = Go(text, 96);
    for (uint32_t i = 0; i < 96; ++i) {
      EXPECT_EQ(out[i], 32 + 2000 + (i / 32 == 1 ? 10000 : i / 32 == 2 ? 50000 : 0)) << i;
    }
  }
}

TEST_P(ModifiersTest, LanesWaitForEachOther) {
  const auto out = Go(R"(
    .shared .b32 box[32];
    shl.b32 %r1, %t, 2; mov.u32 %r2, box; add.u32 %r1, %r1, %r2;
    setp.lt.u32 %p1, %t, 16;
    @%p1 bra LOW;
    st.shared.u32 [%r1], %t;
    bar.warp.sync 0xffffffff;
    ld.shared.u32 %r3, [%r1+-64];
    bra OUT;
  LOW:
    mul.lo.u32 %r4, %t, 100; st.shared.u32 [%r1], %r4;
    bar.warp.sync -1;
    ld.shared.u32 %r3, [%r1+64];
  OUT:
    st.global.u32 [%at], %r3; ret.uni;)");
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 16 ? i + 16 : (i - 16) * 100);
}

TEST_P(ModifiersTest, WaysOfWritingABarrierInMemory) {
  struct Way {
    const char *space, *address, *arrive, *wait;
  };
  for (const Way& way : {Way{".shared", "bar", "", ""},
                         {".shared::cta", "bar", "", ""},
                         {"", "%rd9", "", ""},
                         {".shared", "bar", ".release.cta", ".acquire.cta"},
                         {".shared::cta", "bar", ".release.cta", ".acquire.cta"},
                         {"", "%rd9", ".release.cta", ".acquire.cta"}}) {
    SCOPED_TRACE(std::string(way.arrive) + way.space);
    std::string text = R"(
    .shared .align 8 .b64 bar; .reg .b64 %s<4>;
    mov.u64 %rd9, bar; cvta.shared.u64 %rd9, %rd9;
    mbarrier.initSPACE.b64 [ADDRESS], 3;
    mbarrier.arrive.noCompleteARRIVESPACE.b64 %s1, [ADDRESS], 2;
    mbarrier.test_waitWAITSPACE.b64 %p1, [ADDRESS], %s1;
    mbarrier.arriveARRIVESPACE.b64 %s2, [ADDRESS];
    mbarrier.try_waitWAITSPACE.b64 %p2, [ADDRESS], %s2;
    mbarrier.test_wait.parityWAITSPACE.b64 %p3, [ADDRESS], 0;
    mbarrier.try_wait.parityWAITSPACE.b64 %p4, [ADDRESS], 1;
    selp.u32 %r1, 1, 0, %p1; @%p2 add.u32 %r1, %r1, 2; @%p3 add.u32 %r1, %r1, 4;
    @%p4 add.u32 %r1, %r1, 8;
    mbarrier.arrive_drop.noCompleteARRIVESPACE.b64 %s1, [ADDRESS], 1;
    mbarrier.arrive_dropARRIVESPACE.b64 %s2, [ADDRESS];
    cp.async.mbarrier.arrive.noincSPACE.b64 [ADDRESS];
    mbarrier.test_wait.parityWAITSPACE.b64 %p1, [ADDRESS], 1; @%p1 add.u32 %r1, %r1, 16;
    cp.async.mbarrier.arriveSPACE.b64 [ADDRESS];
    mbarrier.arriveARRIVESPACE.b64 %s3, [ADDRESS];
    mbarrier.pending_count.b64 %r2, %s3; mad.lo.u32 %r1, %r2, 100, %r1;
    mbarrier.invalSPACE.b64 [ADDRESS];
    st.global.u32 [%out], %r1; ret;)";
    text = Replaced(Replaced(text, "SPACE", way.space), "ADDRESS", way.address);
    text = Replaced(Replaced(text, "ARRIVE", way.arrive), "WAIT", way.wait);
    EXPECT_EQ(Go(text, 1)[0], 1u * 100 + 2 + 4 + 16);
  }
}

// Copies on the side, atomics and loads with policies of every kind.
TEST_P(ModifiersTest, PoliciesChangeNothing) {
  Words policies = {"createpolicy.cvt.L2.b64 %rd1, 0x10f0000000000000;"};
  for (const std::string first : {"last", "normal", "first", "unchanged"}) {
    for (const std::string second : {"", ".L2::evict_unchanged", ".L2::evict_first"}) {
      const std::string words = ".L2::evict_" + first + second + ".b64 %rd1";
      policies.push_back("createpolicy.fractional" + words + ";");
      policies.push_back("createpolicy.fractional" + words + ", 0f3f000000;");
      policies.push_back("createpolicy.range" + words + ", [%out], 1024, 4096;");
      policies.push_back("createpolicy.range.global" + words + ", [%out], %t, 4096;");
    }
  }
  size_t turn = 0;
  const Words sizes = {"", ".L2::64B", ".L2::128B", ".L2::256B"};
  for (const std::string& policy : policies) {
    SCOPED_TRACE(policy);
    const std::string size = sizes[turn++ % sizes.size()];
    for (uint32_t i = 0; i < 128; ++i) device_.Array<uint32_t>(4096)[i] = 10 * i;
    device_.Array<uint32_t>(8192)[0] = 5;
    const auto out = Go(policy + R"(
    .shared .align 16 .b8 box[1024];
    mov.u32 %r1, box; shl.b32 %r2, %t, 5; add.u32 %r1, %r1, %r2;
    mul.wide.u32 %rd2, %t, 16; add.u64 %rd2, %rd2, %out;
    cp.async.cg.shared.global.L2::cache_hint)" +
                        size + R"( [%r1], [%rd2+4096], 16, %rd1;
    cp.async.ca.shared::cta.global.L2::cache_hint)" +
                        size + R"( [%r1+16], [%rd2+4104], 8, 4, %rd1;
    cp.async.wait_all;
    ld.shared.u32 %r3, [%r1+12]; ld.shared.u32 %r4, [%r1+16]; ld.shared.u32 %r5, [%r1+20];
    ld.global.L2::cache_hint)" +
                        size + R"(.u32 %r6, [%rd2+4100], %rd1;
    atom.global.add.L2::cache_hint.u32 %r7, [%out+8192], 2, %rd1;
    red.relaxed.gpu.global.add.L2::cache_hint.u32 [%out+8192], 1, %rd1;
    add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6;
    st.global.L2::cache_hint.u32 [%at], %r3, %rd1; ret;)");
    // The words 3, 2 and 1 of the four of a thread; nothing of what was not asked for.
    for (uint32_t i = 0; i < 32; ++i) ASSERT_EQ(out[i], 10 * (3 * 4 * i + 6)) << i;
    EXPECT_EQ(device_.Array<uint32_t>(8192)[0], 5 + 32 * 3u);
  }
}

}  // namespace
}  // namespace tandem::ptx
