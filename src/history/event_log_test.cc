#include "src/history/event_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tandem::history {
namespace {

class EventLogTest : public ::testing::Test {
 protected:
  EventLogTest() {
    char name[] = "/tmp/tandem-event-log-XXXXXX";
    dir_ = mkdtemp(name);
  }
  ~EventLogTest() override { std::filesystem::remove_all(dir_); }

  std::string Path(const std::string& name = "events.jsonl") const { return dir_ + "/" + name; }
  EventLogOptions Options(uint64_t most = 1 << 20) const { return {Path(), most, 2, false}; }
  EventLog Make(EventLogOptions options) {
    return EventLog(
        std::move(options), [this](const std::string& line) { notes_.push_back(line); },
        [] { return std::string("head\n"); });
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string dir_;
  std::vector<std::string> notes_;
  Instant now_{1};
};

TEST_F(EventLogTest, AppendsToWhatIsThere) {
  Make(Options()).Append("a\nb\n", 2, now_);
  Make(Options()).Append("c\n", 1, now_);
  EXPECT_EQ(Read(Path()), "a\nb\nc\n");
  EXPECT_TRUE(notes_.empty());
}

TEST_F(EventLogTest, OnlyItsUserReadsItUnlessAllMay) {
  Make(Options()).Append("a\n", 1, now_);
  struct stat info;
  ASSERT_EQ(stat(Path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EventLogOptions all = Options();
  all.everybody_reads = true;
  Make(all).Append("b\n", 1, now_);
  ASSERT_EQ(stat(Path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
}

TEST_F(EventLogTest, AFullFileGrowsOldAndTheOldestGoes) {
  EventLog log = Make(Options(8));
  for (const char* line : {"one\n", "two\n", "three\n", "four\n", "five\n", "six\n"}) {
    log.Append(line, 1, now_);
  }
  EXPECT_EQ(Read(Path()), "head\nsix\n");
  EXPECT_EQ(Read(Path("events.jsonl.1")), "head\nfive\n");
  EXPECT_EQ(Read(Path("events.jsonl.2")), "head\nfour\n");
  EXPECT_FALSE(std::filesystem::exists(Path("events.jsonl.3")));
}

TEST_F(EventLogTest, HalfALineOfADaemonThatWasKilledGoes) {
  std::ofstream(Path()) << "whole\nhal" << std::string(10000, 'f');
  Make(Options()).Append("next\n", 1, now_);
  EXPECT_EQ(Read(Path()), "whole\nnext\n");
}

TEST_F(EventLogTest, ARemovedFileIsMadeAgain) {
  EventLog log = Make(Options());
  log.Append("a\n", 1, now_);
  std::filesystem::remove(Path());
  log.Append("b\n", 1, now_);
  EXPECT_EQ(Read(Path()), "head\nb\n");
}

TEST_F(EventLogTest, AnotherDaemonsFileIsLeftAlone) {
  EventLog first = Make(Options());
  first.Append("a\n", 1, now_);
  EventLog second = Make(Options());
  second.Append("b\n", 1, now_);
  second.Append("c\n", 1, now_);  // not said again
  EXPECT_EQ(Read(Path()), "a\n");
  EXPECT_EQ(second.lost_lines(), 2u);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("is another daemon's"), std::string::npos) << notes_[0];
}

TEST_F(EventLogTest, APipeIsNotWrittenTo) {
  ASSERT_EQ(mkfifo(Path().c_str(), 0600), 0);
  EventLog log = Make(Options());
  log.Append("a\n", 1, now_);
  EXPECT_EQ(log.lost_lines(), 1u);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("is not a regular file"), std::string::npos) << notes_[0];
}

TEST_F(EventLogTest, ALinkIsNotFollowed) {
  ASSERT_EQ(symlink(Path("elsewhere").c_str(), Path().c_str()), 0);
  EventLog log = Make(Options());
  log.Append("a\n", 1, now_);
  EXPECT_EQ(log.lost_lines(), 1u);
  EXPECT_FALSE(std::filesystem::exists(Path("elsewhere")));
}

TEST_F(EventLogTest, ADirectoryThatComesLaterIsUsed) {
  EventLogOptions options = Options();
  options.path = Path("later/events.jsonl");
  EventLog log = Make(options);
  log.Append("a\n", 1, now_);
  std::filesystem::create_directory(Path("later"));
  log.Append("b\n", 1, now_);  // it is not tried with every line
  log.Append("c\n", 1, now_ + Seconds(2));
  EXPECT_EQ(Read(options.path), "head\nc\n");
  EXPECT_EQ(log.lost_lines(), 2u);
  ASSERT_EQ(notes_.size(), 2u);
  EXPECT_EQ(notes_[1], "the event log is written again; lines lost: 2");
}

// The limit of a process in the place of a full disk: a write ends in the middle, the next one
// fails.
TEST_F(EventLogTest, AFullDiskLeavesWholeLines) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 10;
    setrlimit(RLIMIT_FSIZE, &limit);
    EventLog log = Make(Options());
    log.Append("1234567\n", 1, now_);
    log.Append("abcdefg\n", 1, now_);
    const bool as_expected = log.lost_lines() == 1 && notes_.size() == 1 &&
                             notes_[0].find("File too large") != std::string::npos;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
    log.Append("later\n", 1, now_ + Seconds(2));
    _exit(as_expected && log.lost_lines() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Read(Path()), "1234567\nlater\n");
}

}  // namespace
}  // namespace tandem::history
