// Operations on integers, bits and predicates, and comparisons.
#include "softgpu/ptx/operations.h"

namespace tandem::ptx {
namespace {

template <class T>
uint64_t Bfe(T a, uint64_t b, uint64_t c, bool is_signed) {
  constexpr uint32_t kTop = sizeof(T) * 8 - 1;
  const uint32_t position = b & 0xff, length = c & 0xff;
  const uint32_t last = std::min(position + length - 1, kTop);
  const T fill = is_signed && length != 0 ? a >> last & 1 : 0;
  T result = 0;
  for (uint32_t i = 0; i <= kTop; ++i) {
    const T bit = i < length && position + i <= kTop ? a >> (position + i) & 1 : fill;
    result |= bit << i;
  }
  return result;
}

uint64_t Bfi64(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  const uint32_t position = c & 0xff, length = d & 0xff;
  for (uint32_t i = 0; i < length && position + i < 64; ++i) {
    b = (b & ~(uint64_t{1} << (position + i))) | (a >> i & 1) << (position + i);
  }
  return b;
}

// prmt, with the selector of each byte given by `select`.
template <class Select>
uint64_t Permuted(uint64_t a, uint64_t b, Select select) {
  const uint64_t both = b << 32 | W(a);
  uint64_t result = 0;
  for (int byte = 0; byte < 4; ++byte) {
    const int selector = select(byte);
    uint64_t value = both >> (8 * (selector & 7)) & 0xff;
    if ((selector & 8) != 0) value = (value & 0x80) != 0 ? 0xff : 0;
    result |= value << (8 * byte);
  }
  return result;
}

TEST(Operations, Integers) {
  const Operation kOperations[] = {
      {"add.s32 %wd, %wa, %wb;", 'w', [](auto a, auto b, auto) { return W(a + b); }},
      {"add.u16 %hd, %ha, %hb;", 'h', [](auto a, auto b, auto) { return (a + b) & 0xffff; }},
      {"sub.u64 %d, %a, %b;", 'd', [](auto a, auto b, auto) { return a - b; }},
      {"add.sat.s32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         return U(
             static_cast<int32_t>(std::clamp<int64_t>(int64_t{S(a)} + S(b), INT32_MIN, INT32_MAX)));
       }},
      {"mul.lo.s32 %wd, %wa, %wb;", 'w', [](auto a, auto b, auto) { return W(a * b); }},
      {"mul.hi.s32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W(static_cast<uint64_t>(int64_t{S(a)} * S(b)) >> 32); }},
      {"mul.hi.u64 %d, %a, %b;", 'd',
       [](auto a, auto b, auto) {
         return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
       }},
      {"mul.hi.u16 %hd, %ha, %hb;", 'h',
       [](auto a, auto b, auto) { return (a & 0xffff) * (b & 0xffff) >> 16; }},
      {"mul.wide.s32 %d, %wa, %wb;", 'd',
       [](auto a, auto b, auto) { return static_cast<uint64_t>(int64_t{S(a)} * S(b)); }},
      {"mul.wide.u16 %wd, %ha, %hb;", 'w',
       [](auto a, auto b, auto) { return (a & 0xffff) * (b & 0xffff); }},
      {"mad.wide.u32 %d, %wa, %wb, %c;", 'd',
       [](auto a, auto b, auto c) { return uint64_t{W(a)} * W(b) + c; }},
      {"mad.lo.s32 %wd, %wa, %wb, %wc;", 'w', [](auto a, auto b, auto c) { return W(a * b + c); }},
      {"mul24.lo.u32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W((a & 0xffffff) * (b & 0xffffff)); }},
      {"sad.s32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         return W(static_cast<uint64_t>(std::abs(int64_t{S(a)} - S(b))) + c);
       }},
      {"div.u32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W(b) == 0 ? ~0u : W(a) / W(b); }},
      {"div.s32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         return S(b) == 0 ? ~0u : W(static_cast<uint64_t>(int64_t{S(a)} / S(b)));
       }},
      {"rem.s32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         return S(b) == 0 ? ~0u : W(static_cast<uint64_t>(int64_t{S(a)} % S(b)));
       }},
      {"div.s64 %d, %a, %b;", 'd',
       [](auto a, auto b, auto) {
         if (b == 0) return ~uint64_t{0};
         return b == ~uint64_t{0} ? -a : static_cast<uint64_t>(L(a) / L(b));
       }},
      {"rem.u64 %d, %a, %b;", 'd', [](auto a, auto b, auto) { return b == 0 ? ~b : a % b; }},
      {"min.s32 %wd, %wa, %wb;", 'w', [](auto a, auto b, auto) { return U(std::min(S(a), S(b))); }},
      {"max.u64 %d, %a, %b;", 'd', [](auto a, auto b, auto) { return std::max(a, b); }},
      {"abs.s32 %wd, %wa;", 'w', [](auto a, auto, auto) { return W(S(a) < 0 ? 0 - a : a); }},
      {"neg.s16 %hd, %ha;", 'h', [](auto a, auto, auto) { return (0 - a) & 0xffff; }},
      {"add.cc.u32 %wd, %wa, %wb;\n addc.u32 %wd, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return W(b + c + ((uint64_t{W(a)} + W(b)) >> 32)); }},
      {"madc.lo.u32 %wd, %wa, %wb, %wc;", 'w', [](auto a, auto b, auto c) { return W(a * b + c); }},
      {"add.cc.u32 %hi, %wa, %wb;\n madc.hi.s32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         return W((static_cast<uint64_t>(int64_t{S(a)} * S(b)) >> 32) + c +
                  ((uint64_t{W(a)} + W(b)) >> 32));
       }},
      {"add.cc.u64 %d, %a, %b;\n madc.hi.cc.s64 %d, %a, %b, %c;\n addc.u64 %d, %d, 0;", 'd',
       [](auto a, auto b, auto c) {
         const uint64_t carry = (static_cast<unsigned __int128>(a) + b) >> 64;
         const uint64_t high = static_cast<uint64_t>((static_cast<__int128>(L(a)) * L(b)) >> 64);
         const unsigned __int128 sum = static_cast<unsigned __int128>(high) + c + carry;
         return static_cast<uint64_t>(sum) + static_cast<uint64_t>(sum >> 64);
       }},
      {"mad.hi.s32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         return W((static_cast<uint64_t>(int64_t{S(a)} * S(b)) >> 32) + c);
       }},
      {"mad.hi.sat.s32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         const int64_t sum = ((int64_t{S(a)} * S(b)) >> 32) + S(c);
         return U(static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX)));
       }},
      {"mad.hi.u64 %d, %a, %b, %c;", 'd',
       [](auto a, auto b, auto c) {
         return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64) + c;
       }},
      {"mul24.hi.u32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W((a & 0xffffff) * (b & 0xffffff) >> 16); }},
      {"mad24.hi.s32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         const int64_t x = S(a << 8) >> 8, y = S(b << 8) >> 8;
         return W(static_cast<uint64_t>((x * y) >> 16) + c);
       }},
      {"mad24.hi.sat.s32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         const int64_t x = S(a << 8) >> 8, y = S(b << 8) >> 8;
         return U(static_cast<int32_t>(
             std::clamp<int64_t>(((x * y) >> 16) + S(c), INT32_MIN, INT32_MAX)));
       }},
      {"sub.cc.u32 %wd, %wa, %wb;\n subc.u32 %wd, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return W(b - c - (W(a) < W(b) ? 1 : 0)); }},
  };
  for (const Operation& operation : kOperations) Check(operation);
}

