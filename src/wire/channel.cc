#include "src/wire/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tandem::wire {
namespace {

constexpr Duration kConnectPatience = Seconds(5);

Error System(ErrorCode code, const std::string& what) {
  return Error{code, what + ": " + std::strerror(errno)};
}

// connect waits for room where too many have not been let in yet: not for ever.
bool Connect(int fd, const sockaddr_un& address) {
  const Instant deadline = MonotonicNow() + kConnectPatience;
  const timeval patience{kConnectPatience.ns / 1000000000, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  while (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno != EINTR || MonotonicNow() >= deadline) return false;
  }
  return true;
}

// Waits for `events`; false when `deadline` passed.
bool WaitFor(int fd, short events, Instant deadline) {
  for (;;) {
    const Duration left = deadline - MonotonicNow();
    if (left.ns < 0) return false;
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left.ns / 1000000 + 1));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the call that follows reports it
  }
}

}  // namespace

void AttachFds(msghdr& header, FdSpace& space, std::span<const int> fds) {
  if (fds.empty()) return;
  fds = fds.first(std::min(fds.size(), kMaxFds));
  header.msg_control = space.bytes.data();
  header.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
}

std::vector<UniqueFd> DetachFds(msghdr& header) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr;
       entry = CMSG_NXTHDR(&header, entry)) {
    if (entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (entry->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(entry) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

Result<Peer> Channel::GetPeer() const {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return System(ErrorCode::kFailed, "SO_PEERCRED");
  }
  return Peer{credentials.pid, credentials.uid};
}

Status Channel::Send(const Message& message, Duration patience, std::vector<int> fds) {
  const std::vector<std::byte> bytes = Encode(message);
  const Instant deadline = MonotonicNow() + patience;
  size_t sent = 0;
  while (sent < bytes.size()) {
    iovec piece{const_cast<std::byte*>(bytes.data()) + sent, bytes.size() - sent};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    FdSpace space{};
    if (sent == 0) AttachFds(header, space, fds);
    const ssize_t n = sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      if (!WaitFor(socket_.get(), POLLOUT, deadline)) {
        return Error{ErrorCode::kUnavailable, "the peer does not read its messages"};
      }
    } else if (errno != EINTR) {
      return System(ErrorCode::kUnavailable, "cannot send");
    }
  }
  return {};
}

Status Channel::Fill() {
  std::array<std::byte, 16384> bytes;
  iovec piece{bytes.data(), bytes.size()};
  FdSpace space{};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = space.bytes.data();
  header.msg_controllen = space.bytes.size();
  const ssize_t n = recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n == 0) return Error{ErrorCode::kUnavailable, "the peer closed the connection"};
  if (n < 0) {
    if (errno == EAGAIN || errno == EINTR) return {};
    return System(ErrorCode::kUnavailable, "cannot receive");
  }
  for (UniqueFd& fd : DetachFds(header)) {
    if (fds_.size() < kMaxFds) fds_.push_back(std::move(fd));
  }
  reader_.Append(std::span(bytes).first(static_cast<size_t>(n)));
  return {};
}

Result<Message> Channel::Receive(Duration patience) {
  const Instant deadline = MonotonicNow() + patience;
  for (;;) {
    Result<Message> message = reader_.Next();
    if (message.ok() || message.error().code != ErrorCode::kNotFound) return message;
    if (patience.ns > 0 && !WaitFor(socket_.get(), POLLIN, deadline)) return message;
    TRY(Fill());
    if (patience.ns == 0) return reader_.Next();
  }
}

Result<Channel> ConnectDaemon(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error{ErrorCode::kInvalid, "the socket's path is too long: " + path +
                                          "; set TANDEM_RUNTIME_DIR to a shorter directory"};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Channel channel(AboveStandardStreams(UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))));
  if (!channel) return System(ErrorCode::kFailed, "socket");
  if (!Connect(channel.fd(), address)) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kUnavailable;
    return System(code, "no daemon at " + path);
  }
  ASSIGN_OR_RETURN(const Peer peer, channel.GetPeer());
  if (peer.uid != 0 && peer.uid != getuid()) {
    return Error{ErrorCode::kRefused, "the daemon at " + path + " runs as user " +
                                          std::to_string(peer.uid) + ", neither root nor you"};
  }
  return channel;
}

}  // namespace tandem::wire
