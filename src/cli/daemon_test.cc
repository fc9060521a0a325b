#include "src/cli/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DaemonTest : public testing::Test {
 protected:
  DaemonTest() {
    std::string name = testing::TempDir() + "daemonXXXXXX";
    dir_ = mkdtemp(name.data());
    command_ = {{"/bin/sh", "-c", "exit 1"}, {"PATH=/usr/bin:/bin"}, dir_ + "/log"};
  }
  ~DaemonTest() override { std::filesystem::remove_all(dir_); }

  std::string socket_path() const { return dir_ + "/socket"; }

  UniqueFd Listen() const {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_path().c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(fd.get(), 4), 0);
    return fd;
  }

  std::string dir_;
  DaemonCommand command_;
};

// Two ends; the test plays the daemon at the second.
std::pair<wire::Channel, wire::Channel> Pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {wire::Channel(UniqueFd(ends[0])), wire::Channel(UniqueFd(ends[1]))};
}

TEST_F(DaemonTest, ConnectsToRootsAndStartsNone) {
  DaemonFinder finder(socket_path(), std::nullopt);
  const Result<wire::Channel> nobody = finder.Try();
  ASSERT_TRUE(nobody.ok()) << nobody.error().message;
  EXPECT_FALSE(*nobody);
  const UniqueFd listener = Listen();
  EXPECT_TRUE(*finder.Try());
  EXPECT_TRUE(finder.Await().ok());
  EXPECT_FALSE(std::filesystem::exists(command_.log));
}

TEST_F(DaemonTest, ConnectsToTheOneThatRuns) {
  const UniqueFd listener = Listen();
  EXPECT_TRUE(DaemonFinder(socket_path(), command_).Await().ok());
  EXPECT_FALSE(std::filesystem::exists(command_.log));  // none was started
}

TEST_F(DaemonTest, SaysWhyTheDaemonDidNotStart) {
  command_.arguments[2] = "echo; echo no GPU here >&2; exit 1";
  const Result<wire::Channel> channel = DaemonFinder(socket_path(), command_).Await();
  ASSERT_FALSE(channel.ok());
  EXPECT_EQ(channel.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(channel.error().message, HasSubstr("no GPU here"));
  EXPECT_THAT(channel.error().message, HasSubstr(command_.log));
}

TEST_F(DaemonTest, WaitsForTheOneAnotherProcessIsStarting) {
  // Ours leaves at once, as a daemon does that finds another; the other answers thereafter.
  const std::string mark = dir_ + "/ours-ran";
  ASSERT_EQ(mkfifo(mark.c_str(), 0600), 0);
  command_.arguments[2] = "[ -p " + mark + " ] && echo >" + mark + "; rm -f " + mark + "; exit 75";
  UniqueFd listener;
  std::thread other([&] {
    std::ifstream(mark).get();
    listener = Listen();
  });
  const Result<wire::Channel> channel = DaemonFinder(socket_path(), command_).Await();
  other.join();
  EXPECT_TRUE(channel.ok());
}

TEST_F(DaemonTest, TakesOverWhereTheOtherFails) {
  const std::string mark = dir_ + "/found-another";
  command_.arguments[2] =
      "[ -e " + mark + " ] && { echo no GPU here; exit 1; }; touch " + mark + "; exit 75";
  const Result<wire::Channel> channel = DaemonFinder(socket_path(), command_).Await();
  ASSERT_FALSE(channel.ok());
  EXPECT_THAT(channel.error().message, HasSubstr("no GPU here"));
}

TEST_F(DaemonTest, ReplacesAStaleSocket) {
  Listen().Reset();
  ASSERT_TRUE(std::filesystem::exists(socket_path()));
  command_.arguments[2] = "echo started";
  EXPECT_EQ(DaemonFinder(socket_path(), command_).Await().error().code, ErrorCode::kUnavailable);
  std::string line;
  std::ifstream log(command_.log);
  std::getline(log, line);
  EXPECT_EQ(line, "started");
}

TEST_F(DaemonTest, QuotesNoOlderDaemon) {
  std::ofstream(command_.log) << "no GPU here\n";
  const auto silent = DaemonFinder(socket_path(), command_).Await();
  EXPECT_THAT(silent.error().message, Not(HasSubstr("no GPU here")));
  command_.arguments[0] = "/nonexistent/tandemd";
  const auto missing = DaemonFinder(socket_path(), command_).Await();
  EXPECT_THAT(missing.error().message,
              HasSubstr("cannot execute the daemon, /nonexistent/tandemd"));
}

TEST_F(DaemonTest, QuotesTheDaemonAlsoWhereItsLogTakesNothing) {
  command_.log = "/dev/full";
  command_.arguments[2] = "echo tandemd: no GPU here >&2; echo cannot log >&2; exit 1";
  const auto channel = DaemonFinder(socket_path(), command_).Await();
  EXPECT_THAT(channel.error().message, HasSubstr("ended at once: tandemd: no GPU here"));
}

TEST_F(DaemonTest, QuotesWhatTheSoftwareGpuLacksBeforeWhatFollowsFromIt) {
  command_.arguments[2] = "echo tandem software GPU: bad size; echo tandemd: no GPU; exit 1";
  const auto channel = DaemonFinder(socket_path(), command_).Await();
  EXPECT_THAT(channel.error().message, HasSubstr("ended at once: tandem software GPU: bad size"));
}

TEST_F(DaemonTest, OneTryStartsOneDaemonAndWaitsForNothing) {
  // The daemon says that it was started, and then waits for ever for the pipe's other end.
  const std::string mark = dir_ + "/mark";
  ASSERT_EQ(mkfifo(mark.c_str(), 0600), 0);
  command_.arguments[2] = "echo started; read line <" + mark;
  DaemonFinder finder(socket_path(), command_);
  for (int i = 0; i < 3; ++i) {
    const Result<wire::Channel> channel = finder.Try();
    ASSERT_TRUE(channel.ok()) << channel.error().message;
    EXPECT_FALSE(*channel);
  }
  std::ofstream(mark) << "\n";
  const Result<wire::Channel> channel = finder.Await();
  EXPECT_THAT(channel.error().message, HasSubstr("ended at once: started"));
  std::ifstream log(command_.log);
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(log), {}, '\n'), 1);
}

