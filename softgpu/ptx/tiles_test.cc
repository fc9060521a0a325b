// mma, ldmatrix and cp.async against the layouts that the PTX document gives, element by element.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "softgpu/ptx/operations.h"
#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

class TileTest : public KernelTest {};

INSTANTIATE_TEST_SUITE_P(Paths, TileTest, ::testing::ValuesIn(Paths()));

struct Shape {
  std::string name, types;
  int depth, elements;  // k; elements of A and B in a register
  bool half_sums;
  std::function<uint32_t(int)> encode;    // of a small integer
  std::function<double(uint32_t)> value;  // of an element's bits
};

uint32_t HalfOf(int value) {
  return value == 0 ? 0
                    : (value < 0 ? 0x8000u : 0u) |
                          ((std::bit_cast<uint32_t>(std::abs(static_cast<float>(value))) >> 13) -
                           (112u << 10));
}

uint32_t SingleOf(int value) {
  return std::bit_cast<uint32_t>(static_cast<float>(value));
}

double HalfBits(uint32_t bits) {
  return static_cast<double>(HalfValue(bits));
}

std::string Kernel(const Shape& shape) {
  const int b = shape.depth / 4 / shape.elements, a = 2 * b, sums = shape.half_sums ? 2 : 4;
  std::string text =
      ".reg .b64 %in, %out; .reg .b32 %i, %x<32>; .reg .pred %p;\n"
      "ld.param.u64 %in, [in]; ld.param.u64 %out, [result]; mov.u32 %i, %laneid;\n"
      ".reg .b64 %o; mul.wide.u32 %o, %i, 64; add.u64 %in, %in, %o;"
      "add.u64 %out, %out, %o;\n";
  const auto list = [&](int from, int count) {
    std::string names = "{";
    for (int i = 0; i < count; ++i) {
      names += (i == 0 ? "%x" : ", %x") + std::to_string(from + i);
    }
    return names + "}";
  };
  for (int i = 0; i < a + b + sums; ++i) {
    text += "ld.global.b32 %x" + std::to_string(i) + ", [%in+" + std::to_string(4 * i) + "];\n";
  }
  text += "mma.sync.aligned." + shape.name + ".row.col." + shape.types + " " + list(20, sums) +
          ", " + list(0, a) + ", " + list(a, b) + ", " + list(a + b, sums) + ";\n";
  for (int i = 0; i < sums; ++i) {
    text +=
        "st.global.b32 [%out+" + std::to_string(4 * i) + "], %x" + std::to_string(20 + i) + ";\n";
  }
  return Module(".param .u64 in, .param .u64 result", text + "ret;");
}

// A's and B's element i of a lane, as the document writes it for 2, 1 elements to a register.
int RowOfA(const Shape& s, int lane, int i) {
  if (s.elements == 1) return lane / 4 + (i % 2 == 1 ? 8 : 0);
  return lane / 4 + ((0 <= i && i < 2) || (4 <= i && i < 6) ? 0 : 8);
}
int ColumnOfA(const Shape& s, int lane, int i) {
  if (s.elements == 1) return lane % 4 + (i >= 2 ? 4 : 0);
  return lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0);
}
int RowOfB(const Shape& s, int lane, int i) {
  if (s.elements == 1) return lane % 4 + 4 * i;
  return lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0);
}

// The bits of A's, B's and C's elements.
struct Tiles {
  uint32_t a[16][16], b[16][8], c[16][8];
};

