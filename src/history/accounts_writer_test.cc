#include "src/history/accounts_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "src/history/history_test.h"

namespace tandem::history {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

class AccountsWriterTest : public HistoryTest {
 protected:
  AccountsWriterTest() : writer_(Options()) {}

  void Add(int64_t from = kMonday, uint64_t session = 1) {
    writer_.Add(std::vector<Usage>{Held(Session(session), from)});
  }
  void Fill(uint64_t sessions, int64_t from = kMonday) {
    std::vector<Usage> usages;
    for (uint64_t session = 1; session <= sessions; ++session) {
      usages.push_back(Held(Session(session), from));
    }
    writer_.Add(usages);
  }
  // Overwrites all but the first page.
  void Damage() const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(fs::file_size(path_) - 4096, 'x');
  }
  mode_t ModeOf(const std::string& path) const {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 0777;
  }
  int64_t Read(const std::string& sql) const {
    Database database;
    EXPECT_EQ(database.Open(path_, SQLITE_OPEN_READWRITE, 1000), SQLITE_OK);
    int64_t value = -1;
    EXPECT_EQ(database.Read(sql, &value), SQLITE_OK) << database.Message();
    return value;
  }
  uint64_t AddUntilFull();
  void ExpectGoesOn(uint64_t session);

  AccountsWriter writer_;
};

TEST_F(AccountsWriterTest, AddsUpASessionsHour) {
  writer_.Open(path_);
  for (int i = 0; i < 3; ++i) Add(kMonday + int64_t{10} * i);
  Add(kMonday + kHour);
  EXPECT_EQ(Read("SELECT count(*) FROM usage"), 2);
  EXPECT_EQ(Read("SELECT held_ns FROM usage LIMIT 1"), 30 * kNsInSecond);
  EXPECT_EQ(Read("SELECT to_ns - from_ns FROM usage LIMIT 1"), 30 * kNsInSecond);
  EXPECT_THAT(log_, IsEmpty());
}

TEST_F(AccountsWriterTest, GoesOnInTheNextDaemon) {
  writer_.Open(path_);
  Add();
  writer_.Close();
  AccountsWriter next(Options());
  next.Open(path_);
  next.Add(std::vector<Usage>{Held(Session(1), kMonday + 10)});
  EXPECT_EQ(HeldSeconds(path_), 20);
  EXPECT_EQ(Read("SELECT count(*) FROM usage"), 1);
}

// A user's daemons for cards and for the software GPU have one state directory.
TEST_F(AccountsWriterTest, TwoDaemonsWriteOneFile) {
  writer_.Open(path_);
  AccountsWriter other(Options());
  other.Open(path_);
  for (int i = 0; i < 10; ++i) {
    Add(kMonday + int64_t{20} * i);
    other.Add(
        std::vector<Usage>{Held(Session(i % 2 + 1, "anna", "GPU-b"), kMonday + int64_t{20} * i)});
  }
  other.Close();
  Add(kMonday + 300);
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_EQ(HeldSeconds(path_), 210);
}

TEST_F(AccountsWriterTest, OthersReadItOnlyWhereAsked) {
  writer_.Open(path_);
  Add();
  EXPECT_EQ(ModeOf(path_), 0600u);
  EXPECT_EQ(ModeOf(path_ + "-wal"), 0600u);
  EXPECT_EQ(ModeOf(fs::path(path_).parent_path()), 0700u);
  writer_.Close();
  AccountsOptions options = Options();
  options.everybody = true;
  AccountsWriter open(options);
  open.Open(path_);
  open.Add(std::vector<Usage>{Held(Session(2), kMonday)});
  EXPECT_EQ(ModeOf(path_), 0644u);
  EXPECT_EQ(ModeOf(path_ + "-wal"), 0644u);
}

