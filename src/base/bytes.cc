#include "src/base/bytes.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace tandem {
namespace {

struct Unit {
  std::string_view prefix;
  int shift;
};
constexpr std::array<Unit, 5> kUnits = {{{"", 0}, {"K", 10}, {"M", 20}, {"G", 30}, {"T", 40}}};

// The shift of a suffix such as "G", "GB", "GiB" or "g"; -1 if it is none.
int ShiftOf(std::string_view suffix) {
  std::string upper;
  for (char c : suffix) upper += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  for (const Unit& unit : kUnits) {
    const std::string prefix(unit.prefix);
    if (upper == prefix || upper == prefix + "B") return unit.shift;
    if (unit.shift > 0 && upper == prefix + "IB") return unit.shift;
  }
  return -1;
}

}  // namespace

Result<Bytes> ParseBytes(std::string_view text) {
  const std::string copy(text);
  const Error bad{ErrorCode::kInvalid,
                  "'" + copy + "' is not a size; write for example 512M or 8G"};
  // Digits and at most one dot: strtod alone would take "0x10" and "1e3", too.
  const size_t digits = std::min(copy.find_first_not_of("0123456789."), copy.size());
  const std::string figure = copy.substr(0, digits);
  if (figure.empty() || figure[0] == '.' || figure.find('.') != figure.rfind('.')) return bad;
  const double number = std::strtod(figure.c_str(), nullptr);
  const size_t suffix = std::min(copy.find_first_not_of(' ', digits), copy.size());
  const int shift = ShiftOf(std::string_view(copy).substr(suffix));
  if (shift < 0) return bad;
  const double bytes = number * static_cast<double>(uint64_t{1} << shift);
  if (!(bytes < 0x1p60)) return bad;  // also refuses NaN
  return Bytes(static_cast<uint64_t>(bytes));
}

Result<Bytes> ParseSize(std::string_view text) {
  ASSIGN_OR_RETURN(const Bytes bytes, ParseBytes(text));
  const bool has_unit = text.find_first_not_of("0123456789. ") != std::string_view::npos;
  if (has_unit || bytes == Bytes()) return bytes;
  const std::string number(text);
  return Error{ErrorCode::kInvalid, "'" + number + "' has no unit; write for example " + number +
                                        "G or " + number + "M"};
}

std::string FormatBytes(Bytes bytes) {
  const Unit* unit = kUnits.data();
  for (const Unit& candidate : kUnits) {
    if (bytes.count >> candidate.shift != 0) unit = &candidate;
  }
  const uint64_t one = uint64_t{1} << unit->shift;
  const double number = static_cast<double>(bytes.count) / static_cast<double>(one);
  std::array<char, 32> text;
  const bool whole = bytes.count % one == 0 || number >= 100;
  std::snprintf(text.data(), text.size(), whole ? "%.0f " : "%.1f ", number);
  return text.data() + std::string(unit->prefix) + (unit->shift > 0 ? "iB" : "B");
}

}  // namespace tandem
