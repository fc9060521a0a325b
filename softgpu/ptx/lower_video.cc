// Lowering of the video instructions: vadd, vset and the like, on a byte or a half of a register,
// and vadd2, vadd4 and the like, on all of them.
#include <algorithm>
#include <bit>
#include <iterator>

#include "softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

constexpr std::pair<std::string_view, VideoOp> kNames[] = {
    {"vadd", VideoOp::kAdd}, {"vsub", VideoOp::kSub}, {"vabsdiff", VideoOp::kAbsDiff},
    {"vmin", VideoOp::kMin}, {"vmax", VideoOp::kMax}, {"vavrg", VideoOp::kAverage},
    {"vshl", VideoOp::kShl}, {"vshr", VideoOp::kShr}, {"vset", VideoOp::kSet},
    {"vmad", VideoOp::kMad}};

Video VideoOf(std::string_view name, const Modifiers& m) {
  if (name.ends_with('2') || name.ends_with('4')) name.remove_suffix(1);
  Video video = {};
  video.op = std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& entry) {
               return entry.first == name;
             })->second;
  // vset names no type for its result, which is unsigned.
  const size_t first = video.op == VideoOp::kSet ? 0 : 1;
  video.signed_d = first == 1 && IsSigned(m.type(0));
  video.signed_a = IsSigned(m.type(first));
  video.signed_b = IsSigned(m.type(first + 1));
  video.sat = m.Has("sat");
  video.wrap = m.Has("wrap");
  video.plus_one = m.Has("po");
  video.shr7 = m.Has("shr7");
  video.shr15 = m.Has("shr15");
  if (video.op != VideoOp::kMad) {
    video.secondary = m.Has("add")   ? Secondary::kAdd
                      : m.Has("min") ? Secondary::kMin
                      : m.Has("max") ? Secondary::kMax
                                     : Secondary::kNone;
  }
  return video;
}

// b0 to b3, h0 and h1, and nothing for the whole register.
std::optional<uint8_t> PartOf(std::string_view component) {
  constexpr uint8_t kByte = 1 << 4, kHalf = 2 << 4, kWhole = 4 << 4;
  if (component.empty()) return kWhole;
  if (component.size() != 2) return std::nullopt;
  const int number = component[1] - '0';
  if (component[0] == 'b' && number >= 0 && number < 4) return static_cast<uint8_t>(kByte + number);
  if (component[0] == 'h' && (number == 0 || number == 1)) {
    return static_cast<uint8_t>(kHalf + 2 * number);
  }
  return std::nullopt;
}

// b7654, h32: which element each lane gets, the last digit for the first lane; nothing: from
// `first` on.
std::optional<uint16_t> PicksOf(std::string_view component, size_t lanes, size_t first) {
  uint16_t picks = 0;
  if (!component.empty() &&
      (component.size() != lanes + 1 || component[0] != (lanes == 4 ? 'b' : 'h'))) {
    return std::nullopt;
  }
  for (size_t lane = 0; lane < lanes; ++lane) {
    const size_t pick =
        component.empty() ? first + lane : static_cast<size_t>(component[lanes - lane] - '0');
    if (pick >= 2 * lanes) return std::nullopt;
    picks = static_cast<uint16_t>(picks | pick << (4 * lane));
  }
  return picks;
}

// b310: the lanes that get a result, the highest first; nothing: all.
std::optional<uint8_t> MaskOf(std::string_view component, size_t lanes) {
  if (component.empty()) return static_cast<uint8_t>((1 << lanes) - 1);
  if (component.size() < 2 || component[0] != (lanes == 4 ? 'b' : 'h')) return std::nullopt;
  uint8_t mask = 0;
  size_t above = lanes;
  for (const char digit : component.substr(1)) {
    const size_t lane = static_cast<size_t>(digit - '0');
    if (lane >= above) return std::nullopt;
    above = lane;
    mask = static_cast<uint8_t>(mask | 1 << lane);
  }
  return mask;
}

Compare CompareOf(const Modifiers& m) {
  return static_cast<Compare>(m.OneOf({"eq", "ne", "lt", "le", "gt", "ge"}).value_or(0));
}

Operand WithoutPart(Operand operand) {
  operand.component = {};
  return operand;
}

}  // namespace

Result<uint32_t> KernelLowering::VideoSource(const Operand& operand) {
  return Source(WithoutPart(operand), Type::kU32);
}

Status KernelLowering::VideoScalar(const Statement& s, const Modifiers& m) {
  if (s.operands.empty()) return NeedOperands(s, 3);
  Video video = VideoOf(s.name, m);
  const bool mad = video.op == VideoOp::kMad, merges = !s.operands[0].component.empty();
  const bool third = mad || merges || video.secondary != Secondary::kNone;
  TRY(NeedOperands(s, third ? 4 : 3));
  if (merges && (mad || video.secondary != Secondary::kNone)) {
    return Bad("a part of a register cannot be the target of this");
  }
  const std::optional<uint8_t> target = PartOf(s.operands[0].component),
                               a = PartOf(s.operands[1].component),
                               b = PartOf(s.operands[2].component);
  if (!target || !a || !b) return Bad("no such part of a register");
  video.target = *target;
  video.a = *a;
  video.b = *b;
  Instruction in;
  in.imm = std::bit_cast<int64_t>(video);
  in.compare = CompareOf(m);
  in.count = 1;
  ASSIGN_OR_RETURN(in.dst, Destination(WithoutPart(s.operands[0]), Type::kU32));
  ASSIGN_OR_RETURN(in.a, VideoSource(s.operands[1]));
  ASSIGN_OR_RETURN(in.b, VideoSource(s.operands[2]));
  if (third) {
    ASSIGN_OR_RETURN(in.c, Source(s.operands[3], Type::kU32));
  }
  return Emit({.op = Op::kVideo}, in);
}

Status KernelLowering::VideoVector(const Statement& s, const Modifiers& m) {
  TRY(NeedOperands(s, 4));
  Video video = VideoOf(s.name, m);
  const size_t lanes = s.name.ends_with('4') ? 4 : 2;
  const std::optional<uint8_t> mask = MaskOf(s.operands[0].component, lanes);
  const std::optional<uint16_t> a = PicksOf(s.operands[1].component, lanes, 0),
                                b = PicksOf(s.operands[2].component, lanes, lanes);
  if (!mask || !a || !b) return Bad("no such part of a register");
  video.target = *mask;
  video.a = *a;
  video.b = *b;
  Instruction in;
  in.imm = std::bit_cast<int64_t>(video);
  in.compare = CompareOf(m);
  in.count = static_cast<uint8_t>(lanes);
  ASSIGN_OR_RETURN(in.dst, Destination(WithoutPart(s.operands[0]), Type::kU32));
  ASSIGN_OR_RETURN(in.a, VideoSource(s.operands[1]));
  ASSIGN_OR_RETURN(in.b, VideoSource(s.operands[2]));
  ASSIGN_OR_RETURN(in.c, Source(s.operands[3], Type::kU32));
  return Emit({.op = Op::kVideo}, in);
}

}  // namespace tandem::ptx
