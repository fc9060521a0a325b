// wmma on every shape and type, against a plain product; and mma on whole numbers, against the
// layouts that the PTX document gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

class WmmaTest : public KernelTest {};

INSTANTIATE_TEST_SUITE_P(Paths, WmmaTest, ::testing::ValuesIn(Paths()));

using Matrix = std::vector<std::vector<int>>;

Matrix RandomMatrix(int rows, int columns, int least, int most, std::mt19937* random) {
  Matrix matrix(static_cast<size_t>(rows), std::vector<int>(static_cast<size_t>(columns)));
  for (auto& row : matrix) {
    for (int& value : row) {
      value = least + static_cast<int>((*random)() % static_cast<uint32_t>(most - least + 1));
    }
  }
  return matrix;
}

// a times b, plus c.
Matrix Product(const Matrix& a, const Matrix& b, Matrix c) {
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b[0].size(); ++j) {
      for (size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

size_t BytesOf(const std::string& type) {
  const char last = type.back();
  return type == "f64" ? 8 : last == '8' ? 1 : last == '6' ? 2 : 4;
}

uint64_t Encode(const std::string& type, int value) {
  const auto single = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (type == "f64") return std::bit_cast<uint64_t>(static_cast<double>(value));
  if (type == "f32" || type == "tf32") return single;
  if (type == "bf16") return single >> 16;
  if (type != "f16") return static_cast<uint64_t>(value);
  if (value == 0) return 0;
  return (value < 0 ? 0x8000u : 0u) | (((single & 0x7fffffff) >> 13) - (112u << 10));
}

void Put(uint8_t* to, const Matrix& matrix, const std::string& type, bool by_row, size_t stride) {
  for (size_t i = 0; i < matrix.size(); ++i) {
    for (size_t j = 0; j < matrix[0].size(); ++j) {
      const uint64_t bits = Encode(type, matrix[i][j]);
      const size_t at = by_row ? i * stride + j : j * stride + i;
      std::memcpy(to + at * BytesOf(type), &bits, BytesOf(type));
    }
  }
}

struct Case {
  std::string shape;
  int m, n, k;
  std::string factor, sum, result;
  int a, b, c, d;  // registers
};

std::string Registers(const std::string& name, int count) {
  std::string list = "{";
  for (int i = 0; i < count; ++i) list += (i == 0 ? "" : ", ") + name + std::to_string(i);
  return list + "}";
}

std::string RegisterOf(const std::string& type) {
  return type == "f64" ? "f64" : type == "f32" ? "f32" : "b32";
}

constexpr size_t kStride = 40;
constexpr size_t kMatrix = 8192;  // bytes

// The four matrices to or from shared memory, word by word.
std::string CopyMatrices(const std::string& label, const std::string& to, const std::string& from) {
  return "mov.u32 %w, %tid.x; mul.wide.u32 %at, %w, 4;\n" + label + ": add.u64 %from, %at, " +
         from + "; add.u64 %to, %at, " + to + "; ld.u32 %w, [%from]; st.u32 [%to], %w;\n" +
         "add.u64 %at, %at, 128; setp.lt.u64 %more, %at, 32768; @%more bra " + label + ";\n";
}

// For a shared space the kernel copies the matrices there, and back again.
std::string KernelOf(const Case& c, const std::string& layout_a, const std::string& layout_b,
                     const std::string& layout_d, const std::string& space) {
  const std::string on = ".sync.aligned.", stride = std::to_string(kStride);
  const bool half = c.factor == "f16", shared = space.starts_with(".shared");
  const std::string types =
      half ? c.result + "." + c.sum : c.result + "." + c.factor + "." + c.factor + "." + c.sum;
  const std::string in = "." + c.shape + space + ".";
  return Module(".param .u64 in",
                ".reg .b64 %in, %box, %a, %at, %from, %to; .reg .b32 %w; .reg .pred %more;\n"
                ".shared .align 32 .b8 box[32768];\n.reg ." +
                    RegisterOf(c.factor) + " a<8>, b<8>;\n" + ".reg ." + RegisterOf(c.sum) +
                    " c<8>;\n.reg ." + RegisterOf(c.result) +
                    " d<8>;\nld.param.u64 %in, [in]; mov.u64 %a, %in;\n" +
                    "mov.u64 %box, box; cvta.shared.u64 %box, %box;\n" +
                    (shared ? CopyMatrices("IN", "%box", "%in") + "mov.u64 %a, box;\n" : "") +
                    "wmma.load.a" + on + layout_a + in + c.factor + " " + Registers("a", c.a) +
                    ", [%a], " + stride + ";\nwmma.load.b" + on + layout_b + in + c.factor + " " +
                    Registers("b", c.b) + ", [%a+8192], " + stride + ";\nwmma.load.c" + on +
                    layout_d + in + c.sum + " " + Registers("c", c.c) + ", [%a+16384], " + stride +
                    ";\nwmma.mma" + on + layout_a + "." + layout_b + "." + c.shape + "." + types +
                    " " + Registers("d", c.d) + ", " + Registers("a", c.a) + ", " +
                    Registers("b", c.b) + ", " + Registers("c", c.c) + ";\nwmma.store.d" + on +
                    layout_d + in + c.result + " [%a+24576], " + Registers("d", c.d) + ", " +
                    stride + ";\n" + (shared ? CopyMatrices("OUT", "%in", "%box") : "") + "ret;");
}

void RunCase(const Case& c, int which, TestDevice* device, Path path) {
  const std::string layouts[] = {"row", "col"};
  const bool rows_a = (which & 1) == 0, rows_b = (which & 2) == 0, rows_d = (which & 4) == 0;
  const std::string spaces[] = {"", ".global", ".shared", ".shared::cta"};
  const std::string text = KernelOf(c, layouts[rows_a ? 0 : 1], layouts[rows_b ? 0 : 1],
                                    layouts[rows_d ? 0 : 1], spaces[which >> 3]);
  SCOPED_TRACE(text);
  const auto program = MustCompile(text);
  if (program == nullptr) return;
  std::mt19937 random(Seed());
  const int least = c.factor == "u8" ? 0 : c.factor == "s8" ? -128 : -8;
  const int most = c.factor == "u8" ? 255 : c.factor == "s8" ? 127 : 8;
  const Matrix a = RandomMatrix(c.m, c.k, least, most, &random);
  const Matrix b = RandomMatrix(c.k, c.n, least, most, &random);
  const Matrix sums = RandomMatrix(c.m, c.n, -8, 8, &random);
  std::memset(device->Array<uint8_t>(0), 0xcd, 4 * kMatrix);
  Put(device->Array<uint8_t>(0), a, c.factor, rows_a, kStride);
  Put(device->Array<uint8_t>(kMatrix), b, c.factor, rows_b, kStride);
  Put(device->Array<uint8_t>(2 * kMatrix), sums, c.sum, rows_d, kStride);
  std::vector<uint8_t> expected(kMatrix, 0xcd);
  Put(expected.data(), Product(a, b, sums), c.result, rows_d, kStride);
  MustRun(*program, *device, {}, Params().Add(device->At(0)), path);
  const uint8_t* result = device->Array<uint8_t>(3 * kMatrix);
  EXPECT_EQ(std::vector<uint8_t>(result, result + kMatrix), expected);
}

TEST_P(WmmaTest, MultipliesInEveryShape) {
  std::vector<Case> cases = {
      {"m8n8k4", 8, 8, 4, "f64", "f64", "f64", 1, 1, 2, 2},
      {"m16n16k8", 16, 16, 8, "tf32", "f32", "f32", 4, 4, 8, 8},
  };
  struct Size {
    std::string shape;
    int m, n;
  };
  for (const Size& s : {Size{"m16n16k16", 16, 16}, {"m32n8k16", 32, 8}, {"m8n32k16", 8, 32}}) {
    for (const std::string from : {"f16", "f32"}) {
      for (const std::string to : {"f16", "f32"}) {
        cases.push_back({s.shape, s.m, s.n, 16, "f16", from, to, 8, 8, from == "f16" ? 4 : 8,
                         to == "f16" ? 4 : 8});
      }
    }
    cases.push_back({s.shape, s.m, s.n, 16, "bf16", "f32", "f32", s.m / 4, s.n / 4, 8, 8});
    for (const std::string factor : {"s8", "u8"}) {
      cases.push_back({s.shape, s.m, s.n, 16, factor, "s32", "s32", s.m / 8, s.n / 8, 8, 8});
    }
  }
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  for (const Case& c : cases) {
    for (int which = 0; which < 32; ++which) RunCase(c, which, &device_, GetParam());
  }
}

TEST_P(WmmaTest, WholeNumbersEndAtTheLargest) {
  for (const bool largest : {true, false}) {
    const int limit = largest ? INT32_MAX : INT32_MIN;
    for (const bool saturates : {true, false}) {
      std::string text = KernelOf({"m16n16k16", 16, 16, 16, "s8", "s32", "s32", 2, 2, 8, 8}, "row",
                                  "col", "row", ".global");
      if (saturates) text.replace(text.find(".s32.s8.s8"), 10, ".satfinite.s32.s8.s8");
      const auto program = MustCompile(text);
      ASSERT_NE(program, nullptr);
      std::memset(device_.Array<uint8_t>(0), largest ? 1 : 0xff, kMatrix);
      std::memset(device_.Array<uint8_t>(kMatrix), 1, kMatrix);
      for (size_t i = 0; i < 16 * kStride; ++i) {
        const int distance = static_cast<int>(i % 32);
        device_.Array<int>(2 * kMatrix)[i] = largest ? limit - distance : limit + distance;
      }
      MustRun(*program, device_, {}, Params().Add(device_.At(0)), GetParam());
      for (size_t i = 0; i < 16 * kStride; ++i) {
        if (i % kStride >= 16) continue;
        const int64_t sum = int64_t{device_.Array<int>(2 * kMatrix)[i]} + (largest ? 16 : -16);
        const int64_t kept = saturates ? std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX) : sum;
        ASSERT_EQ(device_.Array<int>(3 * kMatrix)[i], static_cast<int>(kept)) << i;
      }
    }
  }
}

// Elements of fragments are the same in halves and in floats, and may be computed with.
TEST_P(WmmaTest, FragmentsAreComputedWithElementByElement) {
  const auto program = MustCompile(Module(".param .u64 in", R"(
    .reg .b64 %in; .reg .f32 c<8>; .reg .b32 h<4>; .reg .f32 k; .reg .b16 %h<2>;
    ld.param.u64 %in, [in];
    wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {c0, c1, c2, c3, c4, c5, c6, c7}, [%in];
    add.f32 c0, c0, c0; add.f32 c1, c1, c1; add.f32 c2, c2, c2; add.f32 c3, c3, c3;
    add.f32 c4, c4, c4; add.f32 c5, c5, c5; add.f32 c6, c6, c6; add.f32 c7, c7, c7;
    cvt.rn.f16x2.f32 h0, c1, c0; cvt.rn.f16x2.f32 h1, c3, c2;
    cvt.rn.f16x2.f32 h2, c5, c4; cvt.rn.f16x2.f32 h3, c7, c6;
    wmma.store.d.sync.aligned.col.m16n16k16.global.f16 [%in+4096], {h0, h1, h2, h3};
    ret;)"));
  ASSERT_NE(program, nullptr);
  for (uint32_t i = 0; i < 256; ++i) device_.Array<float>(0)[i] = static_cast<float>(i);
  MustRun(*program, device_, {}, Params().Add(device_.At(0)), GetParam());
  for (size_t row = 0; row < 16; ++row) {
    for (size_t column = 0; column < 16; ++column) {
      EXPECT_EQ(device_.Array<uint16_t>(4096)[column * 16 + row],
                Encode("f16", static_cast<int>(2 * (row * 16 + column))));
    }
  }
}

// Through generic addresses of shared memory, and back.
TEST_P(WmmaTest, FragmentsPassThroughSharedMemory) {
  const auto program = MustCompile(Module(".param .u64 in", R"(
    .shared .align 32 .b8 box[1024];
    .reg .b64 %in, %box; .reg .f32 c<8>;
    ld.param.u64 %in, [in]; cvta.shared.u64 %box, box;
    wmma.load.c.sync.aligned.row.m16n16k16.f32 {c0, c1, c2, c3, c4, c5, c6, c7}, [%in];
    wmma.store.d.sync.aligned.col.m16n16k16.f32 [%box], {c0, c1, c2, c3, c4, c5, c6, c7};
    mov.f32 c0, c1; mov.f32 c2, c3; mov.f32 c4, c5; mov.f32 c6, c7;
    wmma.load.c.sync.aligned.row.m16n16k16.f32 {c0, c1, c2, c3, c4, c5, c6, c7}, [%box];
    wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%in+4096], {c0, c1, c2, c3, c4, c5, c6, c7};
    ret;)"));
  ASSERT_NE(program, nullptr);
  for (uint32_t i = 0; i < 256; ++i) device_.Array<uint32_t>(0)[i] = i;
  MustRun(*program, device_, {}, Params().Add(device_.At(0)), GetParam());
  for (uint32_t i = 0; i < 256; ++i) {
    ASSERT_EQ(device_.Array<uint32_t>(4096)[i], i % 16 * 16 + i / 16) << i;
  }
}

TEST_P(WmmaTest, FaultsWhereAMatrixDoes) {
  device_.Forbid(1, true, false);
  Fault fault;
  EXPECT_EQ(Fails(R"(
    .reg .f32 c<8>;
    wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {c0, c1, c2, c3, c4, c5, c6, c7}, [%out], 128;
    ret;)",
                  &fault),
            Stop::kIllegalAddress);
  EXPECT_EQ(fault.address, device_.At(4096));
  device_.Forbid(1, false, true);
  EXPECT_EQ(Fails(R"(
    .reg .b32 d<8>;
    wmma.store.d.sync.aligned.row.m16n16k16.global.s32 [%out+3584], {d0, d1, d2, d3, d4, d5, d6, d7};
    ret;)",
                  &fault),
            Stop::kIllegalAddress);
  EXPECT_EQ(fault.address, device_.At(4096));
}

