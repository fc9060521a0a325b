// The keys of `tandem report --by`.
#pragma once

#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/history/accounts_reader.h"

namespace tandem::cli {

const char* NameOf(history::AccountsKey key);
// The names of all keys.
std::string KeyList(const char* separator);
// "day,user".
Result<std::vector<history::AccountsKey>> ParseKeys(const std::string& text);

}  // namespace tandem::cli
