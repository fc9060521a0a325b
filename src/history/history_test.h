// What the tests of the accounts share.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "src/history/accounts_reader.h"
#include "src/history/accounts_writer.h"
#include "src/history/local_time.h"
#include "src/history/sqlite.h"

namespace tandem::history {

inline constexpr int64_t kMonday = 1'764'547'200;  // 2025-12-01T00:00:00Z

inline std::shared_ptr<SessionIdentity> Session(uint64_t number, const std::string& user = "anna",
                                                const std::string& gpu = "GPU-a") {
  auto session = std::make_shared<SessionIdentity>();
  session->session = number;
  session->gpu = gpu;
  session->uid = user == "anna" ? 1001 : 1002;
  session->user = user;
  session->project = "vision";
  session->run = "mnist";
  session->program = "python3";
  session->pid = 100 + static_cast<int>(number);
  session->started_unix_ns = kMonday * kNsInSecond + static_cast<int64_t>(number);
  return session;
}

// `seconds` with the lease, from this second of Unix time on.
inline Usage Held(std::shared_ptr<const SessionIdentity> of, int64_t from, int64_t seconds = 10) {
  Usage usage;
  usage.of = std::move(of);
  usage.from_unix_ns = from * kNsInSecond;
  usage.to_unix_ns = (from + seconds) * kNsInSecond;
  usage.held_s = static_cast<double>(seconds);
  usage.handovers = 1;
  return usage;
}

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() {
    std::string name = testing::TempDir() + "history-XXXXXX";
    directory_ = mkdtemp(name.data());
    path_ = directory_ + "/state/accounts.db";
    setenv("TZ", "UTC", 1);
    tzset();
  }
  ~HistoryTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  AccountsOptions Options() {
    AccountsOptions options;
    options.say = [this](const std::string& line) { log_.push_back(line); };
    return options;
  }

  // Everything in the accounts at `path`.
  static AccountsAnswer All(const std::string& path, std::vector<AccountsKey> by = {}) {
    const auto answer = ReadAccounts(path, {0, int64_t{1} << 62, std::move(by), {}, ""});
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    return answer.ok() ? *answer : AccountsAnswer();
  }
  static int64_t HeldSeconds(const std::string& path) {
    return static_cast<int64_t>(All(path).sum.amounts.held_ns) / kNsInSecond;
  }

  std::string directory_;
  std::string path_;
  std::vector<std::string> log_;
};

}  // namespace tandem::history
