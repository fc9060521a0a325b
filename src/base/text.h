// Text that other people chose (names of programs, of users), made safe to show.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

// Bytes that are not UTF-8, and characters that terminals obey instead of printing them, as \xNN;
// the rest as it is. Ends with the first character that makes the result `enough` bytes long.
std::string EscapeText(std::string_view text, size_t enough = std::string_view::npos);

// "1st", "2nd", "11th".
std::string Ordinal(uint64_t number);

}  // namespace tandem
