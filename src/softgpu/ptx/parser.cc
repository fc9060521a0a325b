// Modules, functions, statements and operands.
#include "src/softgpu/ptx/parser.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

namespace tandem::ptx {

using Kind = Token::Kind;

namespace {

constexpr uint64_t kMaxScopes = 256;  // names are looked for in each
constexpr size_t kMaxModifiers = 16;

}  // namespace

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
  bool versioned = false;
  while (token_.kind != Kind::kEnd) {
    if (token_.kind == Kind::kDot && token_.text == "version") versioned = true;
    if (!versioned) return Bad("a module begins with .version");
    TRY(ModuleItem(&module_));
  }
  if (!versioned) return Bad("a module begins with .version");
  return std::move(module_);
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
    if (token_.kind != Kind::kFloat || token_.real < 1.0) return Bad("a bad .version");
    if (token_.real >= 9.0) {
      return Error{ErrorCode::kVersion, "line " + std::to_string(token_.line) +
                                            ": PTX above version 8.x is not supported"};
    }
    module_.version = token_.real;
    Advance();
    return {};
  }
  if (directive == "target") return Target();
  if (directive == "address_size") {
    ASSIGN_OR_RETURN(const uint64_t bits, Integer());
    if (bits == 64) return {};
    return SyntaxError(start.line, "only .address_size 64 is supported");
  }
  return SyntaxError(start.line, "unknown directive " + Quoted(directive));
}

// sm_86, debug: the capability, which whoever loads the module judges, and how it is to be read.
Status Parser::Target() {
  do {
    ASSIGN_OR_RETURN(const std::string_view name, Name());
    if (name == "map_f64_to_f32") {
      module_.maps_f64 = true;
    } else if (name.starts_with("sm_") || name.starts_with("compute_")) {
      const std::string_view number = name.substr(name.find('_') + 1);
      const char* const end = number.data() + number.size();
      if (std::from_chars(number.data(), end, module_.target).ec != std::errc()) {
        return Bad("a bad .target");
      }
    } else if (name != "debug" && name != "texmode_unified" && name != "texmode_independent") {
      return Bad("unknown .target " + Quoted(name));
    }
  } while (Accept(','));
  return {};
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
      return Bad("unknown directive " + Quoted(directive));
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

Status Parser::Body(Function* function) {
  uint64_t depth = 0;
  do {
    if (token_.kind == Kind::kEnd) return Bad("'}' is missing");
    if (Is('{') || Is('}')) {
      const bool open = Is('{');
      if (open && depth == kMaxScopes) return Bad("blocks nest too deeply");
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
    if (IsDot("branchtargets")) {
      Advance();
      statement.kind = Statement::Kind::kTargets;
      do {
        ASSIGN_OR_RETURN(Operand target, SimpleOperand());
        statement.operands.push_back(std::move(target));
      } while (Accept(','));
      TRY(Expect(';'));
    }
    function->body.push_back(std::move(statement));
    return {};
  }
  while (token_.kind == Kind::kDot) {
    statement.modifiers.push_back(token_.text);
    if (statement.modifiers.size() > kMaxModifiers) return Bad("too many modifiers");
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

Result<Module> Parse(std::string_view text) {
  while (!text.empty() && text.back() == '\0') text.remove_suffix(1);
  return Parser(text).Run();
}

}  // namespace tandem::ptx
