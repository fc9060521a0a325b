// The parser of PTX text: recursive descent over one token of lookahead, bounded in depth by the
// grammar. Used through Parse() of syntax.h, by one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "softgpu/ptx/lexer.h"
#include "softgpu/ptx/syntax.h"

namespace tandem::ptx {

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { Advance(); }

  Result<Module> Run();

 private:
  void Advance() { token_ = lexer_.Next(); }
  bool Is(char punct) const { return token_.kind == Token::Kind::kPunct && token_.punct == punct; }
  bool IsDot(std::string_view text) const {
    return token_.kind == Token::Kind::kDot && token_.text == text;
  }
  bool Accept(char punct) {
    if (!Is(punct)) return false;
    Advance();
    return true;
  }
  Status Expect(char punct);
  Error Bad(const std::string& what) const;
  // A constant expression (parser_constant.cc).
  struct Number {
    uint64_t bits = 0;
    bool is_unsigned = false;
  };
  Result<uint64_t> Integer();
  Result<uint64_t> Expression(char taken);  // the sign before it is behind us, if there was one
  Result<Number> Conditional(int depth);
  Result<Number> Binary(int strength, int depth);
  Result<Number> Unary(int depth);
  Result<std::string_view> Name();

  Status ModuleItem(Module* module);
  Status Header(std::string_view directive);
  Status Target();
  Status SkipSection();
  Status ParseFunction(Module* module, bool entry);
  Status ParseAlias(Module* module);
  Status FunctionDirectives(Function* function);
  Status Formals(std::vector<Declaration>* formals);
  Status Body(Function* function);
  Status BodyItem(Function* function);
  Status Directive(Function* function);
  Status Declare(bool is_extern, std::vector<Declaration>* out);
  Status DeclarationPrefix(Declaration* declaration);
  Status Attributes(Declaration* declaration);
  Status Declarator(Declaration* declaration);
  Status Initialize(Declaration* declaration);
  Result<Initializer> InitialValue(const Declaration& declaration);
  Status AddressValue(Initializer* value);
  Status ParseInstruction(Function* function);
  Status ParseLabel(Statement* statement);
  Status ParsePrototype(Statement* statement);
  Result<Operand> ParseOperand(bool lists);
  Result<Operand> SimpleOperand();
  Result<Operand> Address();
  Result<Operand> Sequence(Operand::Kind kind, char close);

  Module module_;
  Lexer lexer_;
  Token token_;
  char taken_ = 0;
};

}  // namespace tandem::ptx
