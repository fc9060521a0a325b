#include <algorithm>
#include <string>
#include <utility>

#include "src/softgpu/ptx/lexer.h"
#include "src/softgpu/ptx/syntax.h"

namespace tandem::ptx {
namespace {

using Kind = Token::Kind;

constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 40;
constexpr size_t kMaxInitializers = size_t{1} << 26;

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { Advance(); }

  Result<Module> Run();

 private:
  void Advance() { token_ = lexer_.Next(); }
  bool Is(char punct) const { return token_.kind == Kind::kPunct && token_.punct == punct; }
  bool IsDot(std::string_view text) const {
    return token_.kind == Kind::kDot && token_.text == text;
  }
  bool Accept(char punct) {
    if (!Is(punct)) return false;
    Advance();
    return true;
  }
  Status Expect(char punct);
  Error Bad(const std::string& what) const;
  Result<uint64_t> Integer();
  Result<std::string_view> Name();

  Status ModuleItem(Module* module);
  Status Header(std::string_view directive);
  Status SkipSection();
  Status ParseFunction(Module* module, bool entry);
  Status FunctionDirectives(Function* function);
  Status Formals(std::vector<Declaration>* formals);
  Status Body(Function* function);
  Status BodyItem(Function* function);
  Status Directive(Function* function);
  Status Declare(bool is_extern, std::vector<Declaration>* out);
  Status DeclarationPrefix(Declaration* declaration);
  Status Declarator(Declaration* declaration);
  Status Initialize(Declaration* declaration);
  Result<Initializer> InitialValue(const Declaration& declaration);
  Status ParseInstruction(Function* function);
  Result<Operand> ParseOperand();
  Result<Operand> SimpleOperand();
  Result<Operand> Address();
  Result<Operand> Sequence(Operand::Kind kind, char close);

