// Modules, functions, statements and operands.
#include "softgpu/ptx/parser.h"

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
  if (directive == "alias") return ParseAlias(module);
  return Header(directive);
}

// .alias name, function;
Status Parser::ParseAlias(Module* module) {
  Alias alias;
  alias.line = token_.line;
  Advance();
  ASSIGN_OR_RETURN(alias.name, Name());
  TRY(Expect(','));
  ASSIGN_OR_RETURN(alias.function, Name());
  module->aliases.push_back(alias);
  return Expect(';');
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
    if (token_.real >= 10.0) {
      return Error{ErrorCode::kVersion, "line " + std::to_string(token_.line) +
                                            ": PTX above version 9.x is not supported"};
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

// sm_86, debug: the capability, which the loader of the module judges, and how it is to be read.
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
    uint32_t extents[3] = {1, 1, 1};
    int count = 0;
    do {
      ASSIGN_OR_RETURN(const uint64_t value, Integer());
      if (value == 0 || value > 65536) return Bad("a value out of range");
      product = std::min<uint64_t>(product * value, 65536);
      if (count == 3) return Bad("more than three extents");
      extents[count++] = static_cast<uint32_t>(value);
    } while (Accept(','));
    if (directive == "reqntid") std::copy_n(extents, 3, function->required_block);
    if (threads) function->max_threads = static_cast<uint32_t>(std::min<uint64_t>(product, 1024));
    if (directive == "maxnreg") function->max_registers = static_cast<uint32_t>(product);
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
    TRY(ParseLabel(&statement));
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
      ASSIGN_OR_RETURN(Operand operand, ParseOperand(statement.name == "call"));
      statement.operands.push_back(std::move(operand));
      if (statement.operands.size() > 16) return Bad("too many operands");
    } while (Accept(','));
  }
  TRY(Expect(';'));
  function->body.push_back(std::move(statement));
  return {};
}

// What may follow a label: the targets of indexed branches and of calls by pointer, the prototype
// of such calls.
Status Parser::ParseLabel(Statement* statement) {
  statement->kind = Statement::Kind::kLabel;
  if (IsDot("callprototype")) return ParsePrototype(statement);
  const bool branches = IsDot("branchtargets");
  if (!branches && !IsDot("calltargets")) return {};
  Advance();
  statement->kind = branches ? Statement::Kind::kTargets : Statement::Kind::kCallTargets;
  do {
    ASSIGN_OR_RETURN(Operand target, SimpleOperand());
    statement->operands.push_back(std::move(target));
  } while (Accept(','));
  return Expect(';');
}

// .callprototype (results) _ (parameters) .noreturn;
Status Parser::ParsePrototype(Statement* statement) {
  Advance();
  statement->kind = Statement::Kind::kPrototype;
  if (Is('(')) TRY(Formals(&statement->results));
  ASSIGN_OR_RETURN(const std::string_view name, Name());
  if (name != "_") return Bad("expected '_'");
  if (Is('(')) TRY(Formals(&statement->declarations));
  if (IsDot("noreturn")) Advance();
  return Expect(';');
}

// `lists`: a parenthesis opens a list of arguments, not an expression.
Result<Operand> Parser::ParseOperand(bool lists) {
  if (Accept('[')) return Address();
  if (Accept('{')) return Sequence(Operand::Kind::kVector, '}');
  if (lists && Accept('(')) return Sequence(Operand::Kind::kList, ')');
  ASSIGN_OR_RETURN(Operand first, SimpleOperand());
  if (first.kind == Operand::Kind::kName && (Is('+') || Is('['))) {
    // The address of a variable, or of an array's element.
    first.kind = Operand::Kind::kPlace;
    first.indexed = Accept('[');
    ASSIGN_OR_RETURN(first.integer, Integer());
    if (first.indexed) TRY(Expect(']'));
    return first;
  }
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
  const bool minus = Accept('-');
  const bool exclamation = !minus && Accept('!');
  if (token_.kind == Kind::kName && token_.text != "WARP_SZ") {
    if (minus) return Bad("expected a number after '-'");
    operand.negated = exclamation;
    operand.name = token_.text;
    Advance();
    if (token_.kind == Kind::kDot) {
      operand.component = token_.text;
      Advance();
    }
    return operand;
  }
  if (token_.kind == Kind::kFloat && !exclamation) {
    operand.kind = Operand::Kind::kFloat;
    operand.single = token_.single;
    operand.real = minus ? -token_.real : token_.real;
    const uint64_t sign = uint64_t{1} << (token_.single ? 31 : 63);
    operand.integer = minus ? token_.integer ^ sign : token_.integer;
    Advance();
    return operand;
  }
  operand.kind = Operand::Kind::kInteger;
  ASSIGN_OR_RETURN(operand.integer, Expression(minus ? '-' : exclamation ? '!' : 0));
  return operand;
}

Result<Operand> Parser::Address() {
  ASSIGN_OR_RETURN(Operand operand, SimpleOperand());
  if (operand.kind == Operand::Kind::kFloat || operand.negated) return Bad("a bad address");
  const bool named = operand.kind == Operand::Kind::kName;
  operand.kind = Operand::Kind::kAddress;
  if (named && (Is('+') || Is('-'))) {
    const bool minus = Is('-');
    if (!minus) Advance();
    ASSIGN_OR_RETURN(operand.integer, Integer());
  }
  while (Accept(',')) {  // a texture's coordinates
    ASSIGN_OR_RETURN(Operand part,
                     Accept('{') ? Sequence(Operand::Kind::kVector, '}') : SimpleOperand());
    operand.parts.push_back(std::move(part));
    if (operand.parts.size() > 2) return Bad("too many operands");
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
