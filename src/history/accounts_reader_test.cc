#include "src/history/accounts_reader.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <map>
#include <random>

#include "src/base/testing/rounds.h"
#include "src/base/testing/seed.h"
#include "src/history/history_test.h"

namespace tandem::history {
namespace {

using ::testing::ElementsAre;
using Key = AccountsKey;

class AccountsReaderTest : public HistoryTest {
 protected:
  AccountsReaderTest() : writer_(Options()) { writer_.Open(path_); }

  AccountsAnswer Ask(int64_t since, int64_t until, std::vector<Key> by) {
    return Ask({since * kNsInSecond, until * kNsInSecond, std::move(by), {}, ""});
  }
  AccountsAnswer Ask(const AccountsQuery& query) {
    const auto answer = ReadAccounts(path_, query);
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    return answer.ok() ? *answer : AccountsAnswer();
  }
  static std::map<std::vector<std::string>, int64_t> HeldBy(const AccountsAnswer& answer) {
    std::map<std::vector<std::string>, int64_t> held;
    for (const AccountsRow& row : answer.rows) {
      held[row.keys] += static_cast<int64_t>(row.amounts.held_ns) / kNsInSecond;
    }
    return held;
  }
  void TimeZone(const char* name) {
    setenv("TZ", name, 1);
    tzset();
  }

