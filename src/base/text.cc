#include "src/base/text.h"

#include <algorithm>
#include <iterator>

namespace tandem {
namespace {

struct Character {
  char32_t code = 0;
  size_t length = 0;  // in bytes; 0: no UTF-8
};

// The character that `text` begins with (RFC 3629): no overlong form, no surrogate.
Character Decode(std::string_view text) {
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // with this number of bytes
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc0 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf8 ? 4
                                                        : 0;
  if (length == 0 || length > text.size()) return {};
  char32_t code = length == 1 ? first : first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0) != 0x80) return {};
    code = code << 6 | (byte & 0x3f);
  }
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[length] || code > 0x10ffff || surrogate) return {};
  return {code, length};
}

struct Range {
  char32_t first, last;
};

// Characters that move the cursor, turn the writing direction or are not seen.
constexpr Range kControls[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},       {0x61c, 0x61c},
    {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},
    {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
};
// Marks that print over the character before them.
constexpr Range kCombining[] = {
    {0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},     {0x610, 0x61a},
    {0x64b, 0x65f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},   {0x20d0, 0x20ff},
    {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef},
};
constexpr int kMostMarks = 3;  // on one character: more than any writing needs

template <size_t kSize>
bool IsIn(const Range (&ranges)[kSize], char32_t code) {
  return std::any_of(std::begin(ranges), std::end(ranges), [code](const Range& range) {
    return code >= range.first && code <= range.last;
  });
}

}  // namespace

std::string EscapeText(std::string_view text, size_t enough) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string escaped;
  int marks = 0;
  while (!text.empty() && escaped.size() < enough) {
    const Character character = Decode(text);
    marks = IsIn(kCombining, character.code) ? marks + 1 : 0;
    const std::string_view part = text.substr(0, std::max<size_t>(character.length, 1));
    const bool shown =
        character.length != 0 && !IsIn(kControls, character.code) && marks <= kMostMarks;
    if (shown) {
      escaped += part;
    } else {
      for (const char c : part) {
        const auto byte = static_cast<unsigned char>(c);
        escaped += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      }
    }
    text.remove_prefix(part.size());
  }
  return escaped;
}

std::string Ordinal(uint64_t number) {
  const uint64_t last = number / 10 % 10 == 1 ? 0 : number % 10;
  const char* const ending = last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th";
  return std::to_string(number) + ending;
}

}  // namespace tandem
