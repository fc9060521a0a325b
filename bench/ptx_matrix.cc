#include "bench/ptx_matrix.h"

#include <bit>
#include <cstring>

namespace tandem::bench {
namespace {

// {a0, a1, ...}
std::string List(const std::string& name, size_t first, size_t count) {
  std::string list = "{";
  for (size_t i = 0; i < count; ++i) {
    list += (i == 0 ? "" : ", ") + name + std::to_string(first + i);
  }
  return list + "}";
}

// Replaces each $NAME$.
std::string Fill(std::string text,
                 const std::vector<std::pair<std::string, std::string>>& replacements) {
  for (const auto& [name, value] : replacements) {
    for (size_t at; (at = text.find("$" + name + "$")) != text.npos;) {
      text.replace(at, name.size() + 2, value);
    }
  }
  return text;
}

std::string ZeroSums(const std::string& sum, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += "mov." + std::string(sum == "f32" ? "f32" : "b32") + " c" + std::to_string(i) +
            (sum == "f32" ? ", 0f00000000;\n" : ", 0;\n");
  }
  return text;
}

std::string Wmma(const Factor& factor) {
  const size_t depth = factor.bytes == 4 ? 8 : 16;
  const size_t registers = factor.name == "f16" ? 8 : factor.bytes * depth / 8;
  const std::string halves = "f32.f32", others = "$SUM$.$TYPE$.$TYPE$.$SUM$";
  return Fill(R"(
.visible .entry wmma_$TYPE$(.param .u64 a, .param .u64 b, .param .u64 d, .param .u32 n) {
  .reg .b64 %a, %b, %d, %at; .reg .b32 %n, %row, %column, %i; .reg .pred %more;
  .reg .b32 a<8>, b<8>; .reg .$REGISTER$ c<8>;
  ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %d, [d]; ld.param.u32 %n, [n];
  mov.u32 %row, %ctaid.y; shl.b32 %row, %row, 4;
  mov.u32 %i, %ctaid.x; shl.b32 %i, %i, 2;
  mov.u32 %column, %tid.x; shr.u32 %column, %column, 5; add.u32 %column, %column, %i;
  shl.b32 %column, %column, 4;
  mul.lo.u32 %i, %row, %n; mul.wide.u32 %at, %i, $BYTES$; add.u64 %a, %a, %at;
  add.u32 %i, %i, %column; mul.wide.u32 %at, %i, 4; add.u64 %d, %d, %at;
  mul.lo.u32 %i, %column, %n; mul.wide.u32 %at, %i, $BYTES$; add.u64 %b, %b, %at;
  mov.u32 %i, 0;
  $ZERO$
LOOP:
  wmma.load.a.sync.aligned.row.$SHAPE$.global.$TYPE$ $A$, [%a], %n;
  wmma.load.b.sync.aligned.col.$SHAPE$.global.$TYPE$ $B$, [%b], %n;
  wmma.mma.sync.aligned.row.col.$SHAPE$.$TYPES$ $C$, $A$, $B$, $C$;
  add.u64 %a, %a, $STEP$; add.u64 %b, %b, $STEP$;
  add.u32 %i, %i, $DEPTH$; setp.lt.u32 %more, %i, %n;
  @%more bra LOOP;
  wmma.store.d.sync.aligned.row.$SHAPE$.global.$SUM$ [%d], $C$, %n;
  ret;
}
)",
              {{"TYPES", factor.name == "f16" ? halves : others},
               {"SHAPE", "m16n16k" + std::to_string(depth)},
               {"TYPE", factor.name},
               {"SUM", factor.sum},
               {"REGISTER", factor.sum == "f32" ? "f32" : "b32"},
               {"BYTES", std::to_string(factor.bytes)},
               {"STEP", std::to_string(factor.bytes * depth)},
               {"DEPTH", std::to_string(depth)},
               {"A", List("a", 0, registers)},
               {"B", List("b", 0, registers)},
               {"C", List("c", 0, 8)},
               {"ZERO", ZeroSums(factor.sum, 8)}});
}

