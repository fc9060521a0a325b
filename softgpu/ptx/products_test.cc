// mma and wmma.mma in every shape and type, on random registers, against the plain sum of products
// in double precision, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "softgpu/ptx/float_format.h"
#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

class ProductTest : public KernelTest {};

INSTANTIATE_TEST_SUITE_P(Paths, ProductTest, ::testing::ValuesIn(Paths()));

// One of the matrices. B is turned over.
struct SpreadMatrix {
  std::string type;
  int rows, columns;
  bool sums;      // C or D
  int registers;  // of a lane

  int bytes() const {
    const char last = type.back();
    return type == "f64" ? 8 : last == '8' ? 1 : last == '6' ? 2 : 4;
  }
  int in_register() const { return std::max(4 / bytes(), 1); }
  bool whole() const { return type[0] == 's' || type[0] == 'u'; }
  const FloatFormat& format() const {
    return type == "f16" ? kF16 : type == "bf16" ? kBf16 : type == "f64" ? kF64 : kF32;
  }
  // By rows, from the registers of the lanes.
  std::vector<uint64_t> Gather(const std::vector<std::vector<uint64_t>>& lanes) const {
    std::vector<uint64_t> matrix(static_cast<size_t>(rows) * static_cast<size_t>(columns));
    const int run = sums ? 2 : in_register(), down = rows / 8;
    for (int i = 0; i < rows * columns; ++i) {
      const int lane = i % 32, element = i / 32, tile = element / run;
      const int row = tile % down * 8 + lane / 4;
      const int column = tile / down * 4 * run + lane % 4 * run + element % run;
      const uint64_t word =
          lanes[static_cast<size_t>(lane)][static_cast<size_t>(element / in_register())];
      const int shift = element % in_register() * 8 * bytes();
      const uint64_t mask = bytes() == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes())) - 1;
      matrix[static_cast<size_t>(row * columns + column)] = word >> shift & mask;
    }
    return matrix;
  }
  double Value(uint64_t bits) const {
    if (type == "s8") return static_cast<int8_t>(bits);
    if (type == "s32") return static_cast<int32_t>(bits);
    if (whole()) return static_cast<double>(bits);
    return static_cast<double>(format().Value(type == "tf32" ? bits & 0xffffe000 : bits));
  }
  uint64_t Rounded(double sum, bool finite) const {
    if (!whole()) return format().Nearest(sum);
    const auto exact = static_cast<int64_t>(sum);
    return static_cast<uint32_t>(finite ? std::clamp<int64_t>(exact, INT32_MIN, INT32_MAX) : exact);
  }
  // Around 1 for the most part, or all of it near the smallest; here and there anything.
  uint64_t Random(bool tiny, std::mt19937_64* random) const {
    const uint64_t bits = (*random)();
    const auto element = [&](uint64_t raw) {
      if (whole() && type != "s32") return raw;
      // Sums at which whole numbers saturate.
      if (whole()) return raw % 4 == 0 ? uint64_t{0x7fffff00} + raw % 512 : raw;
      const uint64_t fraction = raw & ((uint64_t{1} << format().mantissa) - 1);
      const uint64_t one = static_cast<uint64_t>(1 - format().least);
      const uint64_t exponent = tiny ? (*random)() % 6 : one - 4 + (*random)() % 9;
      const uint64_t odd = (*random)() % 256;
      if (odd == 0) return raw;
      if (odd < 4) return fraction;
      return fraction | exponent << format().mantissa | (raw & format().sign());
    };
    if (bytes() == 8) return element(bits);
    const int width = 8 * bytes();
    uint64_t word = 0;
    for (int i = 0; i < in_register(); ++i) {
      const uint64_t mask = (uint64_t{1} << width) - 1;
      word |= (element(bits >> (i * width)) & mask) << (i * width);
    }
    return word;
  }
};

struct ProductForm {
  std::string name;
  SpreadMatrix a, b, c, d;
};

