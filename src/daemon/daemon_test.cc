#include "src/daemon/daemon_test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>

#include "src/base/json.h"
#include "src/base/testing/descriptors.h"
#include "src/daemon/options.h"

namespace tandem::daemon {
namespace {

// Of the clock by which the kernel notes when processes start.
int64_t Tick() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (now.tv_sec * 1000000000 + now.tv_nsec) / (1000000000 / sysconf(_SC_CLK_TCK));
}

TEST_F(DaemonTest, ASessionGetsItsPagesAndALease) {
  wire::Channel session = Join();
  EXPECT_EQ(Bytes(registered_.limit_bytes), MiB(102));
  std::vector<UniqueFd> fds = session.TakeFds();
  ASSERT_EQ(fds.size(), 2u);
  void* decisions = mmap(nullptr, wire::kPageBytes, PROT_READ, MAP_SHARED, fds[0].get(), 0);
  void* reports =
      mmap(nullptr, wire::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1].get(), 0);
  ASSERT_NE(decisions, MAP_FAILED);
  ASSERT_NE(reports, MAP_FAILED);
  // Neither side can make the other fault, and the decisions are the daemon's to write.
  EXPECT_NE(ftruncate(fds[0].get(), 0), 0);
  EXPECT_NE(ftruncate(fds[1].get(), 0), 0);
  EXPECT_NE(ftruncate(fds[1].get(), 1 << 20), 0);
  EXPECT_EQ(mmap(nullptr, wire::kPageBytes, PROT_WRITE, MAP_SHARED, fds[0].get(), 0), MAP_FAILED);
  EXPECT_LT(pwrite(fds[0].get(), "x", 1, 0), 0);
  auto* page = static_cast<const wire::DecisionsPage*>(decisions);
  EXPECT_EQ(page->magic, wire::kDecisionsMagic);
  ASSERT_TRUE(session.Send(wire::Reserve{1, MiB(10).count}).ok());
  ASSERT_TRUE(session.Send(wire::Ready{MiB(10).count}).ok());
  EXPECT_EQ(Expect<wire::Reserved>(session).granted, 1);
  const auto grant = Expect<wire::Grant>(session);
  EXPECT_EQ(Bytes(grant.credit_bytes), MiB(10));
  EXPECT_EQ(Bytes(page->limit_bytes.load()), MiB(102));
  static_cast<wire::ReportsPage*>(reports)->resident_bytes = MiB(10).count;
  EXPECT_EQ(Ask("sessions")["sessions"][0]["resident_bytes"], MiB(10).count);
  munmap(decisions, wire::kPageBytes);
  munmap(reports, wire::kPageBytes);
}

TEST_F(DaemonTest, HostileInputHurtsOnlyWhoeverSentIt) {
  wire::Channel session = Join();
  std::vector<std::vector<std::byte>> hostile;
  hostile.emplace_back(300, std::byte{0x5a});              // garbage
  hostile.push_back(wire::Encode(wire::Ready{1}));         // out of place
  hostile.push_back(wire::Encode(wire::Grant{}));          // not a client's
  hostile.push_back(wire::Encode(wire::Query{"status"}));  // another version
  hostile.back()[4] = std::byte{99};
  hostile.push_back(wire::Encode(wire::Query{"status"}));  // oversized
  hostile.back()[10] = std::byte{0xff};
  hostile.push_back(wire::Encode(wire::Query{"status"}));  // an unknown type
  hostile.back()[6] = std::byte{0xee};
  hostile.push_back(wire::Encode(wire::Answer{}));  // only the daemon may speak at such length
  hostile.back()[10] = std::byte{0x10};
  for (size_t i = 0; i < hostile.size(); ++i) {
    SCOPED_TRACE("input " + std::to_string(i));
    wire::Channel channel = Connect();
    SendRaw(channel, hostile[i]);
    const auto refused = Expect<wire::Refused>(channel);
    EXPECT_EQ(refused.version, wire::kVersion);
    EXPECT_FALSE(refused.reason.empty());
    ExpectClosed(channel);
  }
  wire::Channel truncated = Connect();
  std::vector<std::byte> half = wire::Encode(wire::Query{"status"});
  half.resize(half.size() - 2);
  SendRaw(truncated, half);
  server_->RunOnce(Duration());
  truncated.Close();
  ASSERT_TRUE(session.Send(wire::Ready{1}).ok());
  Expect<wire::Grant>(session);
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 1; }));
  // Half a message from a session, and nothing more: no other client waits for the rest.
  half = wire::Encode(wire::Reserve{1, MiB(1).count});
  half.resize(half.size() - 2);
  SendRaw(session, half);
  EXPECT_EQ(Ask("status")["gpus"][0]["holders"].size(), 1u);
  SendRaw(session, {std::byte{0}, std::byte{0}});
  EXPECT_EQ(Expect<wire::Reserved>(session).granted, 1);
}