TEST(Operations, Bits) {
  const auto shl = [](auto a, auto b, auto) { return W(b) > 31 ? 0 : W(W(a) << W(b)); };
  const Operation kOperations[] = {
      {"and.b32 %wd, %wa, %wb;", 'w', [](auto a, auto b, auto) { return W(a & b); }},
      {"xor.b64 %d, %a, %b;", 'd', [](auto a, auto b, auto) { return a ^ b; }},
      {"not.b16 %hd, %ha;", 'h', [](auto a, auto, auto) { return ~a & 0xffff; }},
      {"cnot.b32 %wd, %wa;", 'w', [](auto a, auto, auto) { return W(a) == 0 ? 1 : 0; }},
      {"shl.b32 %wd, %wa, %wb;", 'w', shl},
      {"shr.u32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W(b) > 31 ? 0 : W(a) >> W(b); }},
      {"shr.s64 %d, %a, %wb;", 'd',
       [](auto a, auto b, auto) { return static_cast<uint64_t>(L(a) >> std::min(W(b), 63u)); }},
      {"shr.s16 %hd, %ha, %wb;", 'h',
       [](auto a, auto b, auto) {
         return static_cast<uint64_t>(H(a) >> std::min(W(b), 15u)) & 0xffff;
       }},
      {"shf.l.wrap.b32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         const uint64_t both = b << 32 | W(a);
         return W((both << (c & 31)) >> 32);
       }},
      {"shf.r.clamp.b32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         const uint64_t both = b << 32 | W(a);
         return W(both >> std::min(W(c), 32u));
       }},
      {"popc.b64 %wd, %a;", 'w', [](auto a, auto, auto) { return std::popcount(a); }},
      {"clz.b32 %wd, %wa;", 'w', [](auto a, auto, auto) { return std::countl_zero(W(a)); }},
      {"bfind.u32 %wd, %wa;", 'w',
       [](auto a, auto, auto) { return W(a) == 0 ? ~0u : W(std::bit_width(W(a)) - 1); }},
      {"prmt.b32 %wd, %wa, %wb, 0x3715;", 'w',
       [](auto a, auto b, auto) {
         const uint64_t both = b << 32 | W(a);
         const auto byte = [&](int i) { return (both >> (8 * i)) & 0xff; };
         return byte(5) | byte(1) << 8 | byte(7) << 16 | byte(3) << 24;
       }},
      {"lop3.b32 %wd, %wa, %wb, %wc, 0x96;", 'w',
       [](auto a, auto b, auto c) { return W(a ^ b ^ c); }},
      {"lop3.b32 %wd, %wa, %wb, %wc, 0xca;", 'w',
       [](auto a, auto b, auto c) { return W((a & b) | (~a & c)); }},
      {"bfe.u32 %wd, %wa, 5, 7;", 'w', [](auto a, auto, auto) { return (W(a) >> 5) & 0x7f; }},
      {"bfe.s64 %d, %a, 60, 10;", 'd',
       [](auto a, auto, auto) { return static_cast<uint64_t>(L(a) >> 60); }},
      {"bfe.u32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return Bfe<uint32_t>(W(a), b, c, false); }},
      {"bfe.s32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return Bfe<uint32_t>(W(a), b, c, true); }},
      {"bfe.s64 %d, %a, %wb, %wc;", 'd',
       [](auto a, auto b, auto c) { return Bfe<uint64_t>(a, b, c, true); }},
      {"bfind.s32 %wd, %wa;", 'w',
       [](auto a, auto, auto) { return W(std::bit_width(W(S(a) < 0 ? ~a : a)) - 1); }},
      {"bfind.shiftamt.u64 %wd, %a;", 'w',
       [](auto a, auto, auto) { return a == 0 ? ~0u : W(std::countl_zero(a)); }},
      {"prmt.b32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         return Permuted(a, b, [c](int i) { return static_cast<int>(c >> (4 * i) & 15); });
       }},
      {"prmt.b32.f4e %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return Permuted(a, b, [c](int i) { return (c & 3) + i; }); }},
      {"prmt.b32.b4e %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         return Permuted(a, b, [c](int i) { return ((c & 3) + 8 - i) & 7; });
       }},
      {"prmt.b32.rc8 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return Permuted(a, b, [c](int) { return c & 3; }); }},
      {"prmt.b32.ecl %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         return Permuted(a, b, [c](int i) { return std::max(i, static_cast<int>(c & 3)); });
       }},
      {"prmt.b32.ecr %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         return Permuted(a, b, [c](int i) { return std::min(i, static_cast<int>(c & 3)); });
       }},
      {"prmt.b32.rc16 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         return Permuted(a, b, [c](int i) { return (c & 1) * 2 + (i & 1); });
       }},
      {"bfi.b32 %wd, %wa, %wb, 8, 4;", 'w',
       [](auto a, auto b, auto) { return (W(b) & ~0xf00u) | (W(a) & 0xf) << 8; }},
      {"bfi.b64 %d, %a, %b, %wc, %wb;", 'd',
       [](auto a, auto b, auto c) { return Bfi64(a, b, c, b); }},
      {"dp4a.s32.u32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         int64_t sum = S(c);
         for (int i = 0; i < 32; i += 8)
           sum += int64_t{static_cast<int8_t>(a >> i)} * (b >> i & 255);
         return W(static_cast<uint64_t>(sum));
       }},
      {"dp2a.hi.u32.s32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) {
         const int64_t low = int64_t(a & 0xffff) * static_cast<int8_t>(b >> 16);
         const int64_t high = int64_t(a >> 16 & 0xffff) * static_cast<int8_t>(b >> 24);
         return W(static_cast<uint64_t>(S(c) + low + high));
       }},
      {"bmsk.clamp.b32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         uint64_t mask = 0;
         for (uint64_t i = W(a); i < 32 && i - W(a) < W(b); ++i) mask |= uint64_t{1} << i;
         return mask;
       }},
      {"szext.wrap.s32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) {
         const int bits = static_cast<int>(b & 31);
         const uint64_t kept = W(a) & ((uint64_t{1} << bits) - 1);
         const bool negative = bits != 0 && (kept >> (bits - 1) & 1) != 0;
         return W(kept - (negative ? uint64_t{1} << bits : 0));
       }},
      {"fns.b32 %wd, %wa, %wb, 0x80000000;", 'w', [](auto, auto, auto) { return ~0u; }},
      {"setp.gt.u32 %q, %wa, %wb;\n lop3.and.b32 _|%p, %wa, %wb, %wc, 0x96, !%q;\n"
       " selp.u32 %wd, 1, 0, %p;",
       'w', [](auto a, auto b, auto c) { return W(a ^ b ^ c) != 0 && W(a) <= W(b) ? 1 : 0; }},
      {"setp.gt.u32 %q, %wa, %wb;\n lop3.or.b32 %wd|%p, %wa, %wb, %wc, 0x96, %q;\n"
       " @!%p add.u32 %wd, %wd, 5;",
       'w',
       [](auto a, auto b, auto c) {
         return W(a ^ b ^ c) + (W(a ^ b ^ c) != 0 || W(a) > W(b) ? 0u : 5u);
       }},
      {"fns.b32 %wd, %wa, 4, 2;", 'w',
       [](auto a, auto, auto) {
         int seen = 0;
         for (uint32_t i = 4; i < 32; ++i) {
           if ((a >> i & 1) != 0 && ++seen == 2) return i;
         }
         return ~0u;
       }},
      {"brev.b32 %wd, %wa;", 'w',
       [](auto a, auto, auto) {
         uint32_t r = 0;
         for (int i = 0; i < 32; ++i) r |= (W(a) >> i & 1) << (31 - i);
         return r;
       }},
  };
  for (const Operation& operation : kOperations) Check(operation);
}