TEST_F(AccountsWriterTest, ImpossibleAmountsCountAsNothing) {
  Usage usage = Held(Session(1), kMonday);
  usage.active_s = std::nan("");
  usage.waited_s = -1;
  usage.allocated_byte_s = std::numeric_limits<double>::infinity();
  usage.to_unix_ns = usage.from_unix_ns - 1;  // the clock was set back
  writer_.Open(path_);
  writer_.Add(std::vector<Usage>{usage});
  EXPECT_EQ(HeldSeconds(path_), 10);
  EXPECT_EQ(Read("SELECT active_ns + waited_ns + allocated_byte_s + to_ns - from_ns FROM usage"),
            0);
}

TEST_F(AccountsWriterTest, ADamagedDatabaseIsSetAside) {
  for (const char* aside : {".broken-1", ".broken-2"}) {
    fs::create_directories(fs::path(path_).parent_path());
    std::ofstream(path_) << "this is no database, and was never one; SQLite says so at once"
                         << aside;
    log_.clear();
    writer_.Open(path_);
    Add();
    writer_.Close();
    ASSERT_EQ(log_.size(), 1u);
    EXPECT_THAT(log_[0], HasSubstr("accounts.db" + std::string(aside) + ", and new ones begin"));
    EXPECT_EQ(HeldSeconds(path_), 10);
    std::ifstream kept(path_ + aside);
    EXPECT_THAT(std::string(std::istreambuf_iterator<char>(kept), {}), HasSubstr("never one"));
  }
}

TEST_F(AccountsWriterTest, DamageWithinTheTableIsFoundAtTheStart) {
  writer_.Open(path_);
  Fill(200);
  writer_.Close();
  Damage();
  writer_.Open(path_);
  Add();
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_TRUE(fs::exists(path_ + ".broken-1"));
  EXPECT_EQ(HeldSeconds(path_), 10);
}

TEST_F(AccountsWriterTest, DamageWhileItIsOpenLosesNothingNew) {
  writer_.Open(path_);
  for (int64_t hour = 0; hour < 3; ++hour) {
    Fill(AccountsWriter::kMostPending, kMonday + hour * kHour);
  }
  writer_.Close();
  ASSERT_GT(fs::file_size(path_), 2'000'000u) << "more than SQLite keeps in memory";
  writer_.Open(path_);
  Damage();
  Add();
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_TRUE(fs::exists(path_ + ".broken-1"));
  EXPECT_EQ(HeldSeconds(path_), 10);
}

TEST_F(AccountsWriterTest, ADatabaseOfANewerTandemIsLeftAlone) {
  writer_.Open(path_);
  Add();
  EXPECT_EQ(Read("PRAGMA user_version = 2"), -1);
  writer_.Close();
  std::ifstream file(path_, std::ios::binary);
  const std::string before(std::istreambuf_iterator<char>(file), {});
  writer_.Open(path_);
  Add();
  Add();
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], HasSubstr("a newer Tandem has written"));
  EXPECT_EQ(writer_.lost(), 2u);
  file.seekg(0);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), before);
  const auto answer = ReadAccounts(path_, {});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kVersion);
}

TEST_F(AccountsWriterTest, ADirectoryThatCannotBeWrittenIsTriedAgain) {
  const bool root = geteuid() == 0;
  const std::string closed = directory_ + "/closed";
  fs::create_directory(closed);
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  ASSERT_EQ(chmod(closed.c_str(), 0555), 0);
  if (root) {
    ASSERT_EQ(seteuid(65534), 0);  // root may write everywhere
  }
  path_ = closed + "/accounts.db";
  writer_.Open(path_);
  Add();
  Add(kMonday + 10);
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  ASSERT_EQ(log_.size(), 1u) << "said once";
  EXPECT_THAT(log_[0], HasSubstr("Permission denied"));
  ASSERT_EQ(chmod(closed.c_str(), 0755), 0);
  Add(kMonday + 20);
  ASSERT_EQ(log_.size(), 2u);
  EXPECT_EQ(log_[1], "the accounts are written again; nothing was lost");
  EXPECT_EQ(HeldSeconds(path_), 30);
}

