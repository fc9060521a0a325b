#include "src/core/share_text.h"

#include <array>
#include <charconv>
#include <cmath>

namespace tandem::core {
namespace {

constexpr double kLeastWeight = 1e-3, kMostWeight = 1e3, kLeastPercent = 0.1;

}  // namespace

std::optional<Share> ParseShare(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && stop == text.data() + text.size();
  if (!whole || !std::isfinite(number)) return std::nullopt;
  if (percent) {
    if (number < kLeastPercent || number > 100) return std::nullopt;
    return Share{1, number / 100};
  }
  if (number < kLeastWeight || number > kMostWeight) return std::nullopt;
  return Share{number, {}};
}

std::string ShareText(const Share& share) {
  std::array<char, 32> text;
  const bool part = share.fraction.has_value();
  const double number = part ? *share.fraction * 100 : share.weight;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number,
                                          std::chars_format::general, /*precision=*/6);
  return std::string(text.data(), end) + (part ? "%" : "");
}

std::string NoShareText(std::string_view text) {
  return "\"" + std::string(text) +
         "\" is no share: give a weight from 0.001 to 1000, such as 2, or a part of the time of at "
         "least 0.1%, such as 30%";
}

}  // namespace tandem::core