// Small integers; or numbers with all their bits, of which a few may be anything: huge, subnormal,
// infinite, no number.
Tiles RandomTiles(const Shape& shape, bool small, std::mt19937* random) {
  const auto element = [&](bool half, auto encode, uint32_t sign_and_fraction, uint32_t exponent) {
    const uint32_t bits = (*random)();
    if (small) return encode(static_cast<int>(bits % 17) - 8);
    const uint32_t any = (*random)() & (half ? 0xffff : 0xffffffff);
    return bits % 64 == 0 ? any : (any & sign_and_fraction) | exponent;
  };
  Tiles tiles;
  const bool half = shape.types.find(".f16") != std::string::npos, wide = shape.elements == 1;
  const auto factor = [&] {
    return half   ? element(true, shape.encode, 0xbfff, 0)
           : wide ? element(false, shape.encode, 0x87ffffff, 0x38000000)
                  : element(true, shape.encode, 0x87ff, 0x3800);
  };
  const auto sum = [&] {
    return shape.half_sums ? element(true, HalfOf, 0xbfff, 0)
                           : element(false, SingleOf, 0x87ffffff, 0x38000000);
  };
  for (auto& row : tiles.a) std::generate(std::begin(row), std::end(row), factor);
  for (auto& row : tiles.b) std::generate(std::begin(row), std::end(row), factor);
  for (auto& row : tiles.c) std::generate(std::begin(row), std::end(row), sum);
  return tiles;
}

void Spread(const Shape& shape, const Tiles& tiles, uint32_t* in) {
  const int b_regs = shape.depth / 4 / shape.elements, a_regs = 2 * b_regs;
  const int bits = 32 / shape.elements;
  std::fill_n(in, 32 * 16, 0);
  for (int lane = 0; lane < 32; ++lane) {
    uint32_t* regs = in + size_t{16} * static_cast<size_t>(lane);
    for (int i = 0; i < a_regs * shape.elements; ++i) {
      const uint32_t value = tiles.a[RowOfA(shape, lane, i)][ColumnOfA(shape, lane, i)];
      regs[i / shape.elements] |= value << (i % shape.elements * bits);
    }
    for (int i = 0; i < b_regs * shape.elements; ++i) {
      const uint32_t value = tiles.b[RowOfB(shape, lane, i)][lane / 4];
      regs[a_regs + i / shape.elements] |= value << (i % shape.elements * bits);
    }
    for (int i = 0; i < 4; ++i) {
      const uint32_t value = tiles.c[lane / 4 + (i < 2 ? 0 : 8)][lane % 4 * 2 + (i & 1)];
      uint32_t* sums = regs + a_regs + b_regs;
      sums[shape.half_sums ? i / 2 : i] |= value << (shape.half_sums ? i % 2 * 16 : 0);
    }
  }
}

// The nearest half, as a double.
double ToHalf(double x) {
  const double unit = std::ldexp(1.0, std::max(x == 0 ? -14 : std::ilogb(x), -14) - 10);
  const double rounded = std::nearbyint(x / unit) * unit;
  return std::abs(rounded) > 65504 ? std::copysign(INFINITY, x) : rounded;
}

// Whether `result` is the one element of a row times a column: a number within the errors of a sum
// in double precision, rounded once.
void ExpectSum(const Shape& shape, const Tiles& tiles, int row, int column, uint32_t result) {
  const auto of_sum = [&](uint32_t bits) { return shape.half_sums ? HalfBits(bits) : F(bits); };
  Quad exact = of_sum(tiles.c[row][column]), all = exact < 0 ? -exact : exact;
  for (int k = 0; k < shape.depth; ++k) {
    const Quad term = static_cast<Quad>(shape.value(tiles.a[row][k])) *
                      static_cast<Quad>(shape.value(tiles.b[k][column]));
    exact += term;
    all += term < 0 ? -term : term;
  }
  SCOPED_TRACE(std::to_string(row) + " " + std::to_string(column));
  if (exact != exact) {
    EXPECT_EQ(result, shape.half_sums ? 0x7fffu : 0x7fffffffu);
  } else if (exact - exact != 0) {
    EXPECT_EQ(of_sum(result), static_cast<double>(exact));
  } else {
    const Quad error = all * (shape.depth + 3) * 0x1p-53;
    const auto round = [&](Quad x) {
      const double near = static_cast<double>(x);
      return shape.half_sums ? ToHalf(near) : static_cast<double>(static_cast<float>(near));
    };
    EXPECT_GE(of_sum(result), round(exact - error));
    EXPECT_LE(of_sum(result), round(exact + error));
  }
}

