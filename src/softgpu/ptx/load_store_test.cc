// Loads and stores of every type into and from registers of every width, at addresses in every kind
// of order: those in order are taken by vectors, each kind by a way of its own.
#include <functional>
#include <random>

#include "src/softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

constexpr uint64_t kAddresses = 0, kValues = 4096, kOut = 8192, kData = 12288;
constexpr uint64_t kDataBytes = 3 * TestDevice::kGranule;

struct Width {
  const char* type;  // of memory
  int bytes;
  bool is_signed;
};
constexpr Width kWidths[] = {{"u8", 1, false},  {"s8", 1, true},   {"u16", 2, false},
                             {"s16", 2, true},  {"u32", 4, false}, {"s32", 4, true},
                             {"u64", 8, false}, {"s64", 8, true}};

// Where each lane's element lies, counted in elements.
struct Order {
  const char* name;
  std::function<uint64_t(uint32_t lane)> place;
};
const Order kOrders[] = {
    {"one behind the other", [](uint32_t lane) { return 8 + lane; }},
    {"backwards", [](uint32_t lane) { return 100 - lane; }},
    {"halves apart", [](uint32_t lane) { return lane % 16 + lane / 16 * 64; }},
    {"halves alike", [](uint32_t lane) { return 3 + lane % 16; }},
    {"one for each half", [](uint32_t lane) { return 5 + lane / 16; }},
    {"one for all", [](uint32_t) { return 7; }},
    {"the last one elsewhere", [](uint32_t lane) { return lane == 31 ? 90 : lane; }},
    {"two changed places", [](uint32_t lane) { return lane == 9    ? 10
                                                      : lane == 10 ? 9
                                                                   : lane; }},
    {"over a granule's end",
     [](uint32_t lane) { return TestDevice::kGranule / 8 - 16 + lane; }},  // of elements of 8 bytes
};

class LoadStoreTest : public ::testing::TestWithParam<Path> {
 protected:
  // Loads or stores one element a lane; `bits` is the width of the register.
  static std::string Body(const Width& width, int bits, bool load) {
    const std::string type = width.type, b = std::to_string(bits);
    const std::string widened = bits == 64 ? "mov.b64 %rd4, %v;" : "cvt.u64.u" + b + " %rd4, %v;";
    const std::string narrowed = bits == 64 ? "mov.b64 %v, %rd3;" : "cvt.u" + b + ".u64 %v, %rd3;";
    return ".reg .b" + b + " %v; .reg .b32 %t; .reg .b64 %rd<9>;\n" +
           "ld.param.u64 %rd1, [base]; mov.u32 %t, %tid.x; mad.wide.u32 %rd1, %t, 8, %rd1;\n" +
           "ld.global.u64 %rd2, [%rd1]; ld.global.u64 %rd3, [%rd1+4096];\n" +
           (load ? "ld.global." + type + " %v, [%rd2]; " + widened
                 : narrowed + "st.global." + type + " [%rd2], %v; mov.b64 %rd4, %rd3;") +
           "\nst.global.u64 [%rd1+8192], %rd4; ret;";
  }

  void Fill(const Order& order, int bytes) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
      device_.Array<uint64_t>(kAddresses)[lane] = Place(order, lane, bytes);
      device_.Array<uint64_t>(kValues)[lane] = random_();
    }
    for (uint64_t i = 0; i < kDataBytes; ++i) device_.Array<uint8_t>(kData)[i] = Byte();
  }
  uint64_t Place(const Order& order, uint32_t lane, int bytes) const {
    return device_.At(kData) + order.place(lane) * static_cast<uint64_t>(bytes);
  }
  uint8_t Byte() { return static_cast<uint8_t>(random_()); }
  void Run(const Width& width, int bits, bool load) {
    const auto program = MustCompile(Module(".param .u64 base", Body(width, bits, load)));
    ASSERT_NE(program, nullptr);
    MustRun(*program, device_, {}, Params().Add(device_.At(0)), GetParam());
  }

  TestDevice device_;
  std::mt19937_64 random_{Seed()};
};
INSTANTIATE_TEST_SUITE_P(Paths, LoadStoreTest, ::testing::ValuesIn(Paths()));

// The elements as the ISA document extends them: to the register's width by the type's sign.
TEST_P(LoadStoreTest, LoadsExtend) {
  for (const Width& width : kWidths) {
    for (int bits = width.bytes < 2 ? 16 : 8 * width.bytes; bits <= 64; bits *= 2) {
      for (const Order& order : kOrders) {
        SCOPED_TRACE(std::string(width.type) + " to " + std::to_string(bits) + ", " + order.name);
        Fill(order, width.bytes);
        Run(width, bits, true);
        for (uint32_t lane = 0; lane < 32; ++lane) {
          uint64_t expected = 0;
          std::memcpy(&expected, reinterpret_cast<void*>(Place(order, lane, width.bytes)),
                      static_cast<size_t>(width.bytes));
          const int unused = 64 - 8 * width.bytes;
          if (width.is_signed) {
            expected = static_cast<uint64_t>(static_cast<int64_t>(expected << unused) >> unused);
          }
          if (bits < 64) expected &= (uint64_t{1} << bits) - 1;
          ASSERT_EQ(device_.Array<uint64_t>(kOut)[lane], expected) << "lane " << lane;
        }
      }
    }
  }
}

// The register's low part; of lanes that store to one place, one wins whole. Nothing else changes.
TEST_P(LoadStoreTest, StoresTruncate) {
  for (const Width& width : kWidths) {
    for (int bits = width.bytes < 2 ? 16 : 8 * width.bytes; bits <= 64; bits *= 2) {
      for (const Order& order : kOrders) {
        SCOPED_TRACE(std::string(width.type) + " from " + std::to_string(bits) + ", " + order.name);
        Fill(order, width.bytes);
        const auto* data = device_.Array<uint8_t>(kData);
        std::vector<uint8_t> expected(data, data + kDataBytes);
        for (uint32_t lane = 0; lane < 32; ++lane) {
          std::memcpy(expected.data() + (Place(order, lane, width.bytes) - device_.At(kData)),
                      &device_.Array<uint64_t>(kValues)[lane], static_cast<size_t>(width.bytes));
        }
        Run(width, bits, false);
        ASSERT_EQ(std::vector<uint8_t>(data, data + kDataBytes), expected);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::ptx