TEST_F(DaemonTest, MemoryGoesFromOneProcessToAnother) {
  wire::Channel session = Join();
  UniqueFd memory(memfd_create("memory", MFD_CLOEXEC));
  ASSERT_EQ(pwrite(memory.get(), "mine", 4, 0), 4);
  wire::Channel offerer = Connect();
  ASSERT_TRUE(offerer.Send(wire::Offer{1, 2, "GPU-1"}, kPatience, {memory.get()}).ok());
  Expect<wire::Offered>(offerer);
  memory.Reset();
  wire::Channel fetcher = Connect();
  ASSERT_TRUE(fetcher.Send(wire::Fetch{1, 3}).ok());
  Expect<wire::Refused>(fetcher);
  ASSERT_TRUE(fetcher.Send(wire::Fetch{1, 2}).ok());
  Expect<wire::Fetched>(fetcher);
  const std::vector<UniqueFd> fds = fetcher.TakeFds();
  ASSERT_EQ(fds.size(), 1u);
  char bytes[4] = {};
  EXPECT_EQ(pread(fds[0].get(), bytes, 4, 0), 4);
  EXPECT_EQ(std::string(bytes, 4), "mine");
  ASSERT_TRUE(session.Send(wire::Withdraw{1, 2}).ok());
  ASSERT_TRUE(session.Send(wire::Reserve{1, 1}).ok());
  Expect<wire::Reserved>(session);
  fetcher = Connect();
  ASSERT_TRUE(fetcher.Send(wire::Fetch{1, 2}).ok());
  Expect<wire::Refused>(fetcher);
}

TEST_F(DaemonTest, WhoFetchesOftenAndDoesNotReadTakesNoDescriptors) {
  wire::Channel session = Join();
  const UniqueFd memory(memfd_create("memory", MFD_CLOEXEC));
  wire::Channel offerer = Connect();
  ASSERT_TRUE(offerer.Send(wire::Offer{1, 2, "GPU-1"}, kPatience, {memory.get()}).ok());
  Expect<wire::Offered>(offerer);
  wire::Channel deaf = Connect();
  const size_t before = OpenDescriptors();
  std::vector<std::byte> questions;
  for (int i = 0; i < 1000; ++i) {
    const std::vector<std::byte> question = wire::Encode(wire::Fetch{1, 2});
    questions.insert(questions.end(), question.begin(), question.end());
  }
  SendRaw(deaf, questions);
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 2; }));
  EXPECT_LT(OpenDescriptors(), before);  // that connection's is gone
  Expect<wire::Fetched>(deaf);           // and the first question answered
  ExpectClosed(deaf);
}

// Whatever message it comes with.
TEST_F(DaemonTest, DescriptorsOfAnythingElseAreClosed) {
  wire::Channel session = Join();
  const std::vector<wire::Message> messages = {wire::Offer{1, 2, "GPU-1"}, wire::Query{"status"},
                                               wire::Fetch{1, 2}};
  for (const wire::Message& message : messages) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    const UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    wire::Channel channel = Connect();
    ASSERT_TRUE(channel.Send(message, kPatience, {writer.get(), writer.get()}).ok());
    writer.Reset();
    Await(channel).ok();
    char byte;
    EXPECT_TRUE(RunUntil([&] { return read(reader.get(), &byte, 1) == 0; }));
  }
}