TEST_P(TileTest, MmaMultipliesTiles) {
  const auto brain = [](int value) { return SingleOf(value) >> 16; };
  const auto of_brain = [](uint32_t bits) { return double{F(bits << 16)}; };
  const auto of_tf32 = [](uint32_t bits) { return double{F(bits & 0xffffe000)}; };
  const Shape kShapes[] = {
      {"m16n8k8", "f32.f16.f16.f32", 8, 2, false, HalfOf, HalfBits},
      {"m16n8k16", "f32.f16.f16.f32", 16, 2, false, HalfOf, HalfBits},
      {"m16n8k8", "f16.f16.f16.f16", 8, 2, true, HalfOf, HalfBits},
      {"m16n8k16", "f16.f16.f16.f16", 16, 2, true, HalfOf, HalfBits},
      {"m16n8k8", "f32.bf16.bf16.f32", 8, 2, false, brain, of_brain},
      {"m16n8k16", "f32.bf16.bf16.f32", 16, 2, false, brain, of_brain},
      {"m16n8k4", "f32.tf32.tf32.f32", 4, 1, false, SingleOf, of_tf32},
      {"m16n8k8", "f32.tf32.tf32.f32", 8, 1, false, SingleOf, of_tf32},
  };
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  std::mt19937 random(Seed());
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.name + "." + shape.types);
    const auto program = MustCompile(Kernel(shape));
    ASSERT_NE(program, nullptr);
    for (const bool small : {true, false, false, false}) {
      const Tiles tiles = RandomTiles(shape, small, &random);
      Spread(shape, tiles, device_.Array<uint32_t>(0));
      MustRun(*program, device_, {}, Params().Add(device_.At(0)).Add(device_.At(4096)), GetParam());
      for (int lane = 0; lane < 32; ++lane) {
        const uint32_t* out = device_.Array<uint32_t>(4096) + ptrdiff_t{16} * lane;
        for (int i = 0; i < 4; ++i) {
          const int row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
          ExpectSum(shape, tiles, row, column,
                    shape.half_sums ? out[i / 2] >> (i % 2 * 16) & 0xffff : out[i]);
        }
      }
    }
  }
}

TEST_P(TileTest, MmaInDoublePrecision) {
  const auto program = MustCompile(Module(".param .u64 result", R"(
    .reg .b64 %out, %o; .reg .f64 %a, %b, %c<4>; .reg .b32 %i;
    ld.param.u64 %out, [result]; mov.u32 %i, %laneid;
    mul.wide.u32 %o, %i, 16; add.u64 %out, %out, %o;
    cvt.rn.f64.u32 %a, %i; mul.f64 %b, %a, 0d4000000000000000;
    mov.f64 %c0, %a; mov.f64 %c1, 0d3ff0000000000000;
    mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%c2, %c3}, {%a}, {%b}, {%c0, %c1};
    st.global.v2.f64 [%out], {%c2, %c3};
    ret;)"));
  ASSERT_NE(program, nullptr);
  MustRun(*program, device_, {}, Params().Add(device_.At(0)), GetParam());
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 2; ++i) {
      const int row = lane / 4, column = lane % 4 * 2 + i;
      double sum = i == 0 ? lane : 1;
      for (int k = 0; k < 4; ++k) sum += (4.0 * row + k) * 2 * (4.0 * column + k);
      EXPECT_EQ(
          device_.Array<double>(0)[size_t{2} * static_cast<size_t>(lane) + static_cast<size_t>(i)],
          sum);
    }
  }
}

