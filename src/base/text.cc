#include "src/base/text.h"

#include <algorithm>

namespace tandem {
namespace {

// Length of the UTF-8 sequence `text` begins with; 0 if it is none.
size_t SequenceLength(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  return length;
}

// Characters that move the cursor or turn the writing direction rather than print.
bool IsControl(std::string_view sequence) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  if (sequence.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  if (sequence.size() == 2) return byte(0) == 0xc2 && byte(1) < 0xa0;  // U+0080 to U+009F
  // U+200B to U+200F, U+2028 to U+202E, U+2060 to U+206F
  return sequence.size() == 3 && byte(0) == 0xe2 &&
         ((byte(1) == 0x80 &&
           ((byte(2) >= 0x8b && byte(2) <= 0x8f) || (byte(2) >= 0xa8 && byte(2) <= 0xae))) ||
          (byte(1) == 0x81 && byte(2) >= 0xa0 && byte(2) <= 0xaf));
}

}  // namespace

std::string EscapeText(std::string_view text, size_t enough) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string escaped;
  while (!text.empty() && escaped.size() < enough) {
    const size_t length = SequenceLength(text);
    const std::string_view part = text.substr(0, std::max<size_t>(length, 1));
    if (length == 0 || IsControl(part)) {
      for (const char c : part) {
        const auto byte = static_cast<unsigned char>(c);
        escaped += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      }
    } else {
      escaped += part;
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