  AccountsWriter writer_;
};

using Held_ = std::map<std::vector<std::string>, int64_t>;

TEST_F(AccountsReaderTest, AddsUpByEachKey) {
  writer_.Add(std::vector<Usage>{Held(Session(1, "anna"), kMonday, 10),
                                 Held(Session(2, "bert", "GPU-b"), kMonday, 30),
                                 Held(Session(2, "bert", "GPU-b"), kMonday + kHour, 5)});
  const int64_t until = kMonday + 100 * kHour;
  EXPECT_EQ(HeldBy(Ask(kMonday, until, {Key::kUser})), (Held_{{{"anna"}, 10}, {{"bert"}, 35}}));
  EXPECT_EQ(HeldBy(Ask(kMonday, until, {Key::kProject})), (Held_{{{"vision"}, 45}}));
  EXPECT_EQ(HeldBy(Ask(kMonday, until, {Key::kRun})), (Held_{{{"mnist"}, 45}}));
  EXPECT_EQ(HeldBy(Ask(kMonday, until, {Key::kGpu})), (Held_{{{"GPU-a"}, 10}, {{"GPU-b"}, 35}}));
  EXPECT_EQ(HeldBy(Ask(kMonday, until, {Key::kHour})),
            (Held_{{{"2025-12-01T00:00:00+00:00"}, 40}, {{"2025-12-01T01:00:00+00:00"}, 5}}));
  const AccountsAnswer answer = Ask(kMonday, until, {Key::kDay, Key::kUser});
  EXPECT_EQ(HeldBy(answer), (Held_{{{"2025-12-01T00:00:00+00:00", "anna"}, 10},
                                   {{"2025-12-01T00:00:00+00:00", "bert"}, 35}}));
  EXPECT_EQ(answer.sum.amounts.held_ns, 45u * kNsInSecond);
  EXPECT_EQ(answer.sum.sessions, 2u);
  EXPECT_THAT(answer.gpus, ElementsAre("GPU-a", "GPU-b"));
  EXPECT_EQ(Ask(kMonday, until, {Key::kUser}).rows[0].keys[0], "bert") << "the most first";
}

TEST_F(AccountsReaderTest, OnlyOneUsersButTheSameCards) {
  writer_.Add(std::vector<Usage>{Held(Session(1, "anna"), kMonday, kHour),
                                 Held(Session(2, "bert", "GPU-b"), kMonday, kHour)});
  AccountsQuery query{
      kMonday * kNsInSecond, (kMonday + kHour) * kNsInSecond, {Key::kUser}, 1001, ""};
  AccountsAnswer answer = Ask(query);
  EXPECT_EQ(HeldBy(answer), (Held_{{{"anna"}, kHour}}));
  EXPECT_DOUBLE_EQ(answer.sum.share, 0.5) << "one of two cards";
  query.uid.reset();
  query.user = "bert";
  EXPECT_EQ(HeldBy(Ask(query)), (Held_{{{"bert"}, kHour}}));
}

TEST_F(AccountsReaderTest, AnHourAtTheEdgeCountsByItsPart) {
  writer_.Add(std::vector<Usage>{Held(Session(1), kMonday + 600, 600)});
  const auto held = [&](int64_t since, int64_t until) {
    return Ask(kMonday + since, kMonday + until, {}).sum.amounts.held_ns / kNsInSecond;
  };
  EXPECT_EQ(held(0, 600), 0u);
  EXPECT_EQ(held(0, 900), 300u);
  EXPECT_EQ(held(900, 1000), 100u);
  EXPECT_EQ(held(1000, 2 * kHour), 200u);
  EXPECT_EQ(held(600, 1200), 600u) << "the hour is not over, and all of it was";
}

TEST_F(AccountsReaderTest, ShareIsOfTheTimeOfTheCards) {
  writer_.Add(
      std::vector<Usage>{Held(Session(1), kMonday, 1800), Held(Session(1), kMonday + kHour, 900)});
  const AccountsAnswer all = Ask(kMonday - 99 * kHour, kMonday + 2 * kHour, {Key::kHour});
  ASSERT_EQ(all.rows.size(), 2u);
  EXPECT_DOUBLE_EQ(all.rows[0].share, 0.5);
  EXPECT_DOUBLE_EQ(all.rows[1].share, 0.25);
  EXPECT_DOUBLE_EQ(all.sum.share, 0.375) << "from where the accounts begin";
  EXPECT_EQ(all.begin_ns, kMonday * kNsInSecond);
  EXPECT_DOUBLE_EQ(Ask(kMonday, kMonday + 1800, {Key::kDay}).rows.at(0).share, 1);
}

TEST_F(AccountsReaderTest, DaysAreTheReadersOwn) {
  // Midnight in Kolkata is at half past an hour of Unix time.
  writer_.Add(std::vector<Usage>{Held(Session(1), kMonday + 18 * kHour, kHour)});
  TimeZone("Asia/Kolkata");
  EXPECT_EQ(HeldBy(Ask(kMonday, kMonday + 24 * kHour, {Key::kDay})),
            (Held_{{{"2025-12-01T00:00:00+05:30"}, 1800}, {{"2025-12-02T00:00:00+05:30"}, 1800}}));
  // Berlin's day of 25 hours.
  TimeZone("Europe/Berlin");
  const int64_t october = 1'761'429'600;  // 2025-10-26T00:00:00+02:00
  std::vector<Usage> usages;
  for (int64_t hour = 0; hour < 26; ++hour) {
    usages.push_back(Held(Session(2), october + hour * kHour, kHour));
  }
  writer_.Add(usages);
  const AccountsAnswer days = Ask(october, october + 26 * kHour, {Key::kDay});
  EXPECT_EQ(HeldBy(days), (Held_{{{"2025-10-26T00:00:00+02:00"}, 25 * kHour},
                                 {{"2025-10-27T00:00:00+01:00"}, kHour}}));
  EXPECT_DOUBLE_EQ(days.rows[0].share, 1);
  EXPECT_EQ(Ask(october, october + 26 * kHour, {Key::kHour}).rows.size(), 26u);
}

TEST_F(AccountsReaderTest, SomeDaysHaveNoMidnight) {
  TimeZone("Asia/Beirut");
  const int64_t begin = 1'743'199'200;  // 2025-03-29T00:00:00+02:00; the clock went on a day later
  std::vector<Usage> usages;
  for (int64_t hour = 0; hour < 48; ++hour) {
    usages.push_back(Held(Session(1), begin + hour * kHour, kHour));
  }
  writer_.Add(usages);
  const AccountsAnswer answer = Ask(begin, begin + 47 * kHour, {Key::kDay});
  EXPECT_EQ(HeldBy(answer), (Held_{{{"2025-03-29T00:00:00+02:00"}, 24 * kHour},
                                   {{"2025-03-30T01:00:00+03:00"}, 23 * kHour}}));
}

// All that was added is found: in sum, by each key, and over cuts anywhere.
TEST_F(AccountsReaderTest, SumsAreExact) {
  const uint64_t seed = RandomSeed();
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::map<std::string, Amounts> by_user;
  Amounts sum;
  const int64_t length = 50 * kHour;
  const uint64_t rounds = Rounds(60);
  for (uint64_t round = 0; round < rounds; ++round) {
    std::vector<Usage> usages;
    for (int i = 0; i < 50; ++i) {
      const uint64_t session = random() % 40;
      const std::string user = "user" + std::to_string(session % 5);
      Usage usage = Held(Session(session, user, "GPU-" + std::to_string(session % 3)), 0);
      const int64_t hour = static_cast<int64_t>(random() % 50) * kHour;
      usage.from_unix_ns = (kMonday + hour) * kNsInSecond +
                           static_cast<int64_t>(random() % (3590 * uint64_t{kNsInSecond}));
      const uint64_t ns = random() % (10 * uint64_t{kNsInSecond});
      usage.to_unix_ns = usage.from_unix_ns + static_cast<int64_t>(ns);
      usage.held_s = static_cast<double>(ns) * 1e-9;
      usage.active_s = static_cast<double>(random() % (ns + 1)) * 1e-9;
      usage.waited_s = static_cast<double>(random() % (ns + 1)) * 1e-9;
      usage.allocated_byte_s = static_cast<double>(random() % (1 << 30));
      usage.resident_byte_s = static_cast<double>(random() % (1 << 30));
      usage.handovers = random() % 100;
      usage.out_bytes = random() % (uint64_t{1} << 40);
      usage.in_bytes = random() % (uint64_t{1} << 40);
      by_user[user] += AmountsOf(usage);
      sum += AmountsOf(usage);
      usages.push_back(usage);
    }
    writer_.Add(usages);
  }
  const auto expect_same = [](const Amounts& a, const Amounts& b) {
    EXPECT_EQ(a.held_ns, b.held_ns);
    EXPECT_EQ(a.active_ns, b.active_ns);
    EXPECT_EQ(a.waited_ns, b.waited_ns);
    EXPECT_NEAR(a.allocated_byte_s, b.allocated_byte_s, 1e-9 * b.allocated_byte_s);
    EXPECT_NEAR(a.resident_byte_s, b.resident_byte_s, 1e-9 * b.resident_byte_s);
    EXPECT_EQ(a.handovers, b.handovers);
    EXPECT_EQ(a.out_bytes, b.out_bytes);
    EXPECT_EQ(a.in_bytes, b.in_bytes);
  };
  const auto total = [](const AccountsAnswer& answer) {
    Amounts amounts;
    for (const AccountsRow& row : answer.rows) amounts += row.amounts;
    return amounts;
  };
  TimeZone("Asia/Kolkata");
  for (const Key key : {Key::kUser, Key::kProject, Key::kRun, Key::kGpu, Key::kHour, Key::kDay}) {
    const AccountsAnswer answer = Ask(kMonday, kMonday + length, {key});
    expect_same(answer.sum.amounts, sum);
    expect_same(total(answer), sum);
  }
  for (const AccountsRow& row : Ask(kMonday, kMonday + length, {Key::kUser}).rows) {
    expect_same(row.amounts, by_user[row.keys[0]]);
  }
  Amounts pieces;
  int64_t at = kMonday * kNsInSecond;
  const int64_t end = at + length * kNsInSecond;
  while (at < end) {
    const int64_t next = std::min<int64_t>(
        end, at + static_cast<int64_t>(random() % (3 * kHour * uint64_t{kNsInSecond})) + 1);
    pieces += Ask({at, next, {Key::kDay, Key::kUser}, {}, ""}).sum.amounts;
    at = next;
  }
  expect_same(pieces, sum);
}

TEST_F(AccountsReaderTest, SaysWhyItCannotRead) {
  const auto code = [&](const std::string& path) { return ReadAccounts(path, {}).error().code; };
  EXPECT_EQ(code(directory_ + "/nothing.db"), ErrorCode::kNotFound);
  EXPECT_EQ(code(directory_), ErrorCode::kFailed);
  writer_.Close();
  std::ofstream(path_) << "no database, and long enough that SQLite looks at its first bytes";
  const auto damaged = ReadAccounts(path_, {});
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(damaged.error().message, testing::HasSubstr("is not a database"));
  std::ofstream(path_).close();
  EXPECT_EQ(code(path_), ErrorCode::kInvalid) << "an empty file";
}

// As a user who may read the file and not write to its directory; odd characters are in its name.
TEST_F(AccountsReaderTest, AnotherUserReadsWhileItIsWrittenAndAfter) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  AccountsOptions options = Options();
  options.everybody = true;
  path_ = directory_ + "/a ?%23#b/accounts.db";
  AccountsWriter writer(options);
  writer.Open(path_);
  writer.Add(std::vector<Usage>{Held(Session(1), kMonday)});
  const auto read_as_other = [&] {
    EXPECT_EQ(seteuid(65534), 0);
    const auto answer = ReadAccounts(path_, {0, int64_t{1} << 62, {}, {}, ""});
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    return answer.ok() ? answer->sum.amounts.held_ns / kNsInSecond : 0;
  };
  EXPECT_EQ(read_as_other(), 10u);
  writer.Add(std::vector<Usage>{Held(Session(1), kMonday + 10)});
  EXPECT_EQ(read_as_other(), 20u);
  // As a kill leaves the files.
  const std::filesystem::path directory = std::filesystem::path(path_).parent_path();
  std::filesystem::copy(directory, directory_ + "/killed");
  path_ = directory_ + "/killed/accounts.db";
  EXPECT_EQ(read_as_other(), 20u);
  path_ = directory / "accounts.db";
  writer.Close();
  ASSERT_FALSE(std::filesystem::exists(path_ + "-wal"));
  EXPECT_EQ(read_as_other(), 20u);
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  ASSERT_EQ(seteuid(65534), 0);
  const auto refused = ReadAccounts(path_, {});
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
}

}  // namespace
}  // namespace tandem::history
