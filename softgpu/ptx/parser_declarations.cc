// Declarations: of variables, registers and parameters, with their types, sizes and initial values.
#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "softgpu/ptx/parser.h"

namespace tandem::ptx {
namespace {

using Kind = Token::Kind;

constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 40;
constexpr size_t kMaxInitializers = size_t{1} << 26;
constexpr size_t kMaxDimensions = 64;  // each brace of an initial value looks at all of them

// The elements that a pair of braces holds inside `depth` others; 0 for an array without a size.
uint64_t Span(const std::vector<uint64_t>& counts, size_t depth) {
  uint64_t span = 1;
  for (size_t i = depth; i < counts.size(); ++i) span *= counts[i];
  return span;
}

}  // namespace

Status Parser::Declare(bool is_extern, std::vector<Declaration>* out) {
  Declaration prefix;
  TRY(DeclarationPrefix(&prefix));
  prefix.is_extern = is_extern;
  do {
    Declaration one = prefix;
    TRY(Declarator(&one));
    if (Accept('=')) {
      if (one.space != Declaration::Space::kGlobal && one.space != Declaration::Space::kConst) {
        return Bad("only a .global or .const variable has an initial value");
      }
      TRY(Initialize(&one));
    }
    out->push_back(std::move(one));
  } while (Accept(','));
  return Expect(';');
}

// .global .align 4 .v2 .f32, and for kernel parameters .ptr .global .align 16.
Status Parser::DeclarationPrefix(Declaration* declaration) {
  using Space = Declaration::Space;
  static constexpr std::pair<std::string_view, Space> kSpaces[] = {
      {"reg", Space::kRegister},  {"global", Space::kGlobal}, {"const", Space::kConst},
      {"shared", Space::kShared}, {"local", Space::kLocal},   {"param", Space::kParam}};
  declaration->line = token_.line;
  const auto* space = std::find_if(std::begin(kSpaces), std::end(kSpaces), [&](const auto& entry) {
    return token_.kind == Kind::kDot && token_.text == entry.first;
  });
  if (space == std::end(kSpaces)) return Bad("expected a state space");
  declaration->space = space->second;
  Advance();

  uint32_t elements = 1;
  bool pointer = false;
  while (token_.kind == Kind::kDot) {
    const std::string_view word = token_.text;
    Advance();
    if (word == "align") {
      ASSIGN_OR_RETURN(const uint64_t align, Integer());
      if (align == 0 || align > 4096 || (align & (align - 1)) != 0) return Bad("a bad .align");
      if (!pointer) declaration->align = static_cast<uint32_t>(align);
    } else if (word == "attribute") {
      TRY(Attributes(declaration));
    } else if (word == "ptr") {
      pointer = true;
    } else if (pointer &&
               (word == "global" || word == "shared" || word == "const" || word == "local")) {
      continue;
    } else if (word == "v2" || word == "v4") {
      elements = word == "v2" ? 2 : 4;
    } else if (word == "texref" || word == "samplerref" || word == "surfref") {
      // A handle; the instructions that would use it are refused where they stand.
      declaration->type = Type::kU64;
    } else if (const Type type = TypeNamed(word); type != Type::kNone) {
      declaration->type = type;
    } else {
      return Bad("unsupported type '." + std::string(word.substr(0, 40)) + "'");
    }
  }
  if (declaration->type == Type::kNone) return Bad("a type is missing");
  if (declaration->space == Space::kRegister && elements != 1) {
    return Bad("vector registers are not supported");
  }
  if (declaration->type == Type::kPred && declaration->space != Space::kRegister) {
    return Bad("a predicate must be a register");
  }
  declaration->element_bytes = TypeBytes(declaration->type);
  declaration->bytes = uint64_t{declaration->element_bytes} * elements;
  declaration->align = std::max(declaration->align, static_cast<uint32_t>(declaration->bytes));
  return {};
}

// .attribute(.managed)
Status Parser::Attributes(Declaration* declaration) {
  TRY(Expect('('));
  if (!IsDot("managed") || declaration->space != Declaration::Space::kGlobal) {
    return Bad("unsupported attribute");
  }
  Advance();
  declaration->managed = true;
  return Expect(')');
}

// name, name<count>, name[2][3], name[]
Status Parser::Declarator(Declaration* declaration) {
  declaration->line = token_.line;
  ASSIGN_OR_RETURN(declaration->name, Name());
  if (Accept('<')) {
    ASSIGN_OR_RETURN(const Number count, Unary(0));  // '>' is no operator here
    declaration->range = count.bits;
    if (declaration->space != Declaration::Space::kRegister || declaration->range == 0 ||
        declaration->range > UINT32_MAX) {
      return Bad("a bad register range");
    }
    return Expect('>');
  }
  if (declaration->space == Declaration::Space::kRegister) return {};
  const uint32_t whole = static_cast<uint32_t>(declaration->bytes);
  const uint64_t elements = whole / declaration->element_bytes;
  uint64_t bytes = declaration->bytes;  // as if every dimension had a size
  while (Accept('[')) {
    uint64_t count = 0;
    if (!Is(']')) {
      ASSIGN_OR_RETURN(count, Integer());
    }
    if (count > kMaxVariableBytes / bytes) return Bad("an array that large is not supported");
    bytes *= std::max<uint64_t>(count, 1);
    if (count == 0) declaration->bytes = 0;
    declaration->counts.push_back(count);
    if (declaration->counts.size() > kMaxDimensions) return Bad("too many dimensions");
    TRY(Expect(']'));
  }
  declaration->index_bytes = declaration->counts.size() > 1 ? 0 : whole;
  if (declaration->bytes != 0) declaration->bytes = bytes;
  if (elements > 1) declaration->counts.push_back(elements);
  return {};
}

// { {1, 2}, {3} }: what a pair of braces leaves out is zero.
Status Parser::Initialize(Declaration* declaration) {
  struct Brace {
    uint64_t start, end;  // the elements inside
  };
  const std::vector<uint64_t>& counts = declaration->counts;
  std::vector<Brace> open;
  uint64_t at = 0;
  do {
    const uint64_t end = open.empty() ? 1 : open.back().end;
    if (Accept('{')) {
      if (open.size() > 0 && open.size() >= counts.size()) return Bad("too many braces");
      uint64_t span = Span(counts, open.size());
      if (open.empty()) {
        if (span == 0) span = kMaxVariableBytes;
      } else if (at >= end || span == 0 || (at - open.back().start) % span != 0) {
        return Bad("a brace where no row begins");
      }
      open.push_back({at, at + span});
    } else if (Accept('}')) {
      if (open.empty()) return Bad("unbalanced '}'");
      if (open.size() > 1) at = end;
      open.pop_back();
      if (!open.empty()) Accept(',');
    } else {
      if (at >= end) return Bad("more initial values than elements");
      ASSIGN_OR_RETURN(Initializer value, InitialValue(*declaration));
      value.index = at++;
      declaration->init.push_back(value);
      if (declaration->init.size() > kMaxInitializers) return Bad("too many initial values");
      if (!open.empty() && !Is('}')) TRY(Expect(','));
    }
  } while (!open.empty());
  if (declaration->bytes != 0) return {};
  const uint64_t row = Span(counts, 1);
  if (row == 0) return Bad("an array without a size");
  declaration->bytes = RoundUp(at, row) * declaration->element_bytes;
  return {};
}

Result<Initializer> Parser::InitialValue(const Declaration& declaration) {
  static constexpr Type kHalves[] = {Type::kF16, Type::kBf16, Type::kF16x2, Type::kBf16x2};
  if (std::find(std::begin(kHalves), std::end(kHalves), declaration.type) != std::end(kHalves)) {
    return Bad("this type has no initial values");
  }
  Initializer result;
  if (token_.kind == Kind::kName && token_.text != "WARP_SZ") {
    if (declaration.element_bytes != 8) return Bad("an address needs 8 bytes");
    TRY(AddressValue(&result));
    return result;
  }
  ASSIGN_OR_RETURN(const Operand number, SimpleOperand());
  result.value = number.integer;
  const bool is_float = number.kind == Operand::Kind::kFloat;
  if (Accept('(')) {  // 0xFF00(address)
    const int shift = number.integer == 0 ? 0 : std::countr_zero(number.integer);
    if (is_float || declaration.element_bytes != 1 || number.integer != uint64_t{0xff} << shift ||
        shift % 8 != 0) {
      return Bad("a mask takes one byte of an address");
    }
    TRY(AddressValue(&result));
    result.shift = static_cast<uint8_t>(shift);
    TRY(Expect(')'));
    return result;
  }
  if (declaration.type == Type::kF32 && is_float) {
    const float value = static_cast<float>(number.real);
    result.value = number.single ? number.integer : __builtin_bit_cast(uint32_t, value);
  } else if (declaration.type == Type::kF64 && is_float) {
    result.value = __builtin_bit_cast(uint64_t, number.real);
  } else if (is_float && !(number.single && declaration.element_bytes == 4)) {
    return Bad("a float cannot initialize this type");
  } else if (!is_float && (declaration.type == Type::kF32 || declaration.type == Type::kF64)) {
    return Bad("an integer cannot initialize this type");
  }
  return result;
}

// name, name+4, generic(name)
Status Parser::AddressValue(Initializer* value) {
  ASSIGN_OR_RETURN(value->symbol, Name());
  if (value->symbol == "generic" && Accept('(')) {
    ASSIGN_OR_RETURN(value->symbol, Name());
    TRY(Expect(')'));
  }
  value->value = 0;
  if (Accept('+')) {
    ASSIGN_OR_RETURN(value->value, Integer());
  }
  return {};
}

Status Parser::Formals(std::vector<Declaration>* formals) {
  TRY(Expect('('));
  if (Accept(')')) return {};
  do {
    Declaration declaration;
    TRY(DeclarationPrefix(&declaration));
    if (declaration.space != Declaration::Space::kParam &&
        declaration.space != Declaration::Space::kRegister) {
      return Bad("a parameter is .param or .reg");
    }
    TRY(Declarator(&declaration));
    formals->push_back(std::move(declaration));
  } while (Accept(','));
  return Expect(')');
}

}  // namespace tandem::ptx
