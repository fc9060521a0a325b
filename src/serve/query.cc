#include "src/serve/query.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace tandem::serve {
namespace {

constexpr size_t kLongestValue = 256;
constexpr size_t kLongestShown = 40;

std::string NamesText(const std::vector<std::string>& known) {
  if (known.empty()) return "there are none here";
  std::string text = "there are ";
  for (size_t i = 0; i < known.size(); ++i) text += (i == 0 ? "" : ", ") + known[i];
  return text;
}

}  // namespace

Result<Query> Query::Parse(const Parameters& parameters, const std::vector<std::string>& known) {
  Query query;
  for (const auto& [name, value] : parameters) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return Error{
          ErrorCode::kInvalid,
          fmt::format("'{}' is no parameter; {}", name.substr(0, kLongestShown), NamesText(known))};
    }
    if (value.size() > kLongestValue) {
      return Error{ErrorCode::kInvalid,
                   fmt::format("{} is longer than {} characters", name, kLongestValue)};
    }
    if (!query.values_.emplace(name, value).second) {
      return Error{ErrorCode::kInvalid, name + " is there twice; write it once"};
    }
  }
  return query;
}

void Query::Read(const std::string& name, std::string* value) const {
  if (const auto found = values_.find(name); found != values_.end()) *value = found->second;
}

Result<int> Query::Number(const std::string& name, int usual, int least, int most) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return usual;
  const std::string& text = found->second;
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < least || number > most) {
    return Error{ErrorCode::kInvalid, fmt::format("{} must be {} to {}", name, least, most)};
  }
  return number;
}

}  // namespace tandem::serve