struct Whole {
  std::string shape, a, b;
  int rows, depth, bits;
  std::string suffix;  // .xor.popc
};

// Where lane's element i of A (or of B, whose columns are counted as rows) lies.
std::pair<size_t, size_t> PlaceOf(const Whole& w, bool tall, int lane, int i) {
  const int in_register = 32 / w.bits, reg = i / in_register;
  const int row = lane / 4 + (tall ? reg % 2 * 8 : 0);
  const int column =
      lane % 4 * in_register + i % in_register + 4 * in_register * (tall ? reg / 2 : reg);
  return {static_cast<size_t>(row), static_cast<size_t>(column)};
}

int32_t Expected(const Whole& w, const std::vector<int>& a, const std::vector<int>& b, int32_t c,
                 bool saturate) {
  int64_t sum = c;
  for (size_t k = 0; k < a.size(); ++k) {
    sum += w.suffix == ".and.popc"   ? a[k] & b[k]
           : w.suffix == ".xor.popc" ? a[k] ^ b[k]
                                     : a[k] * b[k];
  }
  if (saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
  return static_cast<int32_t>(static_cast<uint32_t>(sum));
}

void RunWhole(const Whole& w, bool saturate, TestDevice* device, Path path) {
  const bool tall = w.rows == 16;
  const int b_regs = w.depth * w.bits / 128, a_regs = b_regs * (tall ? 2 : 1), sums = tall ? 4 : 2;
  std::string text = R"(.reg .b64 %in, %o; .reg .b32 %i, %x<24>;
    ld.param.u64 %in, [in]; mov.u32 %i, %laneid; mul.wide.u32 %o, %i, 128; add.u64 %in, %in, %o;
)";
  const auto list = [](int from, int count) {
    std::string names = "{";
    for (int i = 0; i < count; ++i) names += (i ? ", %x" : "%x") + std::to_string(from + i);
    return names + "}";
  };
  for (int i = 0; i < a_regs + b_regs + sums; ++i) {
    text += "ld.b32 %x" + std::to_string(i) + ", [%in+" + std::to_string(4 * i) + "];\n";
  }
  text += "mma.sync.aligned." + w.shape + ".row.col" + (saturate ? ".satfinite" : "") + ".s32." +
          w.a + "." + w.b + ".s32" + w.suffix + " " + list(20, sums) + ", " + list(0, a_regs) +
          ", " + list(a_regs, b_regs) + ", " + list(a_regs + b_regs, sums) + ";\n";
  for (int i = 0; i < sums; ++i) {
    text += "st.b32 [%in+" + std::to_string(64 + 4 * i) + "], %x" + std::to_string(20 + i) + ";\n";
  }
  SCOPED_TRACE(text);
  const auto program = MustCompile(Module(".param .u64 in", text + "ret;"));
  if (program == nullptr) return;
  std::mt19937 random(Seed());
  const auto range = [&](const std::string& type, bool least) {
    const int most = 1 << (w.bits - (type[0] == 's' ? 1 : 0));
    return least ? (type[0] == 's' ? -most : 0) : most - 1;
  };
  const Matrix a = RandomMatrix(w.rows, w.depth, range(w.a, true), range(w.a, false), &random);
  const Matrix b = RandomMatrix(8, w.depth, range(w.b, true), range(w.b, false), &random);
  std::vector<int32_t> c(128);
  static constexpr int32_t kSums[] = {INT32_MIN, INT32_MIN + 7, 0, INT32_MAX - 7, INT32_MAX};
  for (int32_t& value : c) value = kSums[random() % std::size(kSums)];
  uint32_t* in = device->Array<uint32_t>(0);
  std::fill_n(in, 32 * 32, 0);
  const uint32_t mask = (1u << w.bits) - 1;
  const int in_register = 32 / w.bits;
  const auto place_of_sum = [](int lane, int i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    return static_cast<size_t>(row) * 8 + static_cast<size_t>(column);
  };
  for (int lane = 0; lane < 32; ++lane) {
    uint32_t* regs = in + size_t{32} * static_cast<size_t>(lane);
    for (int i = 0; i < (a_regs + b_regs) * in_register; ++i) {
      const bool left = i < a_regs * in_register;
      const auto [row, column] =
          PlaceOf(w, left && tall, lane, left ? i : i - a_regs * in_register);
      const int value = left ? a[row][column] : b[row][column];
      regs[i / in_register] |= (static_cast<uint32_t>(value) & mask) << (i % in_register * w.bits);
    }
    for (int i = 0; i < sums; ++i) {
      regs[a_regs + b_regs + i] = static_cast<uint32_t>(c[place_of_sum(lane, i)]);
    }
  }
  MustRun(*program, *device, {}, Params().Add(device->At(0)), path);
  bool saturates = false;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < sums; ++i) {
      const size_t at = place_of_sum(lane, i);
      EXPECT_EQ(static_cast<int32_t>(
                    in[size_t{32} * static_cast<size_t>(lane) + 16 + static_cast<size_t>(i)]),
                Expected(w, a[at / 8], b[at % 8], c[at], saturate));
      saturates |= Expected(w, a[at / 8], b[at % 8], c[at], true) !=
                   Expected(w, a[at / 8], b[at % 8], c[at], false);
    }
  }
  EXPECT_TRUE(saturates) << "nothing here tells .satfinite from its absence";
}

