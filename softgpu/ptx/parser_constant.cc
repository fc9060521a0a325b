// Constant expressions: whole numbers of 64 bits with the operators of C, signed until an unsigned
// one takes part.
#include <algorithm>
#include <iterator>
#include <utility>

#include "softgpu/ptx/parser.h"

namespace tandem::ptx {
namespace {

using Kind = Token::Kind;

constexpr int kMaxNesting = 64;

struct Infix {
  char punct;
  int strength;
};
// As the lexer names them: those of two characters have letters.
constexpr Infix kInfix[] = {{'o', 1}, {'a', 2}, {'|', 3}, {'^', 4},  {'&', 5},  {'e', 6},
                            {'n', 6}, {'<', 7}, {'l', 7}, {'>', 7},  {'g', 7},  {'L', 8},
                            {'R', 8}, {'+', 9}, {'-', 9}, {'*', 10}, {'/', 10}, {'%', 10}};

int64_t Signed(uint64_t value) {
  return static_cast<int64_t>(value);
}

// Less, for numbers that are signed or not.
bool Less(uint64_t a, uint64_t b, bool is_unsigned) {
  return is_unsigned ? a < b : Signed(a) < Signed(b);
}

uint64_t ShiftRight(uint64_t a, uint64_t by, bool is_unsigned) {
  const uint64_t sign = !is_unsigned && a >> 63 != 0 ? ~uint64_t{0} : 0;
  return by > 63 ? sign : by == 0 ? a : a >> by | (sign != 0 ? sign << (64 - by) : 0);
}

// b is not 0. The least number divided by -1 wraps.
uint64_t Divide(uint64_t a, uint64_t b, bool is_unsigned, bool remainder) {
  if (is_unsigned) return remainder ? a % b : a / b;
  if (Signed(b) == -1) return remainder ? 0 : uint64_t{0} - a;
  return static_cast<uint64_t>(remainder ? Signed(a) % Signed(b) : Signed(a) / Signed(b));
}

uint64_t Apply(char op, uint64_t a, uint64_t b, bool is_unsigned) {
  switch (op) {
    case 'o':
      return a != 0 || b != 0;
    case 'a':
      return a != 0 && b != 0;
    case '|':
      return a | b;
    case '^':
      return a ^ b;
    case '&':
      return a & b;
    case 'e':
      return a == b;
    case 'n':
      return a != b;
    case '<':
      return Less(a, b, is_unsigned);
    case 'l':
      return !Less(b, a, is_unsigned);
    case '>':
      return Less(b, a, is_unsigned);
    case 'g':
      return !Less(a, b, is_unsigned);
    case 'L':
      return b > 63 ? 0 : a << b;
    case 'R':
      return ShiftRight(a, b, is_unsigned);
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    default:
      return Divide(a, b, is_unsigned, op == '%');
  }
}

}  // namespace

Result<uint64_t> Parser::Integer() {
  return Expression(0);
}

Result<uint64_t> Parser::Expression(char taken) {
  taken_ = taken;
  ASSIGN_OR_RETURN(const Number value, Conditional(0));
  return value.bits;
}

Result<Parser::Number> Parser::Conditional(int depth) {
  ASSIGN_OR_RETURN(const Number condition, Binary(1, depth));
  if (!Accept('?')) return condition;
  ASSIGN_OR_RETURN(Number yes, Conditional(depth + 1));
  TRY(Expect(':'));
  ASSIGN_OR_RETURN(Number no, Conditional(depth + 1));
  Number& chosen = condition.bits != 0 ? yes : no;
  chosen.is_unsigned = yes.is_unsigned || no.is_unsigned;
  return chosen;
}

// Operands joined by operators at least that strong.
Result<Parser::Number> Parser::Binary(int strength, int depth) {
  ASSIGN_OR_RETURN(Number left, Unary(depth));
  for (;;) {
    const auto* op = std::find_if(std::begin(kInfix), std::end(kInfix),
                                  [&](const Infix& one) { return Is(one.punct); });
    if (op == std::end(kInfix) || op->strength < strength) return left;
    Advance();
    ASSIGN_OR_RETURN(const Number right, Binary(op->strength + 1, depth + 1));
    if ((op->punct == '/' || op->punct == '%') && right.bits == 0) return Bad("division by zero");
    const bool shift = op->punct == 'L' || op->punct == 'R';
    const bool either = left.is_unsigned || (right.is_unsigned && !shift);
    left.bits = Apply(op->punct, left.bits, right.bits, either);
    left.is_unsigned = either && (op->strength >= 8 || (op->strength >= 3 && op->strength <= 5));
  }
}

Result<Parser::Number> Parser::Unary(int depth) {
  if (depth > kMaxNesting) return Bad("the expression nests too deeply");
  char sign = std::exchange(taken_, char{0});
  for (const char op : {'+', '-', '!', '~'}) {
    if (sign == 0 && Accept(op)) sign = op;
  }
  if (sign != 0) {
    ASSIGN_OR_RETURN(Number value, Unary(depth + 1));
    if (sign == '-') value.bits = uint64_t{0} - value.bits;
    if (sign == '~') value.bits = ~value.bits;
    if (sign == '!') value = {value.bits == 0, false};
    return value;
  }
  if (Accept('(')) {
    if (IsDot("s64") || IsDot("u64")) {
      const bool is_unsigned = IsDot("u64");
      Advance();
      TRY(Expect(')'));
      ASSIGN_OR_RETURN(Number value, Unary(depth + 1));
      value.is_unsigned = is_unsigned;
      return value;
    }
    ASSIGN_OR_RETURN(const Number value, Conditional(depth + 1));
    TRY(Expect(')'));
    return value;
  }
  if (token_.kind == Kind::kName && token_.text == "WARP_SZ") {
    Advance();
    return Number{32, false};
  }
  if (token_.kind != Kind::kInteger) return Bad("expected a number");
  const Number value{token_.integer, token_.is_unsigned || token_.integer >> 63 != 0};
  Advance();
  return value;
}

}  // namespace tandem::ptx
