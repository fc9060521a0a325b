#include "src/daemon/listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tandem::daemon {
namespace {

constexpr int kBacklog = 256;

Error System(const std::string& what) {
  return Error{ErrorCode::kFailed, what + ": " + std::strerror(errno)};
}

Result<UniqueFd> Lock(const std::string& path) {
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return System("cannot open " + path);
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 32> pid{};
    const bool known = pread(lock.get(), pid.data(), pid.size() - 1, 0) > 0;
    return Error{ErrorCode::kUnavailable, "a daemon runs already, process " +
                                              std::string(known ? pid.data() : "unknown") +
                                              "; `tandem status` shows what it does"};
  }
  const std::string pid = std::to_string(getpid());
  if (ftruncate(lock.get(), 0) != 0 ||
      pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return System("cannot write " + path);
  }
  return lock;
}

}  // namespace

Result<Listener> Listener::Claim(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Error{ErrorCode::kInvalid, "the socket's path is too long: " + path +
                                          "; set TANDEM_RUNTIME_DIR to a shorter directory"};
  }
  ASSIGN_OR_RETURN(UniqueFd lock, Lock(path + ".lock"));
  return Listener(path, std::move(lock));
}

Status Listener::Listen(bool to_everybody) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return System("socket");
  // Each message then says who has sent it. Accepted sockets inherit this.
  const int on = 1;
  if (setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) {
    return System("SO_PASSCRED");
  }
  unlink(path_.c_str());  // we hold the lock, so no daemon listens behind it
  if (bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path_.c_str(), to_everybody ? 0666 : 0600) != 0 ||
      listen(socket.get(), kBacklog) != 0) {
    return System("cannot listen at " + path_);
  }
  socket_ = std::move(socket);
  return {};
}

Listener::~Listener() {
  if (socket_) unlink(path_.c_str());  // while the lock is still held
}

}  // namespace tandem::daemon
