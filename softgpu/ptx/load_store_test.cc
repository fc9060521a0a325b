// Loads and stores of every type into and from registers of every width and several at once, in
// global and shared memory, at addresses in every kind of order: those in order are taken by
// vectors, each kind by a way of its own.
#include <algorithm>
#include <functional>
#include <random>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

constexpr uint64_t kAddresses = 0, kValues = 4096, kOut = 8192, kData = 12288;
constexpr uint64_t kDataBytes = 3 * TestDevice::kGranule;
constexpr uint64_t kSharedBytes = 2048;  // of the data, what can be had in shared memory

struct Width {
  const char* type;  // of memory
  int bytes;
  bool is_signed;
};
constexpr Width kWidths[] = {{"u8", 1, false},  {"s8", 1, true},   {"u16", 2, false},
                             {"s16", 2, true},  {"u32", 4, false}, {"s32", 4, true},
                             {"u64", 8, false}, {"s64", 8, true}};

// Where each lane's element lies, counted in elements of `bytes` bytes.
struct Order {
  const char* name;
  std::function<uint64_t(uint32_t lane, uint64_t bytes)> place;
};
const Order kOrders[] = {
    {"one behind the other", [](uint32_t lane, uint64_t) { return 8 + lane; }},
    {"backwards", [](uint32_t lane, uint64_t) { return 100 - lane; }},
    {"halves apart", [](uint32_t lane, uint64_t) { return lane % 16 + lane / 16 * 64; }},
    {"halves alike", [](uint32_t lane, uint64_t) { return 3 + lane % 16; }},
    {"one for each half", [](uint32_t lane, uint64_t) { return 5 + lane / 16; }},
    {"one for all", [](uint32_t, uint64_t) { return 7; }},
    {"the last one elsewhere", [](uint32_t lane, uint64_t) { return lane == 31 ? 90 : lane; }},
    {"two changed places",
     [](uint32_t lane, uint64_t) { return lane == 9    ? 10
                                          : lane == 10 ? 9
                                                       : lane; }},
};
// The same over the end of a granule.
const Order kCrossing[] = {
    {"the halves on either side",
     [](uint32_t lane, uint64_t bytes) { return TestDevice::kGranule / bytes - 16 + lane; }},
    {"the first half on both sides",
     [](uint32_t lane, uint64_t bytes) { return TestDevice::kGranule / bytes - 8 + lane; }},
    {"the second half on both sides",
     [](uint32_t lane, uint64_t bytes) { return TestDevice::kGranule / bytes - 24 + lane; }},
    {"backwards over the end",
     [](uint32_t lane, uint64_t bytes) { return TestDevice::kGranule / bytes + 15 - lane; }},
};

// Which memory, and how it is addressed.
struct Way {
  const char* name;
  const char* space;
  bool shared;
  bool narrow;  // a register of 32 bits has the address
};
const Way kGlobal = {"global", ".global", false, false};
const Way kWays[] = {kGlobal,
                     {"generic", "", false, false},
                     {"shared", ".shared", true, false},
                     {"shared, narrow", ".shared", true, true},
                     {"shared, generic", "", true, false}};

struct Access {
  Width width;
  int bits = 0;   // of a register
  int count = 1;  // of registers
  Way way = kGlobal;

  uint64_t bytes() const { return static_cast<uint64_t>(width.bytes * count); }
  std::string name() const {
    return std::string(width.type) + " and " + std::to_string(bits) + " bits, " +
           std::to_string(count) + ", " + way.name;
  }
};

class LoadStoreTest : public ::testing::TestWithParam<Path> {
 protected:
  static constexpr uint64_t kNext = 0x0123'4567'89ab'cdef;  // from a lane's value to its next one

