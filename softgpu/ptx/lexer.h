// Splits PTX text into tokens. Comments and white space vanish; the views point into the text.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem::ptx {

struct Token {
  enum class Kind : uint8_t {
    kEnd,
    kName,     // add, %r1, $L__BB0_2, _param
    kDot,      // .global, .u32, .2d: text holds what follows the dot
    kInteger,  // integer holds the value
    kFloat,    // a 0d/decimal literal, or 0f (then single is set); real holds the value
    kString,
    kPunct,  // one character, in punct; or an operator of two, by the letter that the lexer gives
             // it
    kBad,
  };
  Kind kind = Kind::kEnd;
  char punct = 0;
  bool single = false;
  bool is_unsigned = false;  // an integer with the suffix U
  uint32_t line = 1;
  uint64_t integer = 0;
  double real = 0;
  std::string_view text;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token Next();
  // Drops everything up to the end of the line (.loc, .file).
  void SkipLine();

 private:
  bool SkipSpace();
  Token Number(Token token);

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
};

}  // namespace tandem::ptx