TEST(Operations, EveryTableOfLop3) {
  for (uint32_t table = 0; table < 256; ++table) {
    Check({"lop3.b32 %wd, %wa, %wb, %wc, " + std::to_string(table) + ";", 'w',
           [=](auto a, auto b, auto c) {
             uint64_t result = 0;
             for (int i = 0; i < 32; ++i) {
               const uint64_t row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
               result |= (uint64_t{table} >> row & 1) << i;
             }
             return result;
           }});
  }
}

// The place of the nth set bit, from a place on, up or down.
TEST(Operations, Fns) {
  Check({"and.b32 %wb, %wb, 31; bfe.s32 %wc, %wc, 0, 5; fns.b32 %wd, %wa, %wb, %wc;", 'w',
         [](auto a, auto b, auto c) -> uint64_t {
           const int n = static_cast<int>(c & 31) - ((c & 16) != 0 ? 32 : 0), step = n < 0 ? -1 : 1;
           int left = n < 0 ? -n : n, place = static_cast<int>(b & 31);
           if (n == 0) return (a >> place & 1) != 0 ? U(place) : 0xffffffff;
           for (; place >= 0 && place < 32; place += step) {
             if ((a >> place & 1) != 0 && --left == 0) return U(place);
           }
           return 0xffffffff;
         }});
}