TEST_P(TileTest, MatricesLoadAndStore) {
  // Every 16-bit element of shared memory holds its place.
  const auto out = Go(R"(
    .shared .align 16 .b8 tile[1024];
    mov.u32 %r9, tile;
    shl.b32 %r1, %t, 5; add.u32 %r1, %r1, %r9;
    shl.b32 %r2, %t, 4; mov.u32 %r3, 0;
  FILL:
    add.u32 %r4, %r2, 1; shl.b32 %r5, %r4, 16; or.b32 %r5, %r5, %r2;
    st.shared.u32 [%r1], %r5;
    add.u32 %r1, %r1, 4; add.u32 %r2, %r2, 2; add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, 8; @%p1 bra FILL;
    bar.sync 0;
    shl.b32 %r1, %t, 4; add.u32 %r1, %r1, %r9;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];
    ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r6}, [%r1];
    st.global.v4.u32 [%out+1024], {%r2, %r3, %r4, %r5};
    mul.wide.u32 %rd1, %t, 16; add.u64 %rd1, %rd1, %out;
    st.global.v4.u32 [%rd1+1024], {%r2, %r3, %r4, %r5};
    bar.sync 0;
    stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r1+512], {%r6};
    bar.sync 0;
    shl.b32 %r7, %t, 2; add.u32 %r7, %r7, %r9;
    ld.shared.u32 %r8, [%r7+512];
    st.global.u32 [%rd1+2048], %r8;
    st.global.u32 [%at], %r6;
    ret;)");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = lane / 4, column = lane % 4 * 2;
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      const uint32_t first = matrix * 64 + row * 8 + column;
      EXPECT_EQ(device_.Array<uint32_t>(1024)[size_t{4} * lane + matrix], first | (first + 1)
                                                                                      << 16);
    }
    EXPECT_EQ(out[lane], (column * 8 + row) | ((column + 1) * 8 + row) << 16);
    // Loaded and stored transposed, the first matrix is itself again.
    EXPECT_EQ(device_.Array<uint32_t>(2048)[size_t{4} * lane], 2 * lane | (2 * lane + 1) << 16);
  }
}

TEST_P(TileTest, AsynchronousCopies) {
  uint32_t* from = device_.Array<uint32_t>(8192);
  for (uint32_t i = 0; i < 256; ++i) from[i] = 1000 + i;
  device_.Forbid(3, true, false);
  const auto out = Go(R"(
    .shared .align 16 .b8 box[1024];
    mov.u32 %r1, box; shl.b32 %r2, %t, 4; add.u32 %r1, %r1, %r2;
    mul.wide.u32 %rd1, %t, 16; add.u64 %rd1, %rd1, %out;
    and.b32 %r3, %t, 15;
    setp.ge.u32 %p1, %t, 16;
    cp.async.cg.shared.global.L2::128B [%r1], [%rd1+8192], 16;
    cp.async.commit_group;
    cp.async.wait_group 0;
    ld.shared.u32 %r4, [%r1+4];
    // Nothing is read where nothing is wanted: there is no memory.
    cp.async.ca.shared.global [%r1], [%out+12288], 8, 0;
    ld.shared.u32 %r5, [%r1+4];
    ld.shared.u32 %r6, [%r1+8];
    cp.async.ca.shared::cta.global [%r1+4], [%rd1+8196], 4, %p1;
    cp.async.wait_all;
    ld.shared.u32 %r7, [%r1+4];
    cp.async.cg.shared.global [%r1], [%rd1+8192], 16, %r3;
    ld.shared.u32 %r8, [%r1+12];
    mad.lo.u32 %r4, %r5, 7, %r4; mad.lo.u32 %r4, %r6, 3, %r4; mad.lo.u32 %r4, %r7, 5, %r4;
    mad.lo.u32 %r4, %r8, 11, %r4;
    st.global.u32 [%at], %r4;
    ret;)");
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t word = 1000 + 4 * i, wanted = i & 15;
    const uint32_t last = word + 3;
    const uint32_t cut = wanted <= 12 ? 0 : last & ((1u << (8 * (wanted - 12))) - 1);
    EXPECT_EQ(out[i], word + 1 + 3 * (word + 2) + 5 * (i < 16 ? word + 1 : 0) + 11 * cut) << i;
  }
}

}  // namespace
}  // namespace tandem::ptx
