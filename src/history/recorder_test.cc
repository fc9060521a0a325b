#include "src/history/recorder.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/history/accounts_reader.h"

namespace tandem::history {
namespace {

using Json = nlohmann::json;

Record Idle(uint64_t session) {
  return Record{Instant(1), 1, Told{0, core::event::Idle{core::SessionId{session}, 1}}};
}

Record Used(double held_s = 0) {
  auto who = std::make_shared<SessionIdentity>();
  who->session = 1;
  who->uid = 7;
  Usage usage;
  usage.of = std::move(who);
  usage.to_unix_ns = 1000000000;
  usage.held_s = held_s;
  return Record{Instant(1), 1, std::move(usage)};
}

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() {
    char name[] = "/tmp/tandem-recorder-XXXXXX";
    dir_ = mkdtemp(name);
    config_.events.path = dir_ + "/events.jsonl";
    config_.note = [](const std::string& line) { ADD_FAILURE() << line; };
  }
  ~RecorderTest() override { std::filesystem::remove_all(dir_); }

  std::vector<Json> Lines(const std::string& ending = "") const {
    std::ifstream file(config_.events.path + ending);
    std::vector<Json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(ParseJson(line));
    return lines;
  }
  std::string dir_;
  RecorderConfig config_;
};

TEST_F(RecorderTest, WritesAllThatWasPutBeforeItsEndInOrder) {
  {
    Recorder recorder(config_);
    for (uint64_t i = 0; i < 1000; ++i) recorder.Put(Idle(i));
  }
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 1000u);
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(lines[i]["session"], i);
}

TEST_F(RecorderTest, WhatComesTooFastIsCounted) {
  std::promise<void> hangs, may_go;
  config_.most_queued = 10;
  bool first = true;
  config_.user_name = [&](unsigned) {
    if (std::exchange(first, false)) {
      hangs.set_value();
      may_go.get_future().wait();
    }
    return std::string();
  };
  {
    Recorder recorder(config_);
    recorder.Put(Used());
    hangs.get_future().wait();
    for (uint64_t i = 1; i <= 25; ++i) recorder.Put(Idle(i));
    EXPECT_EQ(recorder.lost(), 15u);
    may_go.set_value();
  }
  const std::vector<Json> lines = Lines();
  ASSERT_EQ(lines.size(), 12u);
  EXPECT_EQ(lines[10]["session"], 10);
  EXPECT_EQ(lines[11]["event"], "lost");
  EXPECT_EQ(lines[11]["count"], 15);
}

TEST_F(RecorderTest, AFileSystemThatHangsDoesNotKeepItFromEnding) {
  auto hangs = std::make_shared<std::promise<void>>();
  config_.events.path.clear();
  config_.note = [](const std::string&) {};  // its thread outlives this test
  config_.user_name = [hangs](unsigned) {
    hangs->get_future().wait();
    return std::string();
  };
  { Recorder(config_).Put(Used()); }
  hangs->set_value();
}

TEST_F(RecorderTest, EachFileKnowsTheDaemonAndItsSessions) {
  config_.events.most_bytes = 400;
  auto who = std::make_shared<SessionIdentity>();
  who->session = 3;
  who->program = "train";
  auto gone = std::make_shared<SessionIdentity>();
  gone->session = 4;
  const auto put = [&](Recorder& recorder, decltype(Record::what) what) {
    recorder.Put(Record{Instant(1), 1, std::move(what)});
  };
  {
    Recorder recorder(config_);
    put(recorder, DaemonStarted{"0.1", 42, "fair", {}});
    put(recorder, SessionIdentified{who});
    put(recorder, SessionIdentified{gone});
    Usage last;
    last.of = gone;
    last.last = true;
    put(recorder, last);
  }
  {
    // As one daemon goes on: its first lines are the file's, and the second file's head.
    Recorder recorder(config_);
    put(recorder, DaemonStarted{"0.1", 42, "fair", {}});
    put(recorder, SessionIdentified{who});
  }
  const std::vector<Json> lines = Lines();
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[0]["event"], "daemon");
  EXPECT_EQ(lines[1]["program"], "train");
  EXPECT_FALSE(Lines(".1").empty());
}

TEST_F(RecorderTest, TheAccountsGetWhatWasUsedWithTheUsersName) {
  config_.accounts_file = dir_ + "/accounts.db";
  config_.user_name = [](unsigned uid) { return "user" + std::to_string(uid); };
  {
    Recorder recorder(config_);
    for (int i = 0; i < 3; ++i) recorder.Put(Used(i));
  }
  AccountsQuery query;
  query.until_ns = int64_t{2} * 1000000000;
  query.by = {AccountsKey::kUser};
  const auto answer = ReadAccounts(config_.accounts_file, query);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  ASSERT_EQ(answer->rows.size(), 1u);
  EXPECT_EQ(answer->rows[0].keys, std::vector<std::string>{"user7"});
  EXPECT_EQ(answer->rows[0].amounts.held_ns, int64_t{3} * 1000000000);
}

}  // namespace
}  // namespace tandem::history
