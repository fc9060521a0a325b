// Fields of the daemon's answers, read without trust. A field that is missing or of another type is
// shown as "-", and what other users chose is escaped.
//
// Pure, but for UserName.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/result.h"

namespace tandem::cli {

inline constexpr size_t kMostOfName = 32;  // columns of a table

Result<nlohmann::json> Parse(const std::string& text);

// Null, or nothing, where there is no such member.
const nlohmann::json& Member(const nlohmann::json& json, const char* key);
const std::vector<nlohmann::json>& List(const nlohmann::json& json, const char* key);

std::string Text(const nlohmann::json& value);
// The member as it is, for decisions; empty, or zero, where there is no such string or number.
std::string RawText(const nlohmann::json& json, const char* key);
Bytes RawBytes(const nlohmann::json& json, const char* key);

double Number(const nlohmann::json& value);
std::string Size(const nlohmann::json& value);         // of bytes
std::string SecondsText(const nlohmann::json& value);  // "1.5 s", "3 min 05 s"
// The user's name, or the number where it has none.
std::string UserName(const nlohmann::json& uid);

}  // namespace tandem::cli
