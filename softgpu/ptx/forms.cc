// Which instructions there are: one row for each form. A new one is a row here and a handler in
// handlers_*.cc; operands of an unusual kind need a function of their own in lower_*.cc.
#include <algorithm>
#include <iterator>

#include "softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

// Names for alternatives that many rows share; one may name others.
constexpr std::pair<std::string_view, std::string_view> kSets[] = {
    {"B", "b16|b32|b64"},
    {"U", "u16|u32|u64"},
    {"S", "s16|s32|s64"},
    {"I", "U|S"},
    {"W", "u32|s32"},
    {"WL", "u32|s32|u64|s64"},
    {"I8", "I|u8|s8"},
    {"F", "f16|f32|f64"},
    {"ANY", "B|I|f32|f64"},
    {"MEM", "ANY|b8|u8|s8"},
    {"RND", "rn|rz|rm|rp"},
    {"RNI", "rni|rzi|rmi|rpi"},
    {"LOGIC", "and|or|xor"},
    {"ORDERED", "eq|ne|lt|le|gt|ge"},
    {"UNSIGNED", "ORDERED|lo|ls|hi|hs"},
    {"FLOAT", "ORDERED|equ|neu|ltu|leu|gtu|geu|num|nan"},
    {"SHARED", "shared|shared::cta"},
    {"LDSPACE", "global|const|SHARED|local|param|param::entry|param::func"},
    {"STSPACE", "global|SHARED|local|param|param::func"},
    {"WHERE", "global|SHARED"},
    {"GEOMETRY", "1d|2d|3d|a1d|a2d"},
    {"EDGE", "trap|clamp|zero"},
    {"HINT", "L2::cache_hint"},
    {"SCOPE", "cta|cluster|gpu|sys"},
    {"LDORDER", "weak|volatile|relaxed|acquire"},
    {"STORDER", "weak|volatile|relaxed|release"},
    {"ORDER", "relaxed|acquire|release|acq_rel"},
    {"EVICT",
     "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"},
    {"POLICY", "L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged"},
    {"WMMA", "m16n16k16|m32n8k16|m8n32k16"},
    {"FETCH", "L2::64B|L2::128B|L2::256B"},
};

// Adds the words of "a|b|SET".
void Expand(std::string_view alternatives, std::vector<std::string_view>* words) {
  while (!alternatives.empty()) {
    const size_t end = std::min(alternatives.find('|'), alternatives.size());
    const std::string_view word = alternatives.substr(0, end);
    alternatives.remove_prefix(std::min(end + 1, alternatives.size()));
    const auto* set = std::find_if(std::begin(kSets), std::end(kSets),
                                   [&](const auto& entry) { return entry.first == word; });
    if (set != std::end(kSets)) {
      Expand(set->second, words);
    } else {
      words->push_back(word);
    }
  }
}

std::string_view TakeToken(std::string_view* syntax) {
  const size_t end = std::min(syntax->find(' '), syntax->size());
  const std::string_view token = syntax->substr(0, end);
  syntax->remove_prefix(std::min(end + 1, syntax->size()));
  return token;
}

}  // namespace

bool Form::Takes(const std::vector<std::string_view>& modifiers) const {
  uint32_t taken = 0;
  for (const std::string_view modifier : modifiers) {
    const bool type = TypeNamed(modifier) != Type::kNone;
    size_t i = 0;
    for (; i < slots.size(); ++i) {
      if ((taken >> i & 1) != 0 || slots[i].types != type) continue;
      if (type || slots[i].Has(modifier)) break;
    }
    if (i == slots.size() || !slots[i].Has(modifier)) return false;
    taken |= 1u << i;
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].optional && (taken >> i & 1) == 0) return false;
  }
  return true;
}