constexpr int kProductSlots = 32;  // of a lane: 8 for each matrix

std::string RegisterList(const std::string& name, int count, bool backwards) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    list += (i == 0 ? "" : ", ") + name + std::to_string(backwards ? count - 1 - i : i);
  }
  return "{" + list + "}";
}

std::string ProductKernel(const ProductForm& p) {
  const auto type = [](const SpreadMatrix& s) {
    return std::string(s.type == "f64" ? "f64" : s.type == "f32" ? "f32" : "b32");
  };
  // Where it can, D takes the registers of C, the last one first.
  const bool shared = p.c.type == p.d.type;
  std::string text = ".reg .b64 %in, %o; .reg .b32 %i; .reg ." + type(p.a) + " a<8>; .reg ." +
                     type(p.b) + " b<8>; .reg ." + type(p.c) + " c<8>; .reg ." + type(p.d) +
                     " d<8>;\nld.param.u64 %in, [in]; mov.u32 %i, %laneid;"
                     "mul.wide.u32 %o, %i, 256; add.u64 %in, %in, %o;\n";
  const auto move = [&](const SpreadMatrix& s, const std::string& name, int first, bool load) {
    for (int i = 0; i < s.registers; ++i) {
      const std::string reg = name + std::to_string(shared && !load ? s.registers - 1 - i : i);
      const std::string place = "[%in+" + std::to_string(8 * (first + i)) + "]";
      text += load ? "ld." + type(s) + " " + reg + ", " + place + ";\n"
                   : "st." + type(s) + " " + place + ", " + reg + ";\n";
    }
  };
  move(p.a, "a", 0, true);
  move(p.b, "b", 8, true);
  move(p.c, "c", 16, true);
  const std::string d = shared ? "c" : "d";
  text += p.name + " " + RegisterList(d, p.d.registers, shared) + ", " +
          RegisterList("a", p.a.registers, false) + ", " + RegisterList("b", p.b.registers, false) +
          ", " + RegisterList("c", p.c.registers, false) + ";\n";
  move(p.d, d, 24, false);
  return Module(".param .u64 in", text + "ret;");
}

void RunForm(const ProductForm& p, bool tiny, std::mt19937_64* random, TestDevice* device,
             Path path) {
  const auto program = MustCompile(ProductKernel(p));
  if (program == nullptr) return;
  auto* slots = device->Array<uint64_t>(0);
  const auto fill = [&](const SpreadMatrix& s, size_t first) {
    std::vector<std::vector<uint64_t>> lanes(32);
    for (size_t lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < s.registers; ++i) {
        lanes[lane].push_back(s.Random(tiny, random));
        slots[lane * kProductSlots + first + static_cast<size_t>(i)] = lanes[lane].back();
      }
    }
    return s.Gather(lanes);
  };
  const auto a = fill(p.a, 0), b = fill(p.b, 8), c = fill(p.c, 16);
  for (size_t lane = 0; lane < 32; ++lane) std::fill_n(slots + lane * kProductSlots + 24, 8, 0);
  MustRun(*program, *device, {}, Params().Add(device->At(0)), path);
  std::vector<std::vector<uint64_t>> lanes(32);
  for (size_t lane = 0; lane < 32; ++lane) {
    const uint64_t* first = slots + lane * kProductSlots + 24;
    lanes[lane].assign(first, first + p.d.registers);
  }
  const auto d = p.d.Gather(lanes);
  const auto depth = static_cast<size_t>(p.a.columns), columns = static_cast<size_t>(p.d.columns);
  const bool finite = p.name.find("satfinite") != p.name.npos;
  for (size_t i = 0; i < d.size(); ++i) {
    double sum = p.c.Value(c[i]);
    for (size_t k = 0; k < depth; ++k) {
      sum = std::fma(p.a.Value(a[i / columns * depth + k]), p.b.Value(b[i % columns * depth + k]),
                     sum);
    }
    ASSERT_EQ(d[i], p.d.Rounded(sum, finite)) << i / columns << " " << i % columns << " " << sum;
  }
}