TEST_F(DaemonTest, WhoeverSaysNothingIsDropped) {
  Start({.newcomer_patience = Milliseconds(1)});
  wire::Channel silent = Connect();
  ExpectClosed(silent);
}

TEST_F(DaemonTest, SilentConnectionsDoNotKeepOthersOut) {
  Start({.max_newcomers = 4, .newcomer_patience = Seconds(1000)});
  wire::Channel session = Join();
  std::vector<wire::Channel> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(Connect());
  EXPECT_LE(server_->connections(), 5u);
  EXPECT_EQ(Ask("status")["gpus"][0]["uuid"], "GPU-1");
  ASSERT_TRUE(session.Send(wire::Ready{1}).ok());
  Expect<wire::Grant>(session);
}

TEST_F(DaemonTest, WhoeverDoesNotReadIsDroppedAndBlocksNobody) {
  wire::Channel deaf = Connect();
  for (int i = 0; i < 100000 && server_->connections() > 0; ++i) {
    const std::vector<std::byte> query = wire::Encode(wire::Query{"status"});
    send(deaf.fd(), query.data(), query.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    server_->RunOnce(Duration());
  }
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_EQ(Ask("status")["gpus"][0]["uuid"], "GPU-1");
}

TEST_F(DaemonTest, AClosedSocketReturnsNothingTheEndOfTheProcessAll) {
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {  // registers, takes memory, closes its socket and lives on
    close(hold[1]);
    {
      Result<wire::Channel> channel = wire::ConnectDaemon(path_);
      if (!channel.ok()) _exit(1);
      static_cast<void>(channel->Send(wire::Register{"0.1", 0, "GPU-1", "child", 0, 0, 0}));
      static_cast<void>(channel->Send(wire::Reserve{1, MiB(50).count}));
      static_cast<void>(channel->Send(wire::Ready{MiB(50).count}));
      for (int i = 0; i < 3; ++i) static_cast<void>(channel->Receive(Seconds(60)));
    }
    char end;
    _exit(read(hold[0], &end, 1) == 0 ? 0 : 1);
  }
  close(hold[0]);
  const auto charged = [&] { return Ask("status")["gpus"][0]["charged_bytes"]; };
  EXPECT_TRUE(RunUntil([&] { return charged() == MiB(50).count; }));
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 0; }));
  EXPECT_EQ(charged(), MiB(50).count);
  wire::Channel waiter = Join();
  ASSERT_TRUE(waiter.Send(wire::Reserve{1, MiB(80).count}).ok());
  ASSERT_TRUE(waiter.Send(wire::Ready{MiB(80).count}).ok());
  EXPECT_EQ(Expect<wire::Reserved>(waiter).granted, 1);
  kill(child, SIGKILL);
  EXPECT_EQ(Bytes(Expect<wire::Grant>(waiter).credit_bytes), MiB(80));
  waitpid(child, nullptr, 0);
  close(hold[1]);
  EXPECT_EQ(charged(), MiB(80).count);
}

TEST_F(DaemonTest, WhoeverLeavesBeforeTheAnswerIsSeenToEnd) {
  const pid_t child = fork();
  if (child == 0) {
    Result<wire::Channel> channel = wire::ConnectDaemon(path_);
    if (!channel.ok()) _exit(1);
    static_cast<void>(
        channel->Send(wire::Register{"0.1", 0, "GPU-1", "child", 0, MiB(50).count, 0}));
    _exit(0);
  }
  // Ended, but its number is not free yet: the daemon comes to its message only now.
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  server_->RunOnce(Seconds(1));
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 0; }));
  EXPECT_TRUE(RunUntil([&] { return Ask("sessions")["sessions"].empty(); }));
  EXPECT_EQ(Ask("status")["gpus"][0]["charged_bytes"], 0);
  waitpid(child, nullptr, 0);
}

