#include "src/daemon/session_table.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "src/daemon/process.h"

namespace tandem::daemon {
namespace {

using service::SavedSession;

class SessionTableTest : public ::testing::Test {
 protected:
  SessionTableTest() {
    std::string pattern = ::testing::TempDir() + "sessions-XXXXXX";
    dir_ = mkdtemp(pattern.data());
    path_ = dir_ + "/tandemd.sessions";
  }
  ~SessionTableTest() override { std::filesystem::remove_all(dir_); }

  std::unique_ptr<SessionTable> Open() {
    auto table = SessionTable::Open(path_);
    EXPECT_TRUE(table.ok()) << table.error().message;
    return *std::move(table);
  }
  static SavedSession& Add(SessionTable& table, uint64_t id, int pid) {
    SavedSession* const entry = table.Add();
    EXPECT_NE(entry, nullptr);
    entry->pid = static_cast<uint32_t>(pid);
    entry->started_ticks = StartTicks(pid);
    entry->id = id;
    return *entry;
  }

  std::string dir_, path_;
};

TEST_F(SessionTableTest, WhatOneDaemonLeavesTheNextFinds) {
  auto table = Open();
  EXPECT_FALSE(table->complete());  // there may have been daemons that left nothing
  Add(*table, 7, getpid()).charged_bytes = 123;
  table->last_session() = 9;
  table = Open();
  EXPECT_TRUE(table->complete());
  ASSERT_EQ(table->found().size(), 1u);
  EXPECT_EQ(table->found()[0]->id, 7u);
  EXPECT_EQ(table->found()[0]->charged_bytes, 123u);
  EXPECT_EQ(table->last_session(), 9u);
  auto processes = table->TakeProcesses();
  ASSERT_EQ(processes.count(getpid()), 1u);
  EXPECT_FALSE(HasEnded(processes.at(getpid())));
}

TEST_F(SessionTableTest, AProcessThatIsGoneHasNothing) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  auto table = Open();
  Add(*table, 1, child);
  SavedSession& other = Add(*table, 2, getpid());
  other.started_ticks += 1;  // another process had this number
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  table = Open();
  EXPECT_TRUE(table->complete());
  EXPECT_TRUE(table->found().empty());
}

TEST_F(SessionTableTest, AFileOfAnotherKindOrOfAnotherBootIsBegunAnew) {
  std::ofstream(path_) << "garbage";
  auto table = Open();
  EXPECT_FALSE(table->complete());
  Add(*table, 1, getpid());
  table.reset();
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(16);  // the boot
  file << "another";
  file.close();
  table = Open();
  EXPECT_FALSE(table->complete());
  EXPECT_TRUE(table->found().empty());
}

TEST_F(SessionTableTest, AFullTableTakesNoMore) {
  auto table = Open();
  for (size_t i = 0; i < SessionTable::kEntries; ++i) table->Add()->id = i + 1;
  EXPECT_EQ(table->Add(), nullptr);
  table = Open();  // these were no processes
  EXPECT_NE(table->Add(), nullptr);
}

TEST_F(SessionTableTest, WhereTheDiskIsFullThereIsNone) {
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{4096, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto table = SessionTable::Open(path_);
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, before);
  ASSERT_FALSE(table.ok());
  EXPECT_NE(table.error().message.find("no room for " + path_), std::string::npos);
}

}  // namespace
}  // namespace tandem::daemon