std::string SizeName(int m, int n, int k) {
  return ".m" + std::to_string(m) + "n" + std::to_string(n) + "k" + std::to_string(k);
}

// Those of mma: what a lane has in registers is what there is.
ProductForm MmaForm(int m, int n, int k, const std::string& a, const std::string& b,
                    const std::string& sum, const std::string& modifier = "") {
  ProductForm p{"", {a, m, k, false, 0}, {b, n, k, false, 0}, {sum, m, n, true, 0}, {}};
  p.d = p.c;
  for (SpreadMatrix* s : {&p.a, &p.b, &p.c, &p.d}) {
    s->registers = s->rows * s->columns / 32 / s->in_register();
  }
  p.name = "mma.sync.aligned" + SizeName(m, n, k) + ".row.col" + modifier + "." + sum + "." + a +
           "." + b + "." + sum;
  return p;
}

ProductForm WmmaForm(int m, int n, int k, const std::string& factor, const std::string& from,
                     const std::string& to, const std::string& modifier = "") {
  ProductForm p = MmaForm(m, n, k, factor, factor, from, modifier);
  p.d.type = to;
  p.d.registers = m * n / 32 / p.d.in_register();
  if (factor == "f16") p.a.registers = p.b.registers = 8;
  p.name = "wmma.mma.sync.aligned.row.col" + SizeName(m, n, k) + modifier + "." + to +
           (factor == "f16" ? "" : "." + factor + "." + factor) + "." + from;
  return p;
}

std::vector<ProductForm> ProductForms() {
  std::vector<ProductForm> products = {MmaForm(8, 8, 4, "f64", "f64", "f64"),
                                       WmmaForm(8, 8, 4, "f64", "f64", "f64"),
                                       WmmaForm(16, 16, 8, "tf32", "f32", "f32")};
  for (const int k : {8, 16}) {
    for (const std::string sum : {"f16", "f32"}) {
      products.push_back(MmaForm(16, 8, k, "f16", "f16", sum));
    }
    products.push_back(MmaForm(16, 8, k, "bf16", "bf16", "f32"));
    products.push_back(MmaForm(16, 8, k / 2, "tf32", "tf32", "f32"));
  }
  for (const std::string modifier : {"", ".satfinite"}) {
    for (const std::string a : {"s8", "u8"}) {
      for (const std::string b : {"s8", "u8"}) {
        products.push_back(MmaForm(8, 8, 16, a, b, "s32", modifier));
        products.push_back(MmaForm(16, 8, 16, a, b, "s32", modifier));
        products.push_back(MmaForm(16, 8, 32, a, b, "s32", modifier));
      }
    }
  }
  struct Size {
    int m, n;
  };
  for (const Size& s : {Size{16, 16}, {32, 8}, {8, 32}}) {
    for (const std::string from : {"f16", "f32"}) {
      for (const std::string to : {"f16", "f32"}) {
        products.push_back(WmmaForm(s.m, s.n, 16, "f16", from, to));
      }
    }
    products.push_back(WmmaForm(s.m, s.n, 16, "bf16", "f32", "f32"));
    for (const std::string factor : {"s8", "u8"}) {
      products.push_back(WmmaForm(s.m, s.n, 16, factor, "s32", "s32"));
      products.push_back(WmmaForm(s.m, s.n, 16, factor, "s32", "s32", ".satfinite"));
    }
  }
  return products;
}

TEST_P(ProductTest, EveryShapeOnRandomRegisters) {
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  std::mt19937_64 random(Seed());
  for (const ProductForm& product : ProductForms()) {
    SCOPED_TRACE(product.name);
    for (const bool tiny : {false, false, false, true}) {
      RunForm(product, tiny, &random, &device_, GetParam());
    }
  }
}

}  // namespace
}  // namespace tandem::ptx