TEST_F(AccountsWriterTest, DeletedWhileOpenItBeginsAgain) {
  writer_.Open(path_);
  Add();
  fs::remove(path_);  // and not the files beside it
  Add(kMonday + 10);
  EXPECT_EQ(HeldSeconds(path_), 10);
  fs::remove_all(fs::path(path_).parent_path());
  Add(kMonday + 20);
  Add(kMonday + 30);
  EXPECT_EQ(HeldSeconds(path_), 20);
  EXPECT_EQ(log_.size(), 2u);
  writer_.Close();
  EXPECT_EQ(HeldSeconds(path_), 20);
}

// Adds until the log says that there is no room; returns the next session's number.
uint64_t AccountsWriterTest::AddUntilFull() {
  Add();
  uint64_t session = 2;
  while (log_.empty() && session < 100'000) Add(kMonday, session++);
  for (int i = 0; i < 3; ++i) Add(kMonday, session++);
  return session;
}

// REQUIRES: there is room again.
void AccountsWriterTest::ExpectGoesOn(uint64_t session) {
  EXPECT_THAT(log_, ElementsAre(HasSubstr("they wait in memory")));
  Add(kMonday, session);
  ASSERT_EQ(log_.size(), 2u);
  EXPECT_EQ(log_[1], "the accounts are written again; nothing was lost");
  EXPECT_EQ(HeldSeconds(path_), 10 * static_cast<int64_t>(session));
}

TEST_F(AccountsWriterTest, AFullDiskLosesNothing) {
  const std::string disk = directory_ + "/disk";
  fs::create_directory(disk);
  if (mount("tandem-test", disk.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "only root can mount a small file system";
  }
  path_ = disk + "/accounts.db";
  writer_.Open(path_);
  std::ofstream(disk + "/full") << std::string(2 << 20, 'x');  // up to the last block
  const uint64_t session = AddUntilFull();
  fs::remove(disk + "/full");
  ExpectGoesOn(session);
  EXPECT_THAT(log_.at(0), HasSubstr("full"));
  writer_.Close();
  umount(disk.c_str());
}

// As a full disk, for users who cannot mount one.
TEST_F(AccountsWriterTest, AFileThatMayNotGrowLosesNothing) {
  writer_.Open(path_);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{128 << 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const uint64_t session = AddUntilFull();
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  ExpectGoesOn(session);
}

TEST_F(AccountsWriterTest, MemoryIsBoundedAndLossesAreCounted) {
  std::ofstream(directory_ + "/state") << "no directory";
  writer_.Open(path_);
  Fill(AccountsWriter::kMostPending + 5);
  EXPECT_EQ(writer_.lost(), 5u);
  fs::remove(directory_ + "/state");
  ASSERT_TRUE(writer_.Flush());
  EXPECT_THAT(log_, ElementsAre(HasSubstr("cannot write"), HasSubstr("5 intervals were lost")));
  EXPECT_EQ(HeldSeconds(path_), 10 * static_cast<int64_t>(AccountsWriter::kMostPending));
}

TEST_F(AccountsWriterTest, OldHoursLeave) {
  writer_.Open(path_);
  Add(kMonday);
  Add(kMonday + kHour * 24 * 400);
  EXPECT_EQ(HeldSeconds(path_), 20);
  Add(kMonday + kHour * 24 * 401);
  EXPECT_EQ(HeldSeconds(path_), 20) << "the first is older than 400 days";
}

TEST_F(AccountsWriterTest, TheOldestLeaveWhereItGrowsTooLarge) {
  AccountsOptions options = Options();
  options.keep_size = KiB(128);
  AccountsWriter writer(options);
  writer.Open(path_);
  for (int64_t hour = 0; hour < 100; ++hour) {
    std::vector<Usage> usages;
    for (uint64_t session = 1; session < 30; ++session) {
      usages.push_back(Held(Session(session), kMonday + hour * kHour));
    }
    writer.Add(usages);
  }
  writer.Close();
  EXPECT_LT(fs::file_size(path_), 160u << 10);
  EXPECT_GT(fs::file_size(path_), 64u << 10);
  EXPECT_EQ(Read("SELECT max(hour) FROM usage"), kMonday + 99 * kHour);
  EXPECT_GT(Read("SELECT min(hour) FROM usage"), kMonday);
}

}  // namespace
}  // namespace tandem::history
