#include "src/cli/names.h"

#include <nlohmann/json.hpp>
#include <set>

#include "src/base/json.h"
#include "src/cli/daemon.h"
#include "src/cli/environment.h"
#include "src/cli/print.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

Json ListIn(const std::string& answer, const char* key) {
  const Json json = ParseJson(answer);
  if (!json.is_object() || !json.contains(key) || !json[key].is_array()) return Json::array();
  return json[key];
}

bool IsPlain(const std::string& name) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+:@-";
  return !name.empty() && name.front() != '-' &&
         name.find_first_not_of(kPlain) == std::string::npos;
}

}  // namespace

std::string SessionNames(const std::string& sessions) {
  std::set<std::string> names;
  for (const char* key : {"sessions", "runs"}) {
    for (const Json& entry : ListIn(sessions, key)) {
      if (!entry.is_object()) continue;
      if (entry.contains("id") && entry["id"].is_number_unsigned()) {
        names.insert(std::to_string(entry["id"].get<uint64_t>()));
      }
      if (entry.contains("name") && entry["name"].is_string()) names.insert(entry["name"]);
    }
  }
  std::string text;
  for (const std::string& name : names) {
    if (IsPlain(name)) text += name + "\n";
  }
  return text;
}

std::string GpuNames(const std::string& status) {
  std::string text;
  const size_t count = ListIn(status, "gpus").size();
  for (size_t i = 0; i < count; ++i) text += "gpu" + std::to_string(i) + "\n";
  return text + "all\n";
}

int PrintNames(const std::string& what) {
  if (!ChooseGpu(std::nullopt).ok()) return 0;
  const Result<std::string> answer = Query(what == "gpus" ? "status" : "sessions");
  if (!answer.ok()) return 0;
  return Print(what == "gpus" ? GpuNames(*answer) : SessionNames(*answer));
}

}  // namespace tandem::cli
