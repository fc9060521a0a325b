// A scene for the daemon's tests: its loop with real sockets, memfds and processes in a directory
// of the test's own. The test turns the loop by hand, so nothing here waits for time to pass.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/daemon/closing.h"
#include "src/daemon/devices.h"
#include "src/daemon/memfd_pages.h"
#include "src/daemon/server.h"
#include "src/wire/channel.h"

namespace tandem::daemon {

using Json = nlohmann::json;

inline constexpr char kDevices[] =
    R"({"devices":[{"uuid":"GPU-1","name":"Card","software":true,"total_bytes":142606336,)"
    R"("used_bytes":0,"context_bytes":8388608,"granularity_bytes":2097152}]})";
inline constexpr Duration kPatience = Seconds(60);  // before a test gives up

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    std::string pattern = ::testing::TempDir() + "tandemd-XXXXXX";
    dir_ = mkdtemp(pattern.data());
    path_ = dir_ + "/tandemd.sock";
    Start({});
  }
  ~DaemonTest() override {
    server_.reset();
    EXPECT_FALSE(std::filesystem::exists(path_));
    std::filesystem::remove_all(dir_);
  }

  void Start(const ServerLimits& limits, Bytes foreign = {}, service::Spill spill = {},
             std::unique_ptr<SpillStore> store = nullptr) {
    server_.reset();
    Result<Listener> listener = Listener::Claim(path_);
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    ASSERT_TRUE(listener->Listen().ok());
    service::ServiceConfig config;
    config.version = "0.1";
    config.pid = getpid();
    config.started = MonotonicNow();
    config.gpus = ParseDevices(kDevices, 4).value();
    config.gpus[0].foreign = foreign;
    config.let_go = &CloseElsewhere;
    config.spill = std::move(spill);
    config.random_token = [] { return uint64_t{7}; };
    auto server = Server::Make(
        std::move(*listener), UniqueFd(),
        std::make_unique<service::Service>(std::move(config), std::make_unique<MemfdPageMaker>()),
        limits, {}, nullptr, std::move(store));
    ASSERT_TRUE(server.ok());
    server_ = std::move(*server);
  }
  wire::Channel Connect() {
    Result<wire::Channel> channel = wire::ConnectDaemon(path_);
    EXPECT_TRUE(channel.ok());
    server_->RunOnce(Duration());
    return std::move(*channel);
  }
  // Turns the loop until the channel has a message, or an error.
  Result<wire::Message> Await(wire::Channel& channel) {
    const Instant deadline = MonotonicNow() + kPatience;
    while (MonotonicNow() < deadline) {
      server_->RunOnce(Milliseconds(1));
      Result<wire::Message> message = channel.Receive(Duration());
      if (message.ok() || message.error().code != ErrorCode::kNotFound) return message;
    }
    return Error{ErrorCode::kNotFound, "nothing came"};
  }
  template <typename M>
  M Expect(wire::Channel& channel) {
    const Result<wire::Message> message = Await(channel);
    if (!message.ok()) {
      ADD_FAILURE() << message.error().message;
    } else if (const M* m = std::get_if<M>(&*message); m != nullptr) {
      return *m;
    } else {
      ADD_FAILURE() << "message of another kind: " << message->index();
    }
    return M{};
  }
  void ExpectClosed(wire::Channel& channel) {
    EXPECT_EQ(Await(channel).error().code, ErrorCode::kUnavailable);
  }
  template <typename Condition>
  bool RunUntil(Condition condition) {
    const Instant deadline = MonotonicNow() + kPatience;
    while (!condition()) {
      if (MonotonicNow() > deadline) return false;
      server_->RunOnce(Milliseconds(1));
    }
    return true;
  }
  Json Ask(const char* what) {
    wire::Channel channel = Connect();
    EXPECT_TRUE(channel.Send(wire::Query{what}).ok());
    return ParseJson(Expect<wire::Answer>(channel).json);
  }
  void SendRaw(const wire::Channel& channel, std::vector<std::byte> bytes) {
    EXPECT_EQ(send(channel.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  wire::Channel Join() {
    wire::Channel channel = Connect();
    EXPECT_TRUE(channel.Send(wire::Register{"0.1", 0, "GPU-1", "test", 0, 0, 0}).ok());
    registered_ = Expect<wire::Registered>(channel);
    return channel;
  }

  std::string dir_, path_;
  std::unique_ptr<Server> server_;
  wire::Registered registered_;
};

}  // namespace tandem::daemon
