// Head: the request line and the headers of an HTTP request, checked before the HTTP library sees
// them. That library sets no bound to their number and their length.
//
// Pure.
// Invariant: what passes has a known method, no body, and only the headers that are used here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::serve {

inline constexpr size_t kLongestHead = 16384;
inline constexpr size_t kLongestTarget = 4096;

struct Head {
  int refused = 0;     // the status of the answer, such as 400; 0: it passes
  std::string reason;  // for people
  std::string text;    // for the library
};

// `text`: from the request line up to the empty line, with it.
Head CheckHead(std::string_view text);

// Where the head ends in `text`; npos: it is not whole yet.
size_t EndOfHead(std::string_view text);

}  // namespace tandem::serve
