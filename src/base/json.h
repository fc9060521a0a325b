// JSON as text: the library's reader and writer are compiled here, not in each file that uses them.
//
// Threading: none; the functions keep no state.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace tandem {

// Discarded (`is_discarded`) where the text is not JSON.
nlohmann::json ParseJson(std::string_view text);

// Bytes that are not UTF-8 become U+FFFD. One line, or with `indent` spaces for each level.
std::string JsonText(const nlohmann::json& json, int indent = -1);

// One line of ASCII: other characters are escaped.
std::string AsciiJson(const nlohmann::json& json);

}  // namespace tandem