TEST(Operations, ComparisonAndSelection) {
  const Operation kOperations[] = {
      {"setp.lt.s32 %p, %wa, %wb;\n selp.b32 %wd, %wa, %wc, %p;", 'w',
       [](auto a, auto b, auto c) { return W(S(a) < S(b) ? a : c); }},
      {"setp.hs.u32 %p, %wa, %wb;\n selp.b32 %wd, 1, 0, !%p;", 'w',
       [](auto a, auto b, auto) { return W(a) >= W(b) ? 0 : 1; }},
      {"setp.neu.f32 %p, %wa, %wb;\n selp.u32 %wd, 1, 0, %p;", 'w',
       [](auto a, auto b, auto) { return F(a) == F(b) ? 0 : 1; }},
      {"setp.ne.f64 %p, %a, %b;\n selp.u32 %wd, 1, 0, %p;", 'w',
       [](auto a, auto b, auto) { return D(a) < D(b) || D(a) > D(b) ? 1 : 0; }},
      {"setp.nan.f32 %p, %wa, %wb;\n selp.u32 %wd, 1, 0, %p;", 'w',
       [](auto a, auto b, auto) { return std::isnan(F(a)) || std::isnan(F(b)) ? 1 : 0; }},
      {"setp.gt.u32 %q, %wa, 5;\n setp.lt.and.s32 %p|%q, %wa, %wb, %q;\n"
       "selp.u32 %wd, 1, 0, %p;\n selp.u32 %wc, 2, 0, %q;\n or.b32 %wd, %wd, %wc;",
       'w',
       [](auto a, auto b, auto) {
         if (W(a) <= 5) return 0;
         return S(a) < S(b) ? 1 : 2;
       }},
      {"set.ge.u32.s32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return S(a) >= S(b) ? ~0u : 0u; }},
      {"set.eq.f32.u32 %wd, %wa, %wb;", 'w',
       [](auto a, auto b, auto) { return W(a) == W(b) ? 0x3f800000 : 0; }},
      {"slct.b32.s32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return W(S(c) >= 0 ? a : b); }},
      {"slct.b64.f32 %d, %a, %b, %wc;", 'd',
       [](auto a, auto b, auto c) { return F(c) >= 0 ? a : b; }},
      {"slct.ftz.u32.f32 %wd, %wa, %wb, %wc;", 'w',
       [](auto a, auto b, auto c) { return W(F(c) > -0x1p-126f ? a : b); }},
      {"setp.ge.f16 %p, %ha, %hb;\n selp.u32 %wd, 1, 0, %p;", 'w',
       [](auto a, auto b, auto) { return HalfValue(a) >= HalfValue(b) ? 1 : 0; }},
      {"setp.lt.s16 %p, %ha, %hb;\n @%p mov.u32 %wd, 1;\n @!%p mov.u32 %wd, 0;", 'w',
       [](auto a, auto b, auto) { return H(a) < H(b) ? 1 : 0; }},
  };
  for (const Operation& operation : kOperations) Check(operation);
}

}  // namespace
}  // namespace tandem::ptx
