#include "src/daemon/meter.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/cuda/memory_use.h"
#include "src/daemon/driver_child.h"

namespace tandem::daemon {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxAnswer = 1 << 20;

Json ToJson(const std::map<std::string, cuda::MemoryUse>& uses) {
  Json answer = Json::object();
  for (const auto& [uuid, use] : uses) {
    Json processes = Json::array();
    for (const auto& [pid, range] : use.processes) {
      processes.push_back({pid, range.least.count, range.most.count});
    }
    answer[uuid] = {{"free", use.free.count}, {"processes", std::move(processes)}};
  }
  return answer;
}

std::optional<service::CardUses> Parse(const std::string& text) {
  const Json answer = ParseJson(text);
  if (!answer.is_object()) return std::nullopt;
  service::CardUses uses;
  try {
    for (const auto& [uuid, use] : answer.items()) {
      service::CardUse& card = uses.of[uuid];
      card.free = Bytes(use.at("free").get<uint64_t>());
      for (const Json& process : use.at("processes")) {
        card.processes[process.at(0).get<int>()] = {Bytes(process.at(1).get<uint64_t>()),
                                                    Bytes(process.at(2).get<uint64_t>())};
      }
    }
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return uses;
}

}  // namespace

int RunMeter() {
  char question = 0;
  while (read(STDIN_FILENO, &question, 1) == 1) {
    const auto uses = cuda::ReadMemoryUse();
    if (!uses.ok()) return 1;
    const std::string line = JsonText(ToJson(*uses)) + "\n";
    if (std::fputs(line.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return 1;
  }
  return 0;
}

Meter::~Meter() {
  if (child_ > 0) kill(child_, SIGKILL);
  if (child_ > 0) waitpid(child_, nullptr, WNOHANG);
}

bool Meter::Start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  socket_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  const Result<pid_t> child = StartDriverChild(program_, "--meter", theirs.get(), theirs.get());
  if (!child.ok()) return false;
  child_ = *child;
  return true;
}

void Meter::Ask(Instant now) {
  Reap();
  if (asked() || now < rests_until_) return;
  asked_at_ = now;
  text_.clear();
  const bool ready = child_ > 0 || Start();
  if (!ready || send(socket_.get(), "?", 1, MSG_NOSIGNAL) != 1) GiveUp(now);
}

std::optional<service::CardUses> Meter::Take(Instant now) {
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t n = read(socket_.get(), part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return std::nullopt;
    if (n <= 0 || text_.size() > kMaxAnswer) break;
    text_.append(part.data(), static_cast<size_t>(n));
    if (text_.back() != '\n') continue;
    std::optional<service::CardUses> uses = Parse(text_);
    if (!uses.has_value() || !asked()) break;
    uses->asked_at = *asked_at_;
    asked_at_.reset();
    return uses;
  }
  GiveUp(now);
  return std::nullopt;
}

void Meter::GiveUp(Instant now) {
  spdlog::debug("the memory in use on the cards cannot be measured now");
  if (child_ > 0) {
    kill(child_, SIGKILL);
    dying_.push_back(child_);
  }
  child_ = 0;
  socket_.Reset();
  asked_at_.reset();
  rests_until_ = now + kRest;
}

// A process that the driver holds does not die at once.
void Meter::Reap() {
  std::erase_if(dying_, [](pid_t child) { return waitpid(child, nullptr, WNOHANG) != 0; });
}

void Meter::OnTime(Instant now) {
  if (asked() && now >= *asked_at_ + kPatience) GiveUp(now);
}

std::optional<Instant> Meter::wake() const {
  if (!asked()) return std::nullopt;
  return *asked_at_ + kPatience;
}

}  // namespace tandem::daemon
