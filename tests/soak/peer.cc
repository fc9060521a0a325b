#include "tests/soak/peer.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace soak {
namespace {

using tandem::UniqueFd;

constexpr int kKind = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

[[noreturn]] void Fail(const char* call) {
  std::fprintf(stderr, "soak_worker: %s: %s\n", call, std::strerror(errno));
  std::_Exit(2);
}

// bind or connect.
using NameCall = int (*)(int, const sockaddr*, socklen_t);

bool DoAt(NameCall call, const UniqueFd& socket, const std::string& path) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  std::copy_n(path.data(), std::min(path.size(), sizeof(name.sun_path) - 1), name.sun_path);
  return call(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
}

}  // namespace

Peer::Peer(std::string path, bool waits) : path_(std::move(path)) {
  if (!waits) return;
  unlink(path_.c_str());  // of one that was killed
  waiting_ = UniqueFd(socket(AF_UNIX, kKind, 0));
  if (!DoAt(bind, waiting_, path_) || listen(waiting_.get(), 1) != 0) Fail("bind");
}

bool Peer::Find() {
  if (connection_) return true;
  if (waiting_) {
    connection_ = UniqueFd(accept4(waiting_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    return static_cast<bool>(connection_);
  }
  UniqueFd calling(socket(AF_UNIX, kKind, 0));
  if (DoAt(connect, calling, path_)) connection_ = std::move(calling);
  return static_cast<bool>(connection_);
}

bool Peer::SendBytes(const void* bytes, size_t count) {
  if (!connection_) return false;
  const ssize_t sent = send(connection_.get(), bytes, count, MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(count);
}

Peer::Heard Peer::ReceiveBytes(void* bytes, size_t count) {
  if (!connection_) return Heard::kGone;
  const ssize_t received = recv(connection_.get(), bytes, count, 0);
  if (received == static_cast<ssize_t>(count)) return Heard::kMessage;
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kNothing;
  connection_.Reset();
  return Heard::kGone;
}

}  // namespace soak