// A step takes 32 bytes of each row of A and column of B: 3 KiB, of which a thread brings 16 bytes
// and 8. They are at %at and %bt in global memory, and at %as and %bs in shared memory.
constexpr char kCopy[] = R"(
  ld.global.v4.b32 {a0, a1, a2, a3}, [%at]; st.shared.v4.b32 [%as], {a0, a1, a2, a3};
  ld.global.v2.b32 {a0, a1}, [%bt]; st.shared.v2.b32 [%bs], {a0, a1};
  add.u64 %at, %at, 32; add.u64 %bt, %bt, 32;
)";
constexpr char kCopyAsync[] = R"(
  cp.async.cg.shared.global [%as], [%at], 16; cp.async.ca.shared.global [%bs], [%bt], 8;
  cp.async.commit_group;
  add.u64 %at, %at, 32; add.u64 %bt, %bt, 32;
  xor.b32 %as, %as, 4096; xor.b32 %bs, %bs, 4096;
)";

std::string MmaMultiply(const Factor& factor) {
  std::string text;
  for (size_t i = 0; i < 4; ++i) {
    text += "mma.sync.aligned.m16n8k" + std::to_string(32 / factor.bytes) + ".row.col." +
            factor.sum + "." + factor.name + "." + factor.name + "." + factor.sum + " " +
            List("c", 4 * i, 4) + ", " + List("a", 0, 4) + ", " + List("b", 2 * i, 2) + ", " +
            List("c", 4 * i, 4) + ";\n";
  }
  return text;
}

std::string MmaStore() {
  std::string text;
  for (size_t i = 0; i < 4; ++i) {
    text +=
        Fill("st.global.v2.b32 [%d+$PLACE$], $UPPER$; st.global.v2.b32 [%b+$PLACE$], $LOWER$;\n",
             {{"PLACE", std::to_string(32 * i)},
              {"UPPER", List("c", 4 * i, 2)},
              {"LOWER", List("c", 4 * i + 2, 2)}});
  }
  return text;
}