TEST_F(DaemonTest, ReplacesTheOneThatHadAnsweredWithoutAWord) {
  const std::string mark = dir_ + "/mark";
  ASSERT_EQ(mkfifo(mark.c_str(), 0600), 0);
  command_.arguments[2] = "echo started >>" + command_.log + "; read line <" + mark;
  DaemonFinder finder(socket_path(), command_);
  ASSERT_TRUE(finder.Try().ok());
  {
    const UniqueFd listener = Listen();  // as if by the daemon
    const Result<wire::Channel> channel = finder.Try();
    ASSERT_TRUE(channel.ok() && *channel);
  }
  std::ofstream(mark) << "\n";  // it ends
  const auto starts = [&] {
    std::ifstream log(command_.log);
    return std::count(std::istreambuf_iterator<char>(log), {}, '\n');
  };
  while (starts() < 2) {
    const Result<wire::Channel> channel = finder.Try();
    ASSERT_TRUE(channel.ok()) << channel.error().message;
    std::this_thread::yield();
  }
  std::ofstream(mark) << "\n";
}

TEST_F(DaemonTest, DaemonInheritsNothing) {
  command_.arguments[2] =
      "ls /proc/self/fd | tr '\\n' ' '; cat /proc/self/stat | cut -d' ' -f6; echo $$";
  EXPECT_FALSE(DaemonFinder(socket_path(), command_).Await().ok());
  std::string fds;
  std::string own_pid;
  std::string session;
  std::ifstream log(command_.log);
  for (std::string word; log >> word && word != "3";) fds += word;
  log >> session >> own_pid;
  EXPECT_EQ(fds, "012");  // and 3, which ls itself opened
  EXPECT_EQ(session, own_pid);
}

TEST(Ask, GivesTheAnswer) {
  auto [mine, daemon] = Pair();
  ASSERT_TRUE(daemon.Send(wire::Answer{"{}"}).ok());
  const Result<wire::Message> answer = Ask(&mine, wire::Query{"status"});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(std::get<wire::Answer>(*answer).json, "{}");
  const Result<wire::Message> query = daemon.Receive(Seconds(5));
  ASSERT_TRUE(query.ok());
  EXPECT_EQ(std::get<wire::Query>(*query).what, "status");
}

TEST(Ask, PassesARefusalOn) {
  auto [mine, daemon] = Pair();
  ASSERT_TRUE(daemon.Send(wire::Refused{wire::kVersion, 4, "the card has 256 MiB"}).ok());
  const Result<wire::Message> answer = Ask(&mine, wire::RunBegin{});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kRefused);
  EXPECT_EQ(answer.error().message, "the card has 256 MiB");
}

TEST(Ask, NamesBothVersionsAndTheWayOut) {
  auto [mine, daemon] = Pair();
  ASSERT_TRUE(daemon.Send(wire::Refused{wire::kVersion + 7, 1, "?"}).ok());
  const Result<wire::Message> answer = Ask(&mine, wire::RunBegin{});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kVersion);
  EXPECT_THAT(answer.error().message, HasSubstr("version " + std::to_string(wire::kVersion + 7)));
  EXPECT_THAT(answer.error().message, HasSubstr("version " + std::to_string(wire::kVersion)));
  EXPECT_THAT(answer.error().message, HasSubstr("kill " + std::to_string(getpid())));
}

TEST(Ask, KnowsWhetherProgramsOutliveTheRestart) {
  const auto message = [](uint16_t version) {
    auto [mine, daemon] = Pair();
    EXPECT_TRUE(daemon.Send(wire::Refused{version, 1, "?"}).ok());
    return Ask(&mine, wire::RunBegin{}).error().message;
  };
  EXPECT_THAT(message(wire::kOldestVersion), HasSubstr("programs under it go on"));
  EXPECT_THAT(message(wire::kOldestVersion - 1), HasSubstr("once the programs"));
  EXPECT_THAT(message(wire::kVersion + 1), HasSubstr("once the programs"));
}

TEST(Ask, NoticesADaemonThatGoesAway) {
  auto [mine, daemon] = Pair();
  daemon.Close();
  EXPECT_EQ(Ask(&mine, wire::Query{"status"}).error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace tandem::cli
