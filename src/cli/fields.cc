#include "src/cli/fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "src/base/bytes.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/base/user_name.h"

namespace tandem::cli {

using Json = nlohmann::json;

Result<Json> Parse(const std::string& text) {
  Json json = ParseJson(text);
  if (!json.is_object()) return Error{ErrorCode::kFailed, "the daemon's answer is not JSON"};
  return json;
}

const Json& Member(const Json& json, const char* key) {
  static const Json kNone;
  if (!json.is_object()) return kNone;
  const auto found = json.find(key);
  return found == json.end() ? kNone : *found;
}

const std::vector<Json>& List(const Json& json, const char* key) {
  static const std::vector<Json> kNone;
  const Json& list = Member(json, key);
  return list.is_array() ? list.get_ref<const std::vector<Json>&>() : kNone;
}

std::string Text(const Json& value) {
  if (value.is_string()) return EscapeText(value.get_ref<const std::string&>());
  if (value.is_null() || value.is_structured()) return "-";
  return JsonText(value);
}

std::string RawText(const Json& json, const char* key) {
  const Json& value = Member(json, key);
  return value.is_string() ? value.get<std::string>() : "";
}

Bytes RawBytes(const Json& json, const char* key) {
  const Json& value = Member(json, key);
  return value.is_number_unsigned() ? Bytes(value.get<uint64_t>()) : Bytes();
}

double Number(const Json& value) {
  return value.is_number() ? value.get<double>() : 0;
}

std::string Size(const Json& value) {
  return value.is_number_unsigned() ? FormatBytes(Bytes(value.get<uint64_t>())) : "-";
}

std::string SecondsText(const Json& value) {
  if (!value.is_number()) return "-";
  const double seconds = value.get<double>();
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e15));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

// Here and not in the daemon, which must not wait for a directory of users somewhere on the net.
std::string UserName(const Json& uid) {
  return Text(uid.is_number_unsigned() ? Json(UserNameOf(uid.get<unsigned>())) : uid);
}

}  // namespace tandem::cli