  // Between the data and a copy of it in shared memory.
  static std::string CopyData(const std::string& label, const char* to, const char* from) {
    return "bar.sync 0; mul.wide.u32 %rd5, %t, 8;\n" + label +
           ": add.u64 %rd6, %rd7, %rd5; add.u64 %rd8, %rd9, %rd5; ld." + from + "; st." + to +
           "; add.u64 %rd5, %rd5, 256; setp.lt.u64 %p, %rd5, " + std::to_string(kSharedBytes) +
           "; @%p bra " + label + "; bar.sync 0;\n";
  }
  static std::string Body(const Access& access, bool load) {
    const std::string type = access.width.type, b = std::to_string(access.bits);
    const bool wide = access.bits == 64;
    std::string before, after, registers;
    for (int i = 0; i < access.count; ++i) {
      const std::string v = "%v" + std::to_string(i);
      registers += (i == 0 ? "" : ", ") + v;
      before += "add.u64 %rd4, %rd3, " + std::to_string(kNext * static_cast<uint64_t>(i)) + "; " +
                (wide ? "mov.b64 " : "cvt.u" + b + ".u64 ") + v + ", %rd4;\n";
      after += (wide ? "mov.b64 %rd4, " : "cvt.u64.u" + b + " %rd4, ") + v +
               "; st.global.u64 [%rd1+" + std::to_string(kOut + 256 * static_cast<uint64_t>(i)) +
               "], %rd4;\n";
    }
    if (access.count > 1) registers = "{" + registers + "}";
    const std::string kind = access.way.space +
                             (access.count > 1 ? ".v" + std::to_string(access.count) : "") + "." +
                             type;
    const std::string address = access.way.narrow ? "[%a]" : "[%rd2]";
    std::string body = ".reg .b" + b + " %v<4>; .reg .b32 %t, %a; .reg .b64 %rd<12>;" +
                       ".reg .pred %p; .shared .align 16 .b8 copy[" + std::to_string(kSharedBytes) +
                       "];\nld.param.u64 %rd9, [base]; mov.u32 %t, %tid.x;" +
                       "mad.wide.u32 %rd1, %t, 8, %rd9; add.u64 %rd9, %rd9, " +
                       std::to_string(kData) + "; mov.u64 %rd7, copy;\n" +
                       "ld.global.u64 %rd2, [%rd1]; ld.global.u64 %rd3, [%rd1+4096];\n";
    if (access.way.shared) {
      body += CopyData("IN", "shared.u64 [%rd6], %rd10", "global.u64 %rd10, [%rd8]") +
              "sub.u64 %rd2, %rd2, %rd9; add.u64 %rd2, %rd2, %rd7;\n";
      if (*access.way.space == 0) body += "cvta.shared.u64 %rd2, %rd2;\n";
      if (access.way.narrow) body += "cvt.u32.u64 %a, %rd2;\n";
    }
    body += load ? "ld" + kind + " " + registers + ", " + address + ";\n" + after
                 : before + "st" + kind + " " + address + ", " + registers + ";\n";
    if (access.way.shared) {
      body += CopyData("OUT", "global.u64 [%rd8], %rd10", "shared.u64 %rd10, [%rd6]");
    }
    return body + "ret;";
  }
  static std::shared_ptr<const Program> Compiled(const Access& access, bool load) {
    return MustCompile(Module(".param .u64 base", Body(access, load)));
  }

  // Of every type into registers of every width, and of several registers; each in every way.
  static std::vector<Access> Accesses() {
    std::vector<Access> all;
    for (const Width& width : kWidths) {
      for (int bits = width.bytes < 2 ? 16 : 8 * width.bytes; bits <= 64; bits *= 2) {
        all.push_back({width, bits});
      }
      if (width.is_signed) continue;  // that shows above
      const int bits = std::max(8 * width.bytes, 16);
      for (const Way& way : kWays) {
        for (const int count : {1, 2, 4}) {
          const bool have = count == 1 && way.name == kGlobal.name;
          if (!have && count * width.bytes <= 16) all.push_back({width, bits, count, way});
        }
      }
    }
    return all;
  }