bool Form::Slot::Has(std::string_view word) const {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A row is the instruction as the PTX manual writes it, in words: {optional}, one|other, SET. The
// words may come in any order, but types in theirs. ~: only in PTX of old versions or targets.
//
// The operands of those that Plain lowers: t, s: of the first and the second type; w: twice as wide
// as the first; u: 32 bits; p: a predicate; i: a constant byte.
using K = KernelLowering;
const K::FormRow K::kFormRows[] = {
    // Integers.
    {"add I", Op::kAdd, "ttt"},
    {"add sat s32", Op::kAdd, "ttt"},
    {"sub I", Op::kSub, "ttt"},
    {"sub sat s32", Op::kSub, "ttt"},
    {"mul lo I", Op::kMulLo, "ttt"},
    {"mul hi I", Op::kMulHi, "ttt"},
    {"mul wide u16|u32|s16|s32", Op::kMulWide, "wtt"},
    {"mad lo I", Op::kMadLo, "tttt"},
    {"mad hi I", Op::kMadHi, "tttt"},
    {"mad hi sat s32", Op::kMadHi, "tttt"},
    {"mad wide u16|u32|s16|s32", Op::kMadWide, "wttw"},
    {"mul24 lo W", Op::kMul24Lo, "ttt"},
    {"mul24 hi W", Op::kMul24Hi, "ttt"},
    {"mad24 lo W", Op::kMad24Lo, "tttt"},
    {"mad24 hi W", Op::kMad24Hi, "tttt"},
    {"mad24 hi sat s32", Op::kMad24Hi, "tttt"},
    {"sad I", Op::kSad, "tttt"},
    {"div I", Op::kDiv, "ttt"},
    {"rem I", Op::kRem, "ttt"},
    {"abs S", Op::kAbs, "tt"},
    {"neg S", Op::kNeg, "tt"},
    {"min I", Op::kMin, "ttt"},
    {"max I", Op::kMax, "ttt"},
    {"add cc WL", Op::kAddCarry, "ttt"},
    {"addc {cc} WL", Op::kAddCarry, "ttt"},
    {"sub cc WL", Op::kSubBorrow, "ttt"},
    {"subc {cc} WL", Op::kSubBorrow, "ttt"},
    {"mad lo cc WL", Op::kMadLoCarry, "tttt"},
    {"mad hi cc WL", Op::kMadHiCarry, "tttt"},
    {"madc lo {cc} WL", Op::kMadLoCarry, "tttt"},
    {"madc hi {cc} WL", Op::kMadHiCarry, "tttt"},

    // Floats.
    {"add {RND} {ftz} {sat} f32", Op::kAdd, "ttt"},
    {"add {RND} f64", Op::kAdd, "ttt"},
    {"add {rn} {ftz} {sat} f16|f16x2", Op::kAdd, "ttt"},
    {"add {rn} bf16|bf16x2", Op::kAdd, "ttt"},
    {"sub {RND} {ftz} {sat} f32", Op::kSub, "ttt"},
    {"sub {RND} f64", Op::kSub, "ttt"},
    {"sub {rn} {ftz} {sat} f16|f16x2", Op::kSub, "ttt"},
    {"sub {rn} bf16|bf16x2", Op::kSub, "ttt"},
    {"mul {RND} {ftz} {sat} f32", Op::kMulLo, "ttt"},
    {"mul {RND} f64", Op::kMulLo, "ttt"},
    {"mul {rn} {ftz} {sat} f16|f16x2", Op::kMulLo, "ttt"},
    {"mul {rn} bf16|bf16x2", Op::kMulLo, "ttt"},
    {"fma RND {ftz} {sat} f32", Op::kFma, "tttt"},
    {"fma RND f64", Op::kFma, "tttt"},
    {"fma rn {ftz} {sat} f16|f16x2", Op::kFma, "tttt"},
    {"fma rn {ftz} relu f16|f16x2", Op::kFma, "tttt"},
    {"fma rn {relu} bf16|bf16x2", Op::kFma, "tttt"},
    {"mad RND {ftz} {sat} f32", Op::kFma, "tttt"},
    {"~mad {ftz} {sat} f32", Op::kFma, "tttt"},
    {"~mad f64", Op::kFma, "tttt"},
    {"~div {ftz} f32", Op::kDiv, "ttt"},
    {"~div f64", Op::kDiv, "ttt"},
    {"~rcp {ftz} f32|f64", Op::kRcp, "tt"},
    {"~sqrt {ftz} f32|f64", Op::kSqrt, "tt"},
    {"~rsqrt {ftz} f32|f64", Op::kRsqrt, "tt"},
    {"~ex2 {ftz} f32", Op::kEx2, "tt"},
    {"~lg2 {ftz} f32", Op::kLg2, "tt"},
    {"~sin {ftz} f32", Op::kSin, "tt"},
    {"~cos {ftz} f32", Op::kCos, "tt"},
    {"mad RND f64", Op::kFma, "tttt"},
    {"div approx|full|RND {ftz} f32", Op::kDiv, "ttt"},
    {"div RND f64", Op::kDiv, "ttt"},
    {"rcp approx|RND {ftz} f32", Op::kRcp, "tt"},
    {"rcp RND f64", Op::kRcp, "tt"},
    {"rcp approx ftz f64", Op::kRcp, "tt"},
    {"sqrt approx|RND {ftz} f32", Op::kSqrt, "tt"},
    {"sqrt RND f64", Op::kSqrt, "tt"},
    {"rsqrt approx {ftz} f32", Op::kRsqrt, "tt"},
    {"rsqrt approx {ftz} f64", Op::kRsqrt, "tt"},
    {"ex2 approx {ftz} f32", Op::kEx2, "tt"},
    {"lg2 approx {ftz} f32", Op::kLg2, "tt"},
    {"sin approx {ftz} f32", Op::kSin, "tt"},
    {"cos approx {ftz} f32", Op::kCos, "tt"},
    {"tanh approx f32|f16|f16x2|bf16|bf16x2", Op::kTanh, "tt"},
    {"ex2 approx f16|f16x2", Op::kEx2, "tt"},
    {"ex2 approx ftz bf16|bf16x2", Op::kEx2, "tt"},
    {"abs {ftz} f32", Op::kAbs, "tt"},
    {"abs f64", Op::kAbs, "tt"},
    {"abs {ftz} f16|f16x2", Op::kAbs, "tt"},
    {"abs bf16|bf16x2", Op::kAbs, "tt"},
    {"neg {ftz} f32", Op::kNeg, "tt"},
    {"neg f64", Op::kNeg, "tt"},
    {"neg {ftz} f16|f16x2", Op::kNeg, "tt"},
    {"neg bf16|bf16x2", Op::kNeg, "tt"},
    {"min {ftz} {NaN} f32", Op::kMin, "ttt"},
    {"min f64", Op::kMin, "ttt"},
    {"min {ftz} {NaN} f16|f16x2", Op::kMin, "ttt"},
    {"min {ftz} {NaN} xorsign abs f32|f16|f16x2", Op::kMin, "ttt"},
    {"min {NaN} bf16|bf16x2", Op::kMin, "ttt"},
    {"min {NaN} xorsign abs bf16|bf16x2", Op::kMin, "ttt"},
    {"max {ftz} {NaN} f32", Op::kMax, "ttt"},
    {"max f64", Op::kMax, "ttt"},
    {"max {ftz} {NaN} f16|f16x2", Op::kMax, "ttt"},
    {"max {ftz} {NaN} xorsign abs f32|f16|f16x2", Op::kMax, "ttt"},
    {"max {NaN} bf16|bf16x2", Op::kMax, "ttt"},
    {"max {NaN} xorsign abs bf16|bf16x2", Op::kMax, "ttt"},
    {"copysign f32|f64", Op::kCopysign, "ttt"},
    {"testp finite|infinite|number|notanumber|normal|subnormal f32|f64", Op::kTestp, "pt"},

    // Video: of parts of registers, and of two or four numbers in one.
    {"vadd|vsub|vabsdiff|vmin|vmax W W W {sat} {add|min|max}", Op::kVideo, "", &K::VideoScalar},
    {"vshl|vshr W W u32 {sat} clamp|wrap {add|min|max}", Op::kVideo, "", &K::VideoScalar},
    {"vset W W ORDERED {add|min|max}", Op::kVideo, "", &K::VideoScalar},
    {"vmad W W W {po} {sat} {shr7|shr15}", Op::kVideo, "", &K::VideoScalar},
    {"vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2 W W W {sat|add}", Op::kVideo, "", &K::VideoVector},
    {"vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4 W W W {sat|add}", Op::kVideo, "", &K::VideoVector},
    {"vset2|vset4 W W ORDERED {add}", Op::kVideo, "", &K::VideoVector},

    // Bits.
    {"and B", Op::kAnd, "ttt"},
    {"or B", Op::kOr, "ttt"},
    {"xor B", Op::kXor, "ttt"},
    {"not B", Op::kNot, "tt"},
    {"cnot B", Op::kCnot, "tt"},
    {"shl B", Op::kShl, "ttu"},
    {"shr B|I", Op::kShr, "ttu"},
    {"shf l wrap|clamp b32", Op::kShfLeft, "tttu"},
    {"shf r wrap|clamp b32", Op::kShfRight, "tttu"},
    {"prmt b32 {f4e|b4e|rc8|ecl|ecr|rc16}", Op::kPrmt, "tttu"},
    {"lop3 b32", Op::kLop3, "tttti"},
    {"lop3 and|or b32", Op::kLop3, "", &K::Lop3},
    {"bfe WL", Op::kBfe, "ttuu"},
    {"bfi b32|b64", Op::kBfi, "tttuu"},
    {"popc b32|b64", Op::kPopc, "ut"},
    {"clz b32|b64", Op::kClz, "ut"},
    {"brev b32|b64", Op::kBrev, "tt"},
    {"bfind {shiftamt} WL", Op::kBfind, "ut"},
    {"dp4a W W", Op::kDp4a, "tttt"},
    {"dp2a lo|hi W W", Op::kDp2a, "tttt"},
    {"bmsk clamp|wrap b32", Op::kBmsk, "tuu"},
    {"szext clamp|wrap W", Op::kSzext, "ttu"},
    {"fns b32", Op::kFns, "ttuu"},

    // Predicates and selection.
    {"and pred", Op::kPredAnd, "ppp"},
    {"or pred", Op::kPredOr, "ppp"},
    {"xor pred", Op::kPredXor, "ppp"},
    {"not pred", Op::kPredNot, "pp"},
    {"mov pred", Op::kPredMov, "pp"},
    {"setp eq|ne {LOGIC} B", Op::kSetp, "", &K::Setp},
    {"setp ORDERED {LOGIC} S", Op::kSetp, "", &K::Setp},
    {"setp UNSIGNED {LOGIC} U", Op::kSetp, "", &K::Setp},
    {"setp FLOAT {LOGIC} {ftz} f32", Op::kSetp, "", &K::Setp},
    {"setp FLOAT {LOGIC} f64|bf16|bf16x2", Op::kSetp, "", &K::Setp},
    {"setp FLOAT {LOGIC} {ftz} f16|f16x2", Op::kSetp, "", &K::Setp},
    {"set eq|ne {LOGIC} W|f32|f16|bf16 B", Op::kSet, "", &K::Set},
    {"set ORDERED {LOGIC} W|f32|f16|bf16 S", Op::kSet, "", &K::Set},
    {"set UNSIGNED {LOGIC} W|f32|f16|bf16 U", Op::kSet, "", &K::Set},
    {"set FLOAT {LOGIC} {ftz} W|f32|f16|bf16 f32", Op::kSet, "", &K::Set},
    {"set FLOAT {LOGIC} W|f32|f16|bf16 f64", Op::kSet, "", &K::Set},
    {"set FLOAT {LOGIC} {ftz} W|u16|s16|f32|f16 f16", Op::kSet, "", &K::Set},
    {"set FLOAT {LOGIC} {ftz} W|f16x2 f16x2", Op::kSet, "", &K::Set},
    {"set FLOAT {LOGIC} W|u16|s16|f32|bf16 bf16", Op::kSet, "", &K::Set},
    {"set FLOAT {LOGIC} W|bf16x2 bf16x2", Op::kSet, "", &K::Set},
    {"selp ANY", Op::kSelp, "tttp"},
    {"slct ANY s32", Op::kSlct, "ttts"},
    {"slct {ftz} ANY f32", Op::kSlct, "ttts"},

    // Moving and converting.
    {"mov ANY", Op::kMov, "", &K::Mov},
    {"cvt {sat} I8 I8", Op::kCvt, "", &K::Cvt},
    {"cvt RNI {ftz} {sat} I8 f32", Op::kCvt, "", &K::Cvt},
    {"cvt RNI {sat} I8 f16|f64", Op::kCvt, "", &K::Cvt},
    {"cvt RND {sat} F I8", Op::kCvt, "", &K::Cvt},
    {"cvt RND {ftz} {sat} f16 f32", Op::kCvt, "", &K::Cvt},
    {"cvt RND {ftz} {sat} f32 f64", Op::kCvt, "", &K::Cvt},
    {"cvt RND {sat} f16 f64", Op::kCvt, "", &K::Cvt},
    {"cvt {ftz} {sat} f32 f16", Op::kCvt, "", &K::Cvt},
    {"cvt {ftz} {sat} f64 f32", Op::kCvt, "", &K::Cvt},
    {"cvt {sat} f64 f16", Op::kCvt, "", &K::Cvt},
    {"cvt {RNI} {ftz} {sat} f32 f32", Op::kCvt, "", &K::Cvt},
    {"cvt {RNI} {sat} f64 f64", Op::kCvt, "", &K::Cvt},
    {"cvt {RNI} {sat} f16 f16", Op::kCvt, "", &K::Cvt},
    {"~cvt {sat} F I8", Op::kCvt, "", &K::Cvt},
    {"~cvt {ftz} {sat} f32 f64", Op::kCvt, "", &K::Cvt},
    {"~cvt {sat} f16 f32|f64", Op::kCvt, "", &K::Cvt},
    {"cvt RNI {sat} I8 bf16", Op::kCvt, "", &K::Cvt},
    {"cvt RND bf16 I8|f16|f32|f64", Op::kCvt, "", &K::Cvt},
    {"cvt RND f16 bf16", Op::kCvt, "", &K::Cvt},
    {"cvt f64 bf16", Op::kCvt, "", &K::Cvt},
    {"cvt {ftz} f32 bf16", Op::kCvt, "", &K::Cvt},
    {"cvt RNI bf16 bf16", Op::kCvt, "", &K::Cvt},
    {"cvt rn|rz {relu} {satfinite} f16|bf16 f32", Op::kCvtPack, "tt", &K::CvtPack},
    {"cvt rn|rz {relu} {satfinite} f16x2|bf16x2 f32", Op::kCvtPack, "ttt", &K::CvtPack},
    {"cvt rna {satfinite} tf32 f32", Op::kCvtPack, "tt", &K::CvtPack},
    {"cvt rn|rz {relu} {satfinite} tf32 f32", Op::kCvtPack, "tt", &K::CvtPack},
    {"cvt pack sat u16|s16 s32", Op::kCvtPack, "ttt", &K::CvtPack},
    {"cvt pack sat u8|s8 s32 b32", Op::kCvtPack, "tttt", &K::CvtPack},
    {"cvta {to} global|const|SHARED|local|param|param::entry u64", Op::kNone, "", &K::Cvta},

    // Memory. Caching, ordering and scope are no matter: blocks run one after the other.
    {"ld {mmio} {LDORDER} {SCOPE} {LDSPACE} {ca|cg|cs|lu|cv} {nc} {EVICT} {FETCH} {unified} "
     "{HINT} {v2|v4} MEM",
     Op::kLoad, "", &K::Memory},
    {"ldu {global} {v2|v4} MEM", Op::kLoad, "", &K::Memory},
    {"st {mmio} {STORDER} {SCOPE} {STSPACE} {wb|cg|cs|wt} {EVICT} {HINT} {v2|v4} MEM", Op::kStore,
     "", &K::Memory},
    {"atom {ORDER} {SCOPE} {WHERE} add {HINT} W|u64|f32|f64", Op::kAtom, "", &K::Atom},
    {"atom {ORDER} {SCOPE} {WHERE} add noftz {HINT} f16|f16x2|bf16|bf16x2", Op::kAtom, "",
     &K::Atom},
    {"atom {ORDER} {SCOPE} {WHERE} min|max {HINT} WL", Op::kAtom, "", &K::Atom},
    {"atom {ORDER} {SCOPE} {WHERE} inc|dec {HINT} u32", Op::kAtom, "", &K::Atom},
    {"atom {ORDER} {SCOPE} {WHERE} LOGIC|exch|cas {HINT} b32|b64", Op::kAtom, "", &K::Atom},
    {"atom {ORDER} {SCOPE} {WHERE} cas b16", Op::kAtom, "", &K::Atom},
    {"red {ORDER} {SCOPE} {WHERE} add {HINT} W|u64|f32|f64", Op::kAtom, "", &K::Atom},
    {"red {ORDER} {SCOPE} {WHERE} add noftz {HINT} f16|f16x2|bf16|bf16x2", Op::kAtom, "", &K::Atom},
    {"red {ORDER} {SCOPE} {WHERE} min|max {HINT} WL", Op::kAtom, "", &K::Atom},
    {"red {ORDER} {SCOPE} {WHERE} inc|dec {HINT} u32", Op::kAtom, "", &K::Atom},
    {"red {ORDER} {SCOPE} {WHERE} LOGIC {HINT} b32|b64", Op::kAtom, "", &K::Atom},
    // Textures.
    {"tex GEOMETRY v4 W|f32 s32|f32", Op::kTexture, "", &K::Texture},
    {"tex level GEOMETRY v4 W|f32 f32", Op::kTexture, "", &K::Texture},
    {"txq width|height|depth|array_size|num_mipmap_levels|normalized_coords b32", Op::kTextureQuery,
     "", &K::TextureQuery},
    {"suld b GEOMETRY {ca|cg|cs|cv} {v2|v4} B|b8 EDGE", Op::kSurfaceLoad, "", &K::Surface},
    {"sust b GEOMETRY {wb|cg|cs|wt} {v2|v4} B|b8 EDGE", Op::kSurfaceStore, "", &K::Surface},
    {"suq width|height|depth|array_size b32", Op::kTextureQuery, "", &K::TextureQuery},
    {"membar cta|gl|sys", Op::kNone, "", &K::Nothing},
    {"fence {sc|ORDER} SCOPE", Op::kNone, "", &K::Nothing},
    {"fence proxy alias|async", Op::kNone, "", &K::Nothing},
    {"fence proxy async global|SHARED", Op::kNone, "", &K::Nothing},
    {"membar proxy alias", Op::kNone, "", &K::Nothing},
    {"discard {global} L2", Op::kNone, "au", &K::Nothing},
    {"applypriority {global} L2::evict_normal", Op::kNone, "au", &K::Nothing},
    {"createpolicy fractional POLICY {L2::evict_unchanged|L2::evict_first} b64", Op::kNone, "",
     &K::Policy},
    {"createpolicy cvt L2 b64", Op::kNone, "", &K::Policy},
    {"createpolicy range {global} POLICY {L2::evict_unchanged|L2::evict_first} b64", Op::kNone, "",
     &K::Policy},
    {"cp async ca|cg SHARED global {HINT} {FETCH}", Op::kNone, "", &K::CopyAsync},
    {"cp async commit_group|wait_group|wait_all", Op::kNone, "", &K::AsyncNothing},
    {"isspacep global|const|SHARED|local|param|param::entry", Op::kNone, "", &K::IsSpace},
    {"prefetch {global|local} L1|L2|L2::evict_last|L2::evict_normal", Op::kNone, "a", &K::Nothing},
    {"prefetchu L1", Op::kNone, "a", &K::Nothing},
    {"pmevent {mask}", Op::kNone, "u", &K::Nothing},
    {"nanosleep u32", Op::kNone, "u", &K::Nothing},

    // Control.
    {"bra {uni}", Op::kNone, "", &K::Branch},
    {"ret {uni}", Op::kNone, "", &K::Leave},
    {"exit", Op::kNone, "", &K::Leave},
    {"brx idx {uni}", Op::kNone, "", &K::BranchIndexed},
    {"alloca u32|u64", Op::kAlloca, "", &K::Alloca},
    {"stacksave u32|u64", Op::kStackSave, "", &K::StackMark},
    {"stackrestore u32|u64", Op::kStackRestore, "", &K::StackMark},
    {"trap", Op::kNone, "", &K::Trap},
    {"brkpt", Op::kNone, "", &K::Trap},
    {"call {uni}", Op::kNone, "", &K::Call},
    {"bar {cta} sync|arrive", Op::kNone, "", &K::Barrier},
    {"bar {cta} red popc u32", Op::kNone, "", &K::BarrierReduce},
    {"bar {cta} red and|or pred", Op::kNone, "", &K::BarrierReduce},
    {"bar warp sync", Op::kNone, "", &K::WarpSync},
    {"barrier {cta} sync|arrive {aligned}", Op::kNone, "", &K::Barrier},
    {"barrier {cta} red {aligned} popc u32", Op::kNone, "", &K::BarrierReduce},
    {"barrier {cta} red {aligned} and|or pred", Op::kNone, "", &K::BarrierReduce},

    // Barriers in shared memory. a: where; d: the state; s: a state; p: a predicate; u: a number;
    // n, N: a number, N may be missing; t: how long to wait, may be missing.
    {"mbarrier init {SHARED} b64", Op::kBarrierObject, "an", &K::Mbarrier},
    {"mbarrier inval {SHARED} b64", Op::kBarrierObject, "a", &K::Mbarrier},
    {"mbarrier arrive|arrive_drop {release} {cta} {SHARED} b64", Op::kBarrierObject, "daN",
     &K::Mbarrier},
    {"mbarrier arrive|arrive_drop noComplete {release} {cta} {SHARED} b64", Op::kBarrierObject,
     "dan", &K::Mbarrier},
    {"mbarrier test_wait {acquire} {cta} {SHARED} b64", Op::kBarrierObject, "pas", &K::Mbarrier},
    {"mbarrier test_wait parity {acquire} {cta} {SHARED} b64", Op::kBarrierObject, "pan",
     &K::Mbarrier},
    {"mbarrier try_wait {acquire} {cta} {SHARED} b64", Op::kBarrierObject, "past", &K::Mbarrier},
    {"mbarrier try_wait parity {acquire} {cta} {SHARED} b64", Op::kBarrierObject, "pant",
     &K::Mbarrier},
    {"mbarrier pending_count b64", Op::kPendingCount, "us", &K::Mbarrier},
    {"cp async mbarrier arrive {noinc} {SHARED} b64", Op::kBarrierObject, "a", &K::Mbarrier},

    // Warps.
    {"shfl {sync} up|down|bfly|idx b32", Op::kShfl, "", &K::Shfl},
    {"vote {sync} all pred", Op::kVoteAll, "", &K::Vote},
    {"vote {sync} any pred", Op::kVoteAny, "", &K::Vote},
    {"vote {sync} uni pred", Op::kVoteUni, "", &K::Vote},
    {"vote {sync} ballot b32", Op::kVoteBallot, "", &K::Vote},
    {"activemask b32", Op::kActiveMask, "", &K::ActiveMask},
    {"match any sync b32|b64", Op::kMatchAny, "", &K::Match},
    {"match all sync b32|b64", Op::kMatchAll, "", &K::Match},
    {"redux sync add|min|max W", Op::kRedux, "", &K::Redux},
    {"redux sync LOGIC b32", Op::kRedux, "", &K::Redux},
    {"elect sync", Op::kElect, "", &K::Elect},

    // Tiles.
    {"mma sync aligned m16n8k8|m16n8k16 row col f16 f16 f16 f16", Op::kMma, "", &K::Mma},
    {"mma sync aligned m16n8k8|m16n8k16 row col f32 f16 f16 f32", Op::kMma, "", &K::Mma},
    {"mma sync aligned m16n8k8|m16n8k16 row col f32 bf16 bf16 f32", Op::kMma, "", &K::Mma},
    {"mma sync aligned m16n8k4|m16n8k8 row col f32 tf32 tf32 f32", Op::kMma, "", &K::Mma},
    {"mma sync aligned m8n8k4 row col f64 f64 f64 f64", Op::kMma, "", &K::Mma},
    {"mma sync aligned m8n8k16|m16n8k16|m16n8k32 row col {satfinite} s32 s8|u8 s8|u8 s32", Op::kMma,
     "", &K::Mma},
    {"mma sync aligned m8n8k32|m16n8k32|m16n8k64 row col {satfinite} s32 s4|u4 s4|u4 s32",
     Op::kMmaBits, "", &K::MmaBits},
    {"mma sync aligned m8n8k128|m16n8k128|m16n8k256 row col s32 b1 b1 s32 xor|and popc",
     Op::kMmaBits, "", &K::MmaBits},
    {"wmma load a|b sync {aligned} row|col WMMA {WHERE} f16|bf16|s8|u8", Op::kWmmaLoad, "",
     &K::WmmaMemory},
    {"wmma load a|b sync {aligned} row|col m16n16k8 {WHERE} tf32", Op::kWmmaLoad, "",
     &K::WmmaMemory},
    {"wmma load a|b|c sync {aligned} row|col m8n8k4 {WHERE} f64", Op::kWmmaLoad, "",
     &K::WmmaMemory},
    {"wmma load c sync {aligned} row|col WMMA {WHERE} f16|f32|s32", Op::kWmmaLoad, "",
     &K::WmmaMemory},
    {"wmma load c sync {aligned} row|col m16n16k8 {WHERE} f32", Op::kWmmaLoad, "", &K::WmmaMemory},
    {"wmma store d sync {aligned} row|col WMMA {WHERE} f16|f32|s32", Op::kWmmaStore, "",
     &K::WmmaMemory},
    {"wmma store d sync {aligned} row|col m16n16k8 {WHERE} f32", Op::kWmmaStore, "",
     &K::WmmaMemory},
    {"wmma store d sync {aligned} row|col m8n8k4 {WHERE} f64", Op::kWmmaStore, "", &K::WmmaMemory},
    {"wmma mma sync {aligned} row|col row|col WMMA f16|f32 f16|f32", Op::kMma, "", &K::Mma},
    {"wmma mma sync {aligned} row|col row|col WMMA f32 bf16 bf16 f32", Op::kMma, "", &K::Mma},
    {"wmma mma sync {aligned} row|col row|col m16n16k8 f32 tf32 tf32 f32", Op::kMma, "", &K::Mma},
    {"wmma mma sync {aligned} row|col row|col WMMA {satfinite} s32 s8|u8 s8|u8 s32", Op::kMma, "",
     &K::Mma},
    {"wmma mma sync {aligned} row|col row|col m8n8k4 {rn} f64 f64 f64 f64", Op::kMma, "", &K::Mma},
    {"ldmatrix sync aligned m8n8 x1|x2|x4 {trans} {SHARED} b16", Op::kLoadMatrix, "",
     &K::MatrixMemory},
    {"stmatrix sync aligned m8n8 x1|x2|x4 {trans} {SHARED} b16", Op::kStoreMatrix, "",
     &K::MatrixMemory},
};

const std::unordered_map<std::string_view, std::vector<Form>>& KernelLowering::Forms() {
  static const std::unordered_map<std::string_view, std::vector<Form>> forms = [] {
    std::unordered_map<std::string_view, std::vector<Form>> map;
    for (const FormRow& row : kFormRows) {
      std::string_view syntax = row.syntax;
      const bool old = syntax.starts_with('~');
      if (old) syntax.remove_prefix(1);
      std::vector<std::string_view> names;
      Expand(TakeToken(&syntax), &names);
      Form form;
      form.old = old;
      form.op = row.op;
      form.operands = row.operands;
      form.lower = row.lower;
      while (!syntax.empty()) {
        std::string_view token = TakeToken(&syntax);
        Form::Slot& slot = form.slots.emplace_back();
        slot.optional = token.starts_with('{');
        if (slot.optional) token = token.substr(1, token.size() - 2);
        Expand(token, &slot.words);
        slot.types = TypeNamed(slot.words.front()) != Type::kNone;
      }
      for (const std::string_view name : names) map[name].push_back(form);
    }
    return map;
  }();
  return forms;
}

bool KnownOpcode(std::string_view name) {
  return KernelLowering::Forms().contains(name);
}

Result<const Form*> KernelLowering::FormOf(const Statement& statement) const {
  const std::vector<Form>& forms = Forms().at(statement.name);
  for (const Form& form : forms) {
    if ((!form.old || symbols_.old) && form.Takes(statement.modifiers)) return &form;
  }
  for (const std::string_view modifier : statement.modifiers) {
    const bool known = std::any_of(forms.begin(), forms.end(), [&](const Form& form) {
      return std::any_of(form.slots.begin(), form.slots.end(),
                         [&](const Form::Slot& slot) { return slot.Has(modifier); });
    });
    if (!known) return Bad("unsupported modifier " + Quoted(modifier));
  }
  return Bad("unsupported combination of modifiers and types");
}

bool Modifiers::Has(std::string_view word) const {
  return std::find(words_.begin(), words_.end(), word) != words_.end();
}

std::optional<int> Modifiers::OneOf(std::initializer_list<std::string_view> words) const {
  int index = 0;
  for (const std::string_view word : words) {
    if (Has(word)) return index;
    ++index;
  }
  return std::nullopt;
}

Type Modifiers::type(size_t index) const {
  for (const std::string_view word : words_) {
    const Type type = TypeNamed(word);
    if (type != Type::kNone && index-- == 0) return type;
  }
  return Type::kNone;
}

}  // namespace tandem::ptx
