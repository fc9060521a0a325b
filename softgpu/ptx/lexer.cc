#include "softgpu/ptx/lexer.h"

#include <charconv>
#include <cstring>

namespace tandem::ptx {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) || c == '_' || c == '$';
}
bool IsNameStart(char c) {
  return (IsWord(c) && !IsDigit(c)) || c == '%';
}

int DigitValue(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// Operators of two characters, and the letters that name them.
struct LongToken {
  std::string_view text;
  char letter;
};
constexpr LongToken kLongTokens[] = {{"<<", 'L'}, {">>", 'R'}, {"<=", 'l'}, {">=", 'g'},
                                     {"==", 'e'}, {"!=", 'n'}, {"&&", 'a'}, {"||", 'o'}};

// All of `digits` in `base`, modulo nothing: false when it does not fit or is malformed.
bool ParseInteger(std::string_view digits, int base, uint64_t* value) {
  if (digits.empty()) return false;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), *value, base);
  return error == std::errc() && end == digits.data() + digits.size();
}

}  // namespace

// Returns false inside an unterminated comment.
bool Lexer::SkipSpace() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') ++line_;
    if (c == '\n' || c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (text_.substr(at_, 2) == "/*") {
      const size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) return false;
      for (; at_ < end + 2; ++at_) line_ += text_[at_] == '\n';
    } else {
      break;
    }
  }
  return true;
}

void Lexer::SkipLine() {
  while (at_ < text_.size() && text_[at_] != '\n') ++at_;
}

Token Lexer::Next() {
  Token token;
  const bool good = SkipSpace();
  token.line = line_;
  if (!good) {
    token.kind = Token::Kind::kBad;
    at_ = text_.size();
    return token;
  }
  if (at_ >= text_.size()) return token;

  const size_t start = at_;
  const char c = text_[at_];
  if (IsNameStart(c) && (c != '%' || (at_ + 1 < text_.size() && IsWord(text_[at_ + 1])))) {
    ++at_;
    while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    token.kind = Token::Kind::kName;
    token.text = text_.substr(start, at_ - start);
  } else if (IsDigit(c)) {
    return Number(token);
  } else if (c == '.' && at_ + 1 < text_.size() && IsWord(text_[at_ + 1])) {
    ++at_;
    while (at_ < text_.size() &&
           (IsWord(text_[at_]) || (text_.substr(at_, 2) == "::" && at_ + 2 < text_.size()))) {
      at_ += text_[at_] == ':' ? 2 : 1;
    }
    token.kind = Token::Kind::kDot;
    token.text = text_.substr(start + 1, at_ - start - 1);
  } else if (c == '"') {
    const size_t end = text_.find('"', at_ + 1);
    token.kind = end == std::string_view::npos ? Token::Kind::kBad : Token::Kind::kString;
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
    token.text = text_.substr(start, at_ - start);
    for (const char inside : token.text) line_ += inside == '\n';
  } else {
    ++at_;
    token.kind = std::strchr("{}()[]<>,;:@!|=+-*/%&^~?", c) != nullptr && c != 0
                     ? Token::Kind::kPunct
                     : Token::Kind::kBad;
    token.punct = c;
    token.text = text_.substr(start, 1);
    for (const LongToken& op : kLongTokens) {
      if (text_.substr(start, 2) != op.text) continue;
      token.punct = op.letter;
      token.text = op.text;
      at_ = start + 2;
    }
  }
  return token;
}

Token Lexer::Number(Token token) {
  const size_t start = at_;
  const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : 0;
  token.kind = Token::Kind::kBad;
  while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
  std::string_view word = text_.substr(start, at_ - start);
  token.text = word;

  if (word[0] == '0' && (next == 'f' || next == 'F' || next == 'd' || next == 'D')) {
    const bool single = next == 'f' || next == 'F';
    uint64_t bits = 0;
    if (word.size() != (single ? 10u : 18u) || !ParseInteger(word.substr(2), 16, &bits)) {
      return token;
    }
    token.kind = Token::Kind::kFloat;
    token.single = single;
    token.integer = bits;  // kept exactly: a NaN's payload would not survive a conversion
    if (single) {
      const uint32_t low = static_cast<uint32_t>(bits);
      float value;
      std::memcpy(&value, &low, sizeof value);
      token.real = value;
    } else {
      std::memcpy(&token.real, &bits, sizeof token.real);
    }
    return token;
  }

  // A decimal literal: digits, a point, an exponent.
  bool decimal = true;
  for (const char c : word) decimal &= IsDigit(c) || c == 'e' || c == 'E';
  const bool point = at_ + 1 < text_.size() && text_[at_] == '.' && IsDigit(text_[at_ + 1]);
  const bool exponent = word.find_first_of("eE") != std::string_view::npos;
  if (decimal && (point || exponent)) {
    if (point) {
      ++at_;
      while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    }
    const char last = text_[at_ - 1];
    if ((last == 'e' || last == 'E') && at_ < text_.size() &&
        (text_[at_] == '+' || text_[at_] == '-')) {
      ++at_;
      while (at_ < text_.size() && IsDigit(text_[at_])) ++at_;
    }
    token.text = text_.substr(start, at_ - start);
    const auto [end, error] =
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), token.real);
    if (error == std::errc() && end == token.text.data() + token.text.size()) {
      token.kind = Token::Kind::kFloat;
      std::memcpy(&token.integer, &token.real, sizeof token.integer);
    }
    return token;
  }

  if (word.back() == 'U') {
    token.is_unsigned = true;
    word.remove_suffix(1);
  }
  int base = 10;
  if (word.size() > 1 && word[0] == '0') {
    const char mark = word[1];
    base = mark == 'x' || mark == 'X' ? 16 : mark == 'b' || mark == 'B' ? 2 : 8;
    word.remove_prefix(base == 8 ? 1 : 2);
  }
  if (!word.empty() && DigitValue(word[0]) < base && ParseInteger(word, base, &token.integer)) {
    token.kind = Token::Kind::kInteger;
  }
  return token;
}

}  // namespace tandem::ptx