  void Fill(const Order& order, uint64_t bytes) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
      device_.Array<uint64_t>(kAddresses)[lane] = Place(order, lane, bytes);
      device_.Array<uint64_t>(kValues)[lane] = random_();
    }
    for (uint64_t i = 0; i < kDataBytes / 8; ++i) device_.Array<uint64_t>(kData)[i] = random_();
  }
  uint64_t Place(const Order& order, uint32_t lane, uint64_t bytes) const {
    return device_.At(kData) + order.place(lane, bytes) * bytes;
  }
  Stop Run(const Program& program) {
    return MakeExecution(program, device_, {}, Params().Add(device_.At(0)), GetParam()).Run(Never);
  }

  // Shared memory has no granules.
  static std::vector<Order> OrdersOf(const Access& access) {
    std::vector<Order> orders(std::begin(kOrders), std::end(kOrders));
    if (!access.way.shared) {
      orders.insert(orders.end(), std::begin(kCrossing), std::end(kCrossing));
    }
    return orders;
  }

  void CheckLoad(const Access& access, const Program& program, const Order& order) {
    const Width& width = access.width;
    Fill(order, access.bytes());
    ASSERT_EQ(Run(program), Stop::kDone);
    for (uint32_t lane = 0; lane < 32; ++lane) {
      const uint64_t place = Place(order, lane, access.bytes());
      for (int i = 0; i < access.count; ++i) {
        uint64_t expected = 0;
        std::memcpy(&expected,
                    reinterpret_cast<void*>(place + static_cast<uint64_t>(i * width.bytes)),
                    static_cast<size_t>(width.bytes));
        const int unused = 64 - 8 * width.bytes;
        if (width.is_signed) {
          expected = static_cast<uint64_t>(static_cast<int64_t>(expected << unused) >> unused);
        }
        if (access.bits < 64) expected &= (uint64_t{1} << access.bits) - 1;
        ASSERT_EQ(device_.Array<uint64_t>(kOut)[static_cast<uint32_t>(i * 32) + lane], expected)
            << "lane " << lane << ", register " << i;
      }
    }
  }
  void CheckStore(const Access& access, const Program& program, const Order& order) {
    Fill(order, access.bytes());
    const auto* data = device_.Array<uint8_t>(kData);
    std::vector<uint8_t> expected(data, data + kDataBytes);
    for (uint32_t lane = 0; lane < 32; ++lane) {
      uint8_t* to = expected.data() + (Place(order, lane, access.bytes()) - device_.At(kData));
      uint64_t value = device_.Array<uint64_t>(kValues)[lane];
      for (int i = 0; i < access.count; ++i, value += kNext, to += access.width.bytes) {
        std::memcpy(to, &value, static_cast<size_t>(access.width.bytes));
      }
    }
    ASSERT_EQ(Run(program), Stop::kDone);
    ASSERT_EQ(std::vector<uint8_t>(data, data + kDataBytes), expected);
  }

  TestDevice device_;
  std::mt19937_64 random_{Seed()};
};
INSTANTIATE_TEST_SUITE_P(Paths, LoadStoreTest, ::testing::ValuesIn(Paths()));

// The elements as the ISA document extends them: to the register's width by the type's sign.
TEST_P(LoadStoreTest, LoadsExtend) {
  for (const Access& access : Accesses()) {
    SCOPED_TRACE(access.name());
    const auto program = Compiled(access, true);
    ASSERT_NE(program, nullptr);
    for (const Order& order : OrdersOf(access)) {
      SCOPED_TRACE(order.name);
      ASSERT_NO_FATAL_FAILURE(CheckLoad(access, *program, order));
    }
  }
}

// The register's low part; of lanes that store to one place, one wins whole. Nothing else changes.
TEST_P(LoadStoreTest, StoresTruncate) {
  for (const Access& access : Accesses()) {
    SCOPED_TRACE(access.name());
    const auto program = Compiled(access, false);
    ASSERT_NE(program, nullptr);
    for (const Order& order : OrdersOf(access)) {
      SCOPED_TRACE(order.name);
      ASSERT_NO_FATAL_FAILURE(CheckStore(access, *program, order));
    }
  }
}

// Wherever lanes cross into a granule that is not theirs to read or to write.
TEST_P(LoadStoreTest, WhatCrossesIntoForbiddenMemoryFaults) {
  constexpr uint64_t kForbidden = kData / TestDevice::kGranule + 1;
  for (const bool reading : {true, false}) {
    device_ = TestDevice();
    device_.Forbid(kForbidden, reading, !reading);
    for (const Access& access : Accesses()) {
      if (access.way.shared) continue;
      SCOPED_TRACE(access.name() + (reading ? ", not to be read" : ", not to be written"));
      const auto load = Compiled(access, true), store = Compiled(access, false);
      ASSERT_TRUE(load != nullptr && store != nullptr);
      for (const Order& order : kCrossing) {
        SCOPED_TRACE(order.name);
        Fill(order, access.bytes());
        EXPECT_EQ(Run(*load), reading ? Stop::kIllegalAddress : Stop::kDone);
        EXPECT_EQ(Run(*store), reading ? Stop::kDone : Stop::kIllegalAddress);
      }
    }
  }
}

// A kernel that has nothing but one narrow register, which is its address.
TEST_P(LoadStoreTest, ANarrowAddressMayBeTheOnlyRegister) {
  for (const int beyond : {0, 4}) {
    const auto program =
        MustCompile(Module("",
                           ".shared .align 4 .b8 room[128]; .reg .b32 %a; mov.u32 %a, %tid.x;\n"
                           "shl.b32 %a, %a, 2; st.shared.u32 [%a+" +
                               std::to_string(beyond) + "], %a; ld.shared.u32 %a, [%a]; ret;"));
    ASSERT_NE(program, nullptr);
    Execution execution = MakeExecution(*program, device_, {}, Params(), GetParam());
    EXPECT_EQ(execution.Run(Never), beyond == 0 ? Stop::kDone : Stop::kIllegalAddress);
  }
}

}  // namespace
}  // namespace tandem::ptx