TEST_F(DaemonTest, WithoutDescriptorsItTurnsAwayInsteadOfSpinning) {
  std::vector<UniqueFd> hoard;
  wire::Channel late = wire::ConnectDaemon(path_).value();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  for (UniqueFd fd; (fd = UniqueFd(open("/dev/null", O_RDONLY)));) hoard.push_back(std::move(fd));
  server_->RunOnce(Duration());
  setrlimit(RLIMIT_NOFILE, &before);
  hoard.clear();
  const Result<wire::Message> end = late.Receive(Seconds(60));
  EXPECT_EQ(end.error().code, ErrorCode::kUnavailable);  // not left waiting in the queue
  EXPECT_EQ(Ask("status")["gpus"][0]["uuid"], "GPU-1");
}

TEST_F(DaemonTest, ARestartedDaemonTakesSessionsBackWithWhatTheyHave) {
  wire::Channel session = Join();
  Start({}, MiB(38));  // as after a crash: the socket is gone for the session
  ExpectClosed(session);
  session = Connect();
  ASSERT_TRUE(
      session.Send(wire::Register{"0.1", 0, "GPU-1", "test", MiB(40).count, MiB(30).count, 1})
          .ok());
  Expect<wire::Registered>(session);
  const Json listed = Ask("sessions")["sessions"][0];
  EXPECT_EQ(listed["allocated_bytes"], MiB(40).count);
  EXPECT_EQ(listed["credit_bytes"], MiB(30).count);
  EXPECT_EQ(listed["contexts"], 1);
}

