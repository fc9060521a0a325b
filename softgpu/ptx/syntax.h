// The syntax tree of a PTX module, and the parser that builds it.
//
// Bodies are flat lists of statements, scopes being marks among them, so that no input makes the
// parser recurse. The views point into the module's text, which must outlive the tree.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "softgpu/ptx/code.h"
#include "src/base/result.h"

namespace tandem::ptx {

struct Operand {
  enum class Kind : uint8_t {
    kName,     // name, perhaps with a component (%tid.x)
    kInteger,  // integer
    kFloat,    // real; where single is set, integer holds the 32 bits
    kPlace,    // name + integer; indexed: name[integer]
    kAddress,  // [name + integer] or [integer] (no name); with parts: [name, parts]
    kVector,   // {parts}
    kPair,     // parts[0] | parts[1]
    kList,     // (parts)
  };
  Kind kind = Kind::kName;
  bool negated = false;  // !name
  bool indexed = false;
  bool single = false;
  uint64_t integer = 0;
  double real = 0;
  std::string_view name;
  std::string_view component;
  std::vector<Operand> parts;
};

struct Initializer {
  std::string_view symbol;  // empty: a number
  uint64_t value = 0;       // the bits, or what is added to the symbol's address
  uint8_t shift = 0;        // of the byte that 0xFF00(symbol) takes
  uint64_t index = 0;       // of the element that gets it
};

// A .reg, .global, .const, .shared, .local or .param declaration.
struct Declaration {
  enum class Space : uint8_t { kRegister, kGlobal, kConst, kShared, kLocal, kParam };
  Space space = Space::kRegister;
  Type type = Type::kNone;
  bool is_extern = false;
  bool managed = false;
  std::string_view name;
  uint64_t range = 0;  // of %r<range>; 0: one register
  uint32_t align = 1;
  uint32_t element_bytes = 0;    // of what an initial value is for: of a vector, one part
  uint32_t index_bytes = 0;      // from a[0] to a[1]; 0 for an array of several dimensions
  uint64_t bytes = 0;            // 0 for an array without a size
  std::vector<uint64_t> counts;  // of an array's dimensions, and a vector's elements; 0: no size
  uint32_t line = 0;
  std::vector<Initializer> init;
};

struct Statement {
  enum class Kind : uint8_t {
    kInstruction,
    kLabel,
    kTargets,
    kCallTargets,
    kPrototype,  // its parameters are in declarations
    kOpen,
    kClose,
    kDeclare,
  };
  Kind kind = Kind::kInstruction;
  bool guard_negated = false;
  uint32_t line = 0;
  std::string_view name;   // opcode or label
  std::string_view guard;  // empty: none
  std::vector<std::string_view> modifiers;
  std::vector<Operand> operands;
  std::vector<Declaration> declarations;
  std::vector<Declaration> results;  // of a prototype
};

struct Function {
  std::string_view name;
  bool entry = false;
  bool has_body = false;
  uint32_t max_threads = 1024;
  uint32_t required_block[3] = {};  // .reqntid; zeros: none
  uint32_t max_registers = 0;       // zero: as many as it needs
  uint32_t line = 0;
  std::vector<Declaration> results;
  std::vector<Declaration> params;
  std::vector<Statement> body;
};

// .alias: another name for a function.
struct Alias {
  std::string_view name, function;
  uint32_t line = 0;
};

struct Module {
  double version = 0;
  uint32_t target = 0;    // the number of .target sm_NN
  bool maps_f64 = false;  // .target map_f64_to_f32
  std::vector<Declaration> variables;
  std::vector<Function> functions;
  std::vector<Alias> aliases;
};

inline constexpr uint32_t kMaxLineText = 160;

inline uint64_t RoundUp(uint64_t value, uint64_t align) {
  return (value + align - 1) / align * align;
}

// 'name', cut where it is absurdly long.
std::string Quoted(std::string_view name);
uint32_t TypeBytes(Type type);
bool IsFloat(Type type);
bool IsSigned(Type type);
// "u32" and so on; kNone when it names no type that we know.
Type TypeNamed(std::string_view name);
// Whether any instruction of that name is supported.
bool KnownOpcode(std::string_view name);
// "ld.global.u32", cut where it is absurdly long.
std::string Spell(const Statement& statement);
Error SyntaxError(uint32_t line, const std::string& what);

Result<Module> Parse(std::string_view text);

}  // namespace tandem::ptx