  Lexer lexer_;
  Token token_;
};

Error Parser::Bad(const std::string& what) const {
  std::string near = token_.kind == Kind::kEnd ? "the end of the text"
                                               : "'" + std::string(token_.text.substr(0, 40)) + "'";
  for (char& c : near) {
    if (c < 32 || c > 126) c = '?';
  }
  return SyntaxError(token_.line, what + " near " + near);
}

Status Parser::Expect(char punct) {
  if (Accept(punct)) return {};
  return Bad(std::string("expected '") + punct + "'");
}

Result<uint64_t> Parser::Integer() {
  const bool negative = Accept('-');
  if (token_.kind != Kind::kInteger) return Bad("expected a number");
  const uint64_t value = token_.integer;
  Advance();
  return negative ? uint64_t{0} - value : value;
}

Result<std::string_view> Parser::Name() {
  if (token_.kind != Kind::kName) return Bad("expected a name");
  const std::string_view name = token_.text;
  Advance();
  return name;
}

Result<Module> Parser::Run() {
  Module module;
  bool versioned = false;
  while (token_.kind != Kind::kEnd) {
    if (token_.kind == Kind::kDot && token_.text == "version") versioned = true;
    if (!versioned) return Bad("a module begins with .version");
    TRY(ModuleItem(&module));
  }
  if (!versioned) return Bad("a module begins with .version");
  return module;
}

Status Parser::ModuleItem(Module* module) {
  if (Accept(';')) return {};
  if (Is('@')) {  // @@DWARF
    lexer_.SkipLine();
    Advance();
    return {};
  }
  bool is_extern = false;
  while (IsDot("visible") || IsDot("extern") || IsDot("weak") || IsDot("common")) {
    is_extern |= IsDot("extern");
    Advance();
  }
  if (token_.kind != Kind::kDot) return Bad("expected a directive");
  const std::string_view directive = token_.text;
  if (directive == "entry" || directive == "func") {
    Advance();
    return ParseFunction(module, directive == "entry");
  }
  if (directive == "global" || directive == "const" || directive == "shared") {
    return Declare(is_extern, &module->variables);
  }
  return Header(directive);
}

Status Parser::Header(std::string_view directive) {
  const Token start = token_;
  if (directive == "file" || directive == "loc") {
    lexer_.SkipLine();
    Advance();
    return {};
  }
  Advance();
  if (directive == "section") return SkipSection();
  if (directive == "pragma") {
    while (token_.kind == Kind::kString || Is(',')) Advance();
    return Expect(';');
  }
  if (directive == "version") {
    // The lexer reads 7.5 as a decimal literal.
    if (token_.kind != Kind::kFloat || token_.real < 1.0 || token_.real >= 9.0) {
      return Bad(".version must be 1.0 to 8.x");
    }
    Advance();
    return {};
  }
  if (directive == "target") {
    do {
      TRY(Name());
    } while (Accept(','));
    return {};
  }
  if (directive == "address_size") {
    ASSIGN_OR_RETURN(const uint64_t bits, Integer());
    if (bits == 64) return {};
    return SyntaxError(start.line, "only .address_size 64 is supported");
  }
  return SyntaxError(start.line,
                     "unknown directive '." + std::string(directive.substr(0, 40)) + "'");
}

Status Parser::SkipSection() {
  while (!Is('{') && token_.kind != Kind::kEnd) Advance();
  uint64_t depth = 0;
  do {
    if (token_.kind == Kind::kEnd) return Bad("unterminated .section");
    if (Is('{')) ++depth;
    if (Is('}')) --depth;
    Advance();
  } while (depth != 0);
  return {};
}

Status Parser::ParseFunction(Module* module, bool entry) {
  Function function;
  function.entry = entry;
  function.line = token_.line;
  if (!entry && Is('(')) TRY(Formals(&function.results));
  ASSIGN_OR_RETURN(function.name, Name());
  if (Is('(')) TRY(Formals(&function.params));
  TRY(FunctionDirectives(&function));
  if (Is('{')) {
    TRY(Body(&function));
    function.has_body = true;
  } else {
    TRY(Expect(';'));
  }
  module->functions.push_back(std::move(function));
  return {};
}

Status Parser::FunctionDirectives(Function* function) {
  while (token_.kind == Kind::kDot) {
    const std::string_view directive = token_.text;
    Advance();
    if (directive == "noreturn") continue;
    if (directive == "pragma") {
      while (token_.kind == Kind::kString || Is(',')) Advance();
      TRY(Expect(';'));
      continue;
    }
    const bool threads = directive == "maxntid" || directive == "reqntid";
    if (!threads && directive != "minnctapersm" && directive != "maxnreg" &&
        directive != "maxnctapersm") {
      return Bad("unknown directive '." + std::string(directive.substr(0, 40)) + "'");
    }
    uint64_t product = 1;
    do {
      ASSIGN_OR_RETURN(const uint64_t value, Integer());
      if (value == 0 || value > 65536) return Bad("a value out of range");
      product = std::min<uint64_t>(product * value, 65536);
    } while (Accept(','));
    if (threads) function->max_threads = static_cast<uint32_t>(std::min<uint64_t>(product, 1024));
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

Status Parser::Body(Function* function) {
  uint64_t depth = 0;
  do {
    if (token_.kind == Kind::kEnd) return Bad("'}' is missing");
    if (Is('{') || Is('}')) {
      const bool open = Is('{');
      depth += open ? 1 : -1;
      Statement mark;
      mark.kind = open ? Statement::Kind::kOpen : Statement::Kind::kClose;
      mark.line = token_.line;
      function->body.push_back(std::move(mark));
      Advance();
    } else {
      TRY(BodyItem(function));
    }
  } while (depth != 0);
  return {};
}

Status Parser::BodyItem(Function* function) {
  if (Accept(';')) return {};
  if (token_.kind == Kind::kDot) return Directive(function);
  return ParseInstruction(function);
}

Status Parser::Directive(Function* function) {
  const std::string_view directive = token_.text;
  const bool declares = directive == "reg" || directive == "local" || directive == "shared" ||
                        directive == "param" || directive == "global" || directive == "const";
  if (!declares) return Header(directive);
  Statement statement;
  statement.kind = Statement::Kind::kDeclare;
  statement.line = token_.line;
  TRY(Declare(false, &statement.declarations));
  function->body.push_back(std::move(statement));
  return {};
}

Status Parser::Declare(bool is_extern, std::vector<Declaration>* out) {
  Declaration prefix;
  TRY(DeclarationPrefix(&prefix));
  prefix.is_extern = is_extern;
  do {
    Declaration one = prefix;
    TRY(Declarator(&one));
    if (Accept('=')) TRY(Initialize(&one));
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

// name, name<count>, name[2][3], name[]
Status Parser::Declarator(Declaration* declaration) {
  declaration->line = token_.line;
  ASSIGN_OR_RETURN(declaration->name, Name());
  if (Accept('<')) {
    ASSIGN_OR_RETURN(declaration->range, Integer());
    if (declaration->space != Declaration::Space::kRegister || declaration->range == 0 ||
        declaration->range > UINT32_MAX) {
      return Bad("a bad register range");
    }
    return Expect('>');
  }
  while (Accept('[')) {
    uint64_t count = 0;
    if (!Is(']')) {
      ASSIGN_OR_RETURN(count, Integer());
      if (count > kMaxVariableBytes) return Bad("an array that large is not supported");
    }
    declaration->bytes *= count;
    if (declaration->bytes > kMaxVariableBytes) {
      return Bad("an array that large is not supported");
    }
    TRY(Expect(']'));
  }
  return {};
}

Status Parser::Initialize(Declaration* declaration) {
  uint64_t depth = 0;
  do {
    if (Accept('{')) {
      ++depth;
    } else if (Accept('}')) {
      if (depth == 0) return Bad("unbalanced '}'");
      --depth;
      Accept(',');
      if (depth == 0) break;
    } else {
      ASSIGN_OR_RETURN(Initializer value, InitialValue(*declaration));
      declaration->init.push_back(value);
      if (declaration->init.size() > kMaxInitializers) return Bad("too many initial values");
      if (depth != 0 && !Is('}')) TRY(Expect(','));
    }
  } while (depth != 0);
  const uint64_t given = declaration->init.size() * declaration->element_bytes;
  if (declaration->bytes == 0) declaration->bytes = given;
  if (given > declaration->bytes) return Bad("more initial values than elements");
  return {};
}

Result<Initializer> Parser::InitialValue(const Declaration& declaration) {
  Initializer result;
  if (token_.kind == Kind::kName) {
    ASSIGN_OR_RETURN(std::string_view name, Name());
    const bool wrapped = name == "generic" && Accept('(');
    if (wrapped) {
      ASSIGN_OR_RETURN(name, Name());
      TRY(Expect(')'));
    }
    result.symbol = name;
    if (Accept('+')) {
      ASSIGN_OR_RETURN(result.value, Integer());
    }
    if (declaration.element_bytes != 8) return Bad("an address needs 8 bytes");
    return result;
  }
  ASSIGN_OR_RETURN(const Operand number, SimpleOperand());
  result.value = number.integer;
  const bool is_float = number.kind == Operand::Kind::kFloat;
  if (declaration.type == Type::kF32 && is_float) {
    const float value = static_cast<float>(number.real);
    result.value = number.single ? number.integer : __builtin_bit_cast(uint32_t, value);
  } else if (declaration.type == Type::kF64 && is_float) {
    result.value = __builtin_bit_cast(uint64_t, number.real);
  } else if (is_float && !number.single) {
    return Bad("a float cannot initialize this type");
  }
  return result;
}

Status Parser::ParseInstruction(Function* function) {
  Statement statement;
  statement.line = token_.line;
  if (Accept('@')) {
    statement.guard_negated = Accept('!');
    ASSIGN_OR_RETURN(statement.guard, Name());
    statement.line = token_.line;
  }
  ASSIGN_OR_RETURN(statement.name, Name());
  if (statement.guard.empty() && Accept(':')) {
    statement.kind = Statement::Kind::kLabel;
    function->body.push_back(std::move(statement));
    return {};
  }
  while (token_.kind == Kind::kDot) {
    statement.modifiers.push_back(token_.text);
    Advance();
  }
  if (!KnownOpcode(statement.name)) {
    return SyntaxError(statement.line, "unsupported instruction '" + Spell(statement) + "'");
  }
  if (!Is(';')) {
    do {
      ASSIGN_OR_RETURN(Operand operand, ParseOperand());
      statement.operands.push_back(std::move(operand));
      if (statement.operands.size() > 16) return Bad("too many operands");
    } while (Accept(','));
  }
  TRY(Expect(';'));
  function->body.push_back(std::move(statement));
  return {};
}

Result<Operand> Parser::ParseOperand() {
  if (Accept('[')) return Address();
  if (Accept('{')) return Sequence(Operand::Kind::kVector, '}');
  if (Accept('(')) return Sequence(Operand::Kind::kList, ')');
  ASSIGN_OR_RETURN(Operand first, SimpleOperand());
  if (!Accept('|')) return first;
  Operand pair;
  pair.kind = Operand::Kind::kPair;
  pair.parts.push_back(std::move(first));
  ASSIGN_OR_RETURN(Operand second, SimpleOperand());
  pair.parts.push_back(std::move(second));
  return pair;
}

// A name or a number.
Result<Operand> Parser::SimpleOperand() {
  Operand operand;
  operand.negated = Accept('!');
  const bool minus = !operand.negated && Accept('-');
  if (token_.kind == Kind::kName && !minus) {
    operand.name = token_.text;
    Advance();
    if (token_.kind == Kind::kDot) {
      operand.component = token_.text;
      Advance();
    }
    return operand;
  }
  if (operand.negated) return Bad("expected a predicate after '!'");
  if (token_.kind == Kind::kInteger) {
    operand.kind = Operand::Kind::kInteger;
    operand.integer = minus ? uint64_t{0} - token_.integer : token_.integer;
  } else if (token_.kind == Kind::kFloat) {
    operand.kind = Operand::Kind::kFloat;
    operand.single = token_.single;
    operand.real = minus ? -token_.real : token_.real;
    const uint64_t sign = uint64_t{1} << (token_.single ? 31 : 63);
    operand.integer = minus ? token_.integer ^ sign : token_.integer;
  } else {
    return Bad("expected an operand");
  }
  Advance();
  return operand;
}

Result<Operand> Parser::Address() {
  ASSIGN_OR_RETURN(Operand operand, SimpleOperand());
  if (operand.kind == Operand::Kind::kFloat || operand.negated) return Bad("a bad address");
  if (operand.kind == Operand::Kind::kInteger) operand.name = {};
  operand.kind = Operand::Kind::kAddress;
  if (Is('+') || Is('-')) {
    const bool minus = Is('-');
    if (!minus) Advance();
    ASSIGN_OR_RETURN(const uint64_t displacement, Integer());
    operand.integer += displacement;
  }
  TRY(Expect(']'));
  return operand;
}

Result<Operand> Parser::Sequence(Operand::Kind kind, char close) {
  Operand sequence;
  sequence.kind = kind;
  if (Accept(close)) return sequence;
  do {
    ASSIGN_OR_RETURN(Operand part, SimpleOperand());
    sequence.parts.push_back(std::move(part));
    if (sequence.parts.size() > 1024) return Bad("too many operands");
  } while (Accept(','));
  TRY(Expect(close));
  return sequence;
}

}  // namespace

uint32_t TypeBytes(Type type) {
  switch (type) {
    case Type::kU8:
    case Type::kS8:
      return 1;
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
      return 2;
    case Type::kU32:
    case Type::kS32:
    case Type::kF32:
      return 4;
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
    default:
      return 0;
  }
}

Type TypeNamed(std::string_view name) {
  static constexpr std::pair<std::string_view, Type> kTypes[] = {
      {"pred", Type::kPred}, {"b8", Type::kU8},   {"b16", Type::kU16}, {"b32", Type::kU32},
      {"b64", Type::kU64},   {"u8", Type::kU8},   {"u16", Type::kU16}, {"u32", Type::kU32},
      {"u64", Type::kU64},   {"s8", Type::kS8},   {"s16", Type::kS16}, {"s32", Type::kS32},
      {"s64", Type::kS64},   {"f16", Type::kF16}, {"f32", Type::kF32}, {"f64", Type::kF64}};
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

Error SyntaxError(uint32_t line, const std::string& what) {
  return Error{ErrorCode::kInvalid, "line " + std::to_string(line) + ": " + what};
}

Result<Module> Parse(std::string_view text) {
  while (!text.empty() && text.back() == '\0') text.remove_suffix(1);
  return Parser(text).Run();
}

}  // namespace tandem::ptx
