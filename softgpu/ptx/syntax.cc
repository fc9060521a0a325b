#include "softgpu/ptx/syntax.h"

#include <string>
#include <utility>

namespace tandem::ptx {

uint32_t TypeBytes(Type type) {
  switch (type) {
    case Type::kU8:
    case Type::kS8:
      return 1;
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16:
      return 2;
    case Type::kU32:
    case Type::kS32:
    case Type::kF32:
    case Type::kF16x2:
    case Type::kBf16x2:
    case Type::kTf32:
      return 4;
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
    default:
      return 0;
  }
}

bool IsFloat(Type type) {
  return type >= Type::kF16;
}

bool IsSigned(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

Type TypeNamed(std::string_view name) {
  static constexpr std::pair<std::string_view, Type> kTypes[] = {
      {"pred", Type::kPred},     {"b8", Type::kU8},     {"b16", Type::kU16},
      {"b32", Type::kU32},       {"b64", Type::kU64},   {"u8", Type::kU8},
      {"u16", Type::kU16},       {"u32", Type::kU32},   {"u64", Type::kU64},
      {"s8", Type::kS8},         {"s16", Type::kS16},   {"s32", Type::kS32},
      {"s64", Type::kS64},       {"f16", Type::kF16},   {"f32", Type::kF32},
      {"f64", Type::kF64},       {"bf16", Type::kBf16}, {"f16x2", Type::kF16x2},
      {"bf16x2", Type::kBf16x2}, {"tf32", Type::kTf32}};
  for (const auto& [text, type] : kTypes) {
    if (text == name) return type;
  }
  return Type::kNone;
}

std::string Spell(const Statement& statement) {
  std::string text(statement.name);
  for (const std::string_view modifier : statement.modifiers) {
    if (text.size() > kMaxLineText) break;
    text += "." + std::string(modifier);
  }
  return text.substr(0, kMaxLineText);
}

std::string Quoted(std::string_view name) {
  return "'" + std::string(name.substr(0, 40)) + "'";
}

Error SyntaxError(uint32_t line, const std::string& what) {
  return Error{ErrorCode::kInvalid, "line " + std::to_string(line) + ": " + what};
}

}  // namespace tandem::ptx