std::string Mma(const Factor& factor, bool async) {
  return Fill(R"(
.visible .entry mma_$TYPE$$ASYNC$(.param .u64 a, .param .u64 b, .param .u64 d, .param .u32 n) {
  .reg .b64 %a, %b, %d, %at, %bt, %to; .reg .b32 %n, %t, %lane, %warp, %row, %column, %i, %j;
  .reg .b32 %as, %bs, %am, %bm, %bytes; .reg .pred %more;
  .reg .b32 a<4>, b<8>; .reg .$REGISTER$ c<16>;
  .shared .align 16 .b8 tiles[8192];
  ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %d, [d]; ld.param.u32 %n, [n];
  mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; shr.u32 %warp, %t, 5;
  mov.u32 %row, %ctaid.y; shl.b32 %row, %row, 6; mov.u32 %column, %ctaid.x;
  shl.b32 %column, %column, 5; mul.lo.u32 %bytes, %n, $BYTES$;
  // A thread brings half of a row of A, and a quarter of a column of B.
  shr.u32 %i, %t, 1; add.u32 %i, %i, %row; mul.wide.u32 %at, %i, %bytes; add.u64 %at, %at, %a;
  and.b32 %i, %t, 1; mul.wide.u32 %to, %i, 16; add.u64 %at, %at, %to;
  shr.u32 %i, %t, 2; add.u32 %i, %i, %column; mul.wide.u32 %bt, %i, %bytes; add.u64 %bt, %bt, %b;
  and.b32 %i, %t, 3; mul.wide.u32 %to, %i, 8; add.u64 %bt, %bt, %to;
  mov.u32 %as, tiles; shl.b32 %i, %t, 4; add.u32 %as, %as, %i;
  mov.u32 %bs, tiles; shl.b32 %i, %t, 3; add.u32 %bs, %bs, %i; add.u32 %bs, %bs, 2048;
  // The rows that a lane names to ldmatrix: of A 16, each in two halves; of B 8, in two.
  and.b32 %i, %lane, 15; shl.b32 %j, %warp, 4; add.u32 %i, %i, %j; shl.b32 %i, %i, 5;
  shr.u32 %j, %lane, 4; shl.b32 %j, %j, 4; add.u32 %i, %i, %j; mov.u32 %am, tiles;
  add.u32 %am, %am, %i;
  and.b32 %i, %lane, 7; shr.u32 %j, %lane, 4; shl.b32 %j, %j, 3; add.u32 %i, %i, %j;
  shl.b32 %i, %i, 5; shr.u32 %j, %lane, 3; and.b32 %j, %j, 1; shl.b32 %j, %j, 4;
  add.u32 %i, %i, %j; mov.u32 %bm, tiles; add.u32 %bm, %bm, %i;
  // Of D a lane has two elements of one row, at %d, and of that 8 further, at %b.
  shl.b32 %i, %warp, 4; add.u32 %i, %i, %row; shr.u32 %j, %lane, 2; add.u32 %i, %i, %j;
  mul.lo.u32 %i, %i, %n; add.u32 %i, %i, %column; and.b32 %j, %lane, 3; shl.b32 %j, %j, 1;
  add.u32 %i, %i, %j; mul.wide.u32 %to, %i, 4; add.u64 %d, %d, %to;
  mul.wide.u32 %to, %n, 32; add.u64 %b, %d, %to;
  mov.u32 %i, 0;
  $ZERO$
  $FIRST$
LOOP:
  add.u32 %i, %i, 32; setp.lt.u32 %more, %i, %bytes;
  $COPY$
  bar.sync 0;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {a0, a1, a2, a3}, [%am];
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {b0, b1, b2, b3}, [%bm+2048];
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {b4, b5, b6, b7}, [%bm+2560];
  $MULTIPLY$
  bar.sync 0;
  $SWAP$
  @%more bra LOOP;
  $STORE$
  ret;
}
)",
              {{"TYPE", factor.name},
               {"ASYNC", async ? "_async" : ""},
               {"REGISTER", factor.sum == "f32" ? "f32" : "b32"},
               {"BYTES", std::to_string(factor.bytes)},
               {"ZERO", ZeroSums(factor.sum, 16)},
               {"FIRST", async ? kCopyAsync : ""},
               {"COPY", !async ? kCopy
                               : std::string("@!%more bra LAST;\n") + kCopyAsync +
                                     "cp.async.wait_group 1; bra READY;\n"
                                     "LAST: cp.async.wait_group 0;\nREADY:"},
               {"SWAP", async ? "xor.b32 %am, %am, 4096; xor.b32 %bm, %bm, 4096;" : ""},
               {"MULTIPLY", MmaMultiply(factor)},
               {"STORE", MmaStore()}});
}

uint64_t Bits(const Factor& factor, int value) {
  const auto single = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (factor.name == "s8") return static_cast<uint8_t>(value);
  if (factor.name == "tf32") return single;
  if (factor.name == "bf16") return single >> 16;
  if (value == 0) return 0;
  return (value < 0 ? 0x8000u : 0u) | (((single & 0x7fffffff) >> 13) - (112u << 10));
}

}  // namespace

const std::vector<Factor>& Factors() {
  static const std::vector<Factor> factors = {
      {"f16", 2, "f32"}, {"bf16", 2, "f32"}, {"tf32", 4, "f32"}, {"s8", 1, "s32"}};
  return factors;
}

std::string MatrixKernels() {
  std::string text = ".version 7.0\n.target sm_80\n.address_size 64\n";
  for (const Factor& factor : Factors()) text += Wmma(factor) + Mma(factor, false);
  return text + Mma(Factors().front(), true);
}

void Encode(const Factor& factor, const std::vector<int>& values, uint8_t* to) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = Bits(factor, values[i]);
    std::memcpy(to + i * factor.bytes, &bits, factor.bytes);
  }
}

}  // namespace tandem::bench
