#include "src/cli/report/keys.h"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace tandem::cli {
namespace {

using history::AccountsKey;

struct Named {
  AccountsKey key;
  const char* name;
};
constexpr Named kReportKeys[] = {
    {AccountsKey::kUser, "user"}, {AccountsKey::kProject, "project"}, {AccountsKey::kRun, "run"},
    {AccountsKey::kGpu, "gpu"},   {AccountsKey::kHour, "hour"},       {AccountsKey::kDay, "day"},
};

}  // namespace

const char* NameOf(AccountsKey key) {
  for (const Named& named : kReportKeys) {
    if (named.key == key) return named.name;
  }
  return "";
}

std::string KeyList(const char* separator) {
  std::string list;
  for (const Named& named : kReportKeys)
    list += (list.empty() ? "" : separator) + std::string(named.name);
  return list;
}

Result<std::vector<AccountsKey>> ParseKeys(const std::string& text) {
  std::vector<AccountsKey> keys;
  std::istringstream words(text + ",");
  for (std::string word; std::getline(words, word, ',');) {
    const auto* const found = std::find_if(std::begin(kReportKeys), std::end(kReportKeys),
                                           [&](const Named& named) { return named.name == word; });
    if (found == std::end(kReportKeys)) {
      return Error{ErrorCode::kInvalid, "'" + word + "' is none of " + KeyList(", ")};
    }
    if (std::find(keys.begin(), keys.end(), found->key) != keys.end()) {
      return Error{ErrorCode::kInvalid, "'" + word + "' is there twice"};
    }
    keys.push_back(found->key);
  }
  return keys;
}

}  // namespace tandem::cli
