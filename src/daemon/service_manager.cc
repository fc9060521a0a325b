#include "src/daemon/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "src/base/unique_fd.h"

namespace tandem::daemon {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::optional<int64_t> Number(const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number <= 0) return std::nullopt;
  return number;
}

}  // namespace

ServiceManager ServiceManager::FromEnvironment() {
  ServiceManager manager;
  manager.socket_ = Variable("NOTIFY_SOCKET");
  const std::optional<int64_t> pid = Number(Variable("WATCHDOG_PID"));
  const std::optional<int64_t> limit = Number(Variable("WATCHDOG_USEC"));
  const bool meant = !pid.has_value() || *pid == getpid();
  if (limit.has_value() && meant) manager.heartbeat_ = Microseconds(*limit) / 2;
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"}) unsetenv(name);
  return manager;
}

// A socket with an abstract name begins with @ here, and with a zero for the kernel.
void ServiceManager::Tell(const std::string& state) const {
  sockaddr_un address{};
  if (socket_.empty() || socket_.size() >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (socket_[0] == '@') address.sun_path[0] = '\0';
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
         reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace tandem::daemon