TEST_F(DaemonTest, WhoeverIsHeldUntilTheOthersAreBackIsSeenToEnd) {
  Start({}, MiB(8));
  // A process of the next tick of the kernel's clock cannot be from before the daemon.
  for (const int64_t tick = Tick(); Tick() == tick;) server_->RunOnce(Milliseconds(1));
  const pid_t child = fork();
  if (child == 0) {
    Result<wire::Channel> channel = wire::ConnectDaemon(path_);
    if (!channel.ok()) _exit(1);
    static_cast<void>(channel->Send(wire::Register{"0.1", 0, "GPU-1", "child", 0, 0, 0}));
    _exit(channel->Receive(Seconds(60)).ok() ? 0 : 1);
  }
  int status = 1;
  EXPECT_TRUE(RunUntil([&] { return waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_EQ(status, 0);  // it was let in after all
  EXPECT_TRUE(RunUntil([&] { return Ask("sessions")["sessions"].empty(); }));
}

TEST_F(DaemonTest, WhoeverIsHeldUntilItsRunIsBackIsSeenToEnd) {
  Start({});
  for (const int64_t tick = Tick(); Tick() == tick;) server_->RunOnce(Milliseconds(1));
  const pid_t child = fork();
  if (child == 0) {
    Result<wire::Channel> channel = wire::ConnectDaemon(path_);
    if (!channel.ok()) _exit(1);
    static_cast<void>(channel->Send(wire::Register{"0.1", 77, "GPU-1", "child", 0, 0, 0}));
    _exit(channel->Receive(Seconds(60)).ok() ? 0 : 1);
  }
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 1; }));
  wire::Channel run = Connect();
  ASSERT_TRUE(run.Send(wire::RunBegin{"0.1", "", "child", 0, 77}).ok());
  int status = 1;
  EXPECT_TRUE(RunUntil([&] { return waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(RunUntil([&] { return Ask("sessions")["sessions"].empty(); }));
}

TEST_F(DaemonTest, OnlyOneDaemonRunsAndAStaleSocketIsReplaced) {
  const Result<Listener> second = Listener::Claim(path_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(second.error().message.find(std::to_string(getpid())), std::string::npos);
  server_.reset();
  std::ofstream(path_) << "left behind";
  Start({});
  EXPECT_EQ(Ask("status")["gpus"][0]["uuid"], "GPU-1");
}

TEST_F(DaemonTest, EndsByItselfWhenNobodyIsThere) {
  Start({.exit_when_idle = Milliseconds(1)});
  { wire::Channel session = Join(); }
  for (int i = 0; i < 20; ++i) server_->RunOnce(Milliseconds(1));
  EXPECT_FALSE(server_->finished());  // this process, which has a session, lives
  Start({.exit_when_idle = Milliseconds(1)});
  server_->RunOnce(Seconds(60));  // it does not wait for a first connection
  EXPECT_TRUE(server_->finished());
}

TEST(DevicesTest, ChunksFollowTheCard) {
  const auto chunk = [](Bytes card, Bytes granularity) {
    Json device = ParseJson(kDevices);
    device["devices"][0]["total_bytes"] = card.count;
    device["devices"][0]["granularity_bytes"] = granularity.count;
    return ParseDevices(JsonText(device), 4).value()[0].chunk;
  };
  EXPECT_EQ(chunk(MiB(64), MiB(2)), MiB(2));
  EXPECT_EQ(chunk(GiB(1), MiB(2)), MiB(10));
  EXPECT_EQ(chunk(GiB(80), MiB(2)), MiB(64));
}

TEST(DevicesTest, WhatAContextCostsOnAFullCardIsKnownFromBefore) {
  Json full = ParseJson(kDevices);
  full["devices"][0]["context_bytes"] = 0;
  full["unusable"] = {"GPU 1: it is broken"};
  EXPECT_TRUE(IsComplete(kDevices));
  EXPECT_FALSE(IsComplete(JsonText(full)));
  EXPECT_EQ(ParseDevices(JsonText(full), 4, kDevices).value()[0].context, MiB(8));
  for (const char* earlier : {"", "{", "[]", R"({"devices":[1]})", R"({"devices":7})"}) {
    EXPECT_EQ(ParseDevices(JsonText(full), 4, earlier).value()[0].context, Bytes((136 << 20) / 16));
    EXPECT_FALSE(IsComplete(earlier)) << earlier;
  }
}

TEST(DevicesTest, ADriverThatDoesNotAnswerIsGivenUp) {
  const std::string path = ::testing::TempDir() + "silent-" + std::to_string(getpid());
  std::ofstream(path) << "#!/bin/sh\nexec sleep 1000\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  const Result<std::string> answer = RunProbe(path, Milliseconds(1));
  std::filesystem::remove(path);
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("does not say"), std::string::npos);
}

TEST(DevicesTest, TheProbeSeesAllGpus) {
  const std::string path = ::testing::TempDir() + "environment-" + std::to_string(getpid());
  std::ofstream(path) << "#!/bin/sh\nenv\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  const Result<std::string> answer = RunProbe(path, Seconds(60));
  unsetenv("CUDA_VISIBLE_DEVICES");
  std::filesystem::remove(path);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->find("CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST(DevicesTest, SaysWhatToDoWithoutAGpu) {
  const auto none = ParseDevices(R"({"error":"no libcuda"})", 4);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_NE(none.error().message.find("TANDEM_GPU=soft"), std::string::npos);
  for (const char* text : {"", "{", "[]", "{}", R"({"devices":[]})", R"({"devices":[1]})",
                           R"({"devices":[{"uuid":1}]})", R"({"devices":7})"}) {
    EXPECT_FALSE(ParseDevices(text, 4).ok()) << text;
  }
}

TEST(OptionsTest, AreParsed) {
  const char* arguments[] = {"tandemd", "--exit-when-idle", "2.5", "--reserve-contexts", "2"};
  const ParsedOptions parsed = ParseOptions(5, arguments);
  EXPECT_FALSE(parsed.exit_status.has_value());
  EXPECT_EQ(*parsed.options.exit_when_idle, Milliseconds(2500));
  EXPECT_EQ(parsed.options.reserved_contexts, 2u);
  EXPECT_EQ(parsed.options.turns.cost_multiple, core::TurnRules().cost_multiple);
  const char* wrong[] = {"tandemd", "--nonsense"};
  EXPECT_NE(ParseOptions(2, wrong).exit_status.value_or(0), 0);
}

// What `tandem run` starts has no command line of the user's.
TEST(OptionsTest, TurnsAreSetByTheEnvironmentToo) {
  const char* arguments[] = {"tandemd", "--turn", "5s", "--alone"};
  core::TurnRules turns = ParseOptions(4, arguments).options.turns;
  EXPECT_EQ(turns.Quantum(Seconds(1)), Seconds(5));
  EXPECT_TRUE(turns.alone);
  setenv("TANDEM_TURN", "100ms", 1);
  setenv("TANDEM_ALONE", "1", 1);
  turns = ParseOptions(1, arguments).options.turns;
  EXPECT_EQ(turns.Quantum(Seconds(1)), Milliseconds(100));
  EXPECT_TRUE(turns.alone);
  EXPECT_EQ(ParseOptions(3, arguments).options.turns.Quantum(Seconds(1)), Seconds(5));
  setenv("TANDEM_ALONE", "sometimes", 1);
  EXPECT_NE(ParseOptions(1, arguments).exit_status.value_or(0), 0);
  unsetenv("TANDEM_ALONE");
  for (const std::string wrong : {"soon", "5", "-1s"}) {
    setenv("TANDEM_TURN", wrong.c_str(), 1);
    testing::internal::CaptureStderr();
    EXPECT_NE(ParseOptions(1, arguments).exit_status.value_or(0), 0) << wrong;
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("TANDEM_TURN is \"" + wrong + "\""), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  }
  unsetenv("TANDEM_TURN");
}

TEST(OptionsTest, APolicyIsOneThatThereIs) {
  const char* arguments[] = {"tandemd", "--policy", "fcfs"};
  EXPECT_EQ(ParseOptions(3, arguments).options.policy, "fcfs");
  EXPECT_EQ(ParseOptions(1, arguments).options.policy, "interactive");
  setenv("TANDEM_POLICY", "round-robin", 1);
  EXPECT_EQ(ParseOptions(1, arguments).options.policy, "round-robin");
  setenv("TANDEM_POLICY", "mine", 1);
  testing::internal::CaptureStderr();
  EXPECT_NE(ParseOptions(1, arguments).exit_status.value_or(0), 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("TANDEM_POLICY is \"mine\""), std::string::npos) << said;
  EXPECT_NE(said.find("round-robin"), std::string::npos) << said;
  unsetenv("TANDEM_POLICY");
}

TEST(OptionsTest, TheWaitForWhatCannotBeSwappedIsSetByTheEnvironmentToo) {
  const char* arguments[] = {"tandemd", "--fixed-wait", "5m"};
  EXPECT_EQ(ParseOptions(1, arguments).options.fixed_wait, Seconds(60));
  EXPECT_EQ(ParseOptions(3, arguments).options.fixed_wait, Seconds(300));
  setenv("TANDEM_FIXED_WAIT", "500ms", 1);
  EXPECT_EQ(ParseOptions(1, arguments).options.fixed_wait, Milliseconds(500));
  EXPECT_EQ(ParseOptions(3, arguments).options.fixed_wait, Seconds(300));
  setenv("TANDEM_FIXED_WAIT", "soon", 1);
  testing::internal::CaptureStderr();
  EXPECT_NE(ParseOptions(1, arguments).exit_status.value_or(0), 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("TANDEM_FIXED_WAIT is \"soon\""), std::string::npos) << said;
  unsetenv("TANDEM_FIXED_WAIT");
}

TEST(OptionsTest, ChaosHasShortTurnsUnlessToldOtherwise) {
  const char* arguments[] = {"tandemd", "--chaos", "--seed", "7", "--turn", "2s"};
  Options options = ParseOptions(4, arguments).options;
  EXPECT_TRUE(options.chaos);
  EXPECT_EQ(options.seed, 7u);
  EXPECT_LT(options.turns.Quantum(Seconds(1)), Milliseconds(10));
  EXPECT_EQ(ParseOptions(6, arguments).options.turns.Quantum(Seconds(1)), Seconds(2));
  setenv("TANDEM_CHAOS", "1", 1);
  setenv("TANDEM_SEED", "8", 1);
  options = ParseOptions(1, arguments).options;
  EXPECT_TRUE(options.chaos);
  EXPECT_EQ(options.seed, 8u);
  setenv("TANDEM_SEED", "eight", 1);
  EXPECT_NE(ParseOptions(1, arguments).exit_status.value_or(0), 0);
  unsetenv("TANDEM_SEED");
  unsetenv("TANDEM_CHAOS");
}

}  // namespace
}  // namespace tandem::daemon
