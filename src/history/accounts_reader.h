// ReadAccounts: what sessions used in an interval, added up by keys.
//
// Threading: any thread; a daemon may write at the same time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/history/amounts.h"

namespace tandem::history {

enum class AccountsKey { kUser, kProject, kRun, kGpu, kHour, kDay };

struct AccountsQuery {
  int64_t since_ns = 0;  // Unix time
  int64_t until_ns = 0;  // not itself
  std::vector<AccountsKey> by;
  std::optional<uid_t> uid;  // only this user's sessions
  std::string user;          // only sessions of the user with this name; empty: all
};

struct AccountsRow {
  // One for each of `by`. A GPU's is its UUID; an hour's and a day's is its begin in local time, as
  // in "2026-11-25T08:00:00+01:00".
  std::vector<std::string> keys;
  Amounts amounts;
  uint64_t sessions = 0;  // different ones
  // Part of the time of the cards that it held them. Sessions that fit on a card together hold it
  // at the same time, so that shares may add up to more than 1.
  double share = 0;
};

struct AccountsAnswer {
  // In the order of their keys; by one key that is no time, those that held the most first.
  std::vector<AccountsRow> rows;
  AccountsRow sum;                // without keys
  int64_t begin_ns = 0;           // when the accounts begin, where that is after `since`
  std::vector<std::string> gpus;  // UUIDs of those that any session used in the interval
  std::vector<int> gpu_indices;   // of each the latest
};

// An hour that is cut by the interval or by midnight counts by the part of it, from the session's
// first second in that hour to its last. kNotFound: there is no such file. kRefused: this user may
// not read it. kVersion: a newer Tandem has written it.
Result<AccountsAnswer> ReadAccounts(const std::string& path, const AccountsQuery& query);

}  // namespace tandem::history