TEST_P(WmmaTest, MmaOnWholeNumbers) {
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  std::vector<Whole> wholes;
  for (const int bits : {8, 4}) {
    const std::string name = std::to_string(bits);
    for (const std::string a : {"s", "u"}) {
      for (const std::string b : {"s", "u"}) {
        for (const int registers : {1, 2}) {
          const int depth = 128 / bits * registers;
          const std::string k = "k" + std::to_string(depth);
          wholes.push_back({"m16n8" + k, a + name, b + name, 16, depth, bits, ""});
          if (registers == 1)
            wholes.push_back({"m8n8" + k, a + name, b + name, 8, depth, bits, ""});
        }
      }
    }
  }
  for (const std::string suffix : {".xor.popc", ".and.popc"}) {
    wholes.push_back({"m8n8k128", "b1", "b1", 8, 128, 1, suffix});
    wholes.push_back({"m16n8k128", "b1", "b1", 16, 128, 1, suffix});
    wholes.push_back({"m16n8k256", "b1", "b1", 16, 256, 1, suffix});
  }
  for (const Whole& whole : wholes) {
    for (const bool saturate : {false, true}) {
      if (!saturate || whole.bits != 1) RunWhole(whole, saturate, &device_, GetParam());
    }
  }
}

}  // namespace
}  // namespace tandem::ptx
