// A scene for the service's tests: one card with a budget of 100 MiB, connections by number, and
// what the service said last.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/json.h"

#include "src/service/service.h"

namespace tandem::service {

using Json = nlohmann::json;

class FakePages : public SessionPages {
 public:
  wire::DecisionsPage& decisions() override { return decisions_; }
  const wire::ReportsPage& reports() const override { return reports_; }
  std::vector<int> fds() const override { return {7, 8}; }
  wire::DecisionsPage decisions_{};
  wire::ReportsPage reports_{};
};

class FakePageMaker : public PageMaker {
 public:
  explicit FakePageMaker(std::vector<FakePages*>& made) : made_(made) {}
  Result<std::unique_ptr<SessionPages>> Make() override {
    auto pages = std::make_unique<FakePages>();
    made_.push_back(pages.get());
    return std::unique_ptr<SessionPages>(std::move(pages));
  }

 private:
  std::vector<FakePages*>& made_;
};

inline constexpr char kGpu[] = "GPU-1";

// Whether two descriptors are of the same file shows in this.
inline ino_t FileOf(const UniqueFd& fd) {
  struct stat status {};
  EXPECT_EQ(fstat(fd.get(), &status), 0);
  return status.st_ino;
}

class ServiceTest : public ::testing::Test {
 protected:
  // Budget: 100 MiB = 134 − 4 × 8 − 2.
  explicit ServiceTest(Bytes foreign = {}, std::optional<uint64_t> chaos_seed = {},
                       Bytes host = GiB(1), bool host_measured = false, Spill spill = {})
      : service_(Config(foreign, chaos_seed, host, host_measured, std::move(spill), &token_),
                 std::make_unique<FakePageMaker>(pages_)) {}

  explicit ServiceTest(ServiceConfig config)
      : service_(std::move(config), std::make_unique<FakePageMaker>(pages_)) {}

  static ServiceConfig Config(Bytes foreign, std::optional<uint64_t> chaos_seed, Bytes host,
                              bool host_measured, Spill spill, uint64_t* token) {
    ServiceConfig config;
    config.version = "0.1";
    config.socket = "/s";
    config.pid = 42;
    config.gpus = {GpuInfo{0, kGpu, "Card", true, MiB(134), foreign, MiB(8), MiB(2), 4}};
    config.random_token = [token] { return ++*token; };
    config.chaos_seed = chaos_seed;
    config.host_memory = host;
    config.host_memory_measured = host_measured;
    config.spill = std::move(spill);
    return config;
  }

  void Connect(ConnectionId id, int pid, unsigned uid = 1000, bool predates = false) {
    service_.OnConnected(id, Client{pid, uid, predates});
  }
  void Say(ConnectionId id, const wire::Message& message) {
    said_ = service_.OnMessage(id, message, now_);
  }
  // Connects and registers.
  void Join(ConnectionId id, int pid, uint64_t run = 0, unsigned uid = 1000) {
    Connect(id, pid, uid);
    Say(id, wire::Register{"0.1", run, kGpu, "train", 0, 0, 0});
  }
  // Has that much allocated, and needs it on the card.
  void Want(ConnectionId id, Bytes bytes) {
    Say(id, wire::Reserve{1, bytes.count});
    Say(id, wire::Ready{bytes.count});
  }
  template <typename M>
  M Heard(ConnectionId id) {
    for (const Outgoing& out : said_) {
      if (out.to != id || !out.message) continue;
      if (const M* m = std::get_if<M>(&*out.message); m != nullptr) return *m;
    }
    ADD_FAILURE() << "connection " << id << " was told no message of type " << M::kType;
    return M{};
  }
  template <typename M>
  bool Silent(ConnectionId id) {
    for (const Outgoing& out : said_) {
      if (out.to == id && out.message && std::holds_alternative<M>(*out.message)) return false;
    }
    return true;
  }
  bool Closed(ConnectionId id) {
    for (const Outgoing& out : said_) {
      if (out.to == id && out.close) return true;
    }
    return false;
  }
  wire::RefusalCode Refusal(ConnectionId id) {
    return static_cast<wire::RefusalCode>(Heard<wire::Refused>(id).code);
  }
  Json Ask(const char* what) {
    Connect(999, 999);
    Say(999, wire::Query{what});
    const Json answer = ParseJson(Heard<wire::Answer>(999).json);
    said_ = service_.OnDisconnected(999, now_);
    return answer;
  }

  std::vector<FakePages*> pages_;
  uint64_t token_ = 70;
  Service service_;
  Instant now_{1000000000};
  std::vector<Outgoing> said_;
};

}  // namespace tandem::service
