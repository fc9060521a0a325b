#include "src/daemon/connection.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "src/daemon/closing.h"
#include "src/daemon/received_memory.h"
#include "src/wire/channel.h"

namespace tandem::daemon {
namespace {

constexpr size_t kMaxQueued = size_t{256} * 1024;  // bytes that may wait before another message
constexpr size_t kCredentials = CMSG_SPACE(sizeof(ucred));
constexpr size_t kMostInMessage = 253;  // descriptors; the kernel's SCM_MAX_FD

Error Gone(const char* why) {
  return Error{ErrorCode::kUnavailable, why};
}

// Whether all descriptors of a message could be received now.
bool HasRoomForDescriptors(int any) {
  std::array<UniqueFd, kMostInMessage> taken;
  return std::all_of(taken.begin(), taken.end(), [any](UniqueFd& fd) {
    fd.Reset(fcntl(any, F_DUPFD_CLOEXEC, 0));
    return static_cast<bool>(fd);
  });
}

int SenderOf(msghdr& header) {
  for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr;
       entry = CMSG_NXTHDR(&header, entry)) {
    if (entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(entry), sizeof(sender));
    return sender.pid;
  }
  return 0;
}

}  // namespace

Connection::~Connection() {
  CloseElsewhere(std::move(memory_), uid_);
  for (Frame& frame : queue_) CloseElsewhere(std::move(frame.file), uid_);
  CloseSocket(std::move(socket_), uid_);
}

Result<wire::Message> Connection::Receive() {
  for (;;) {
    Result<wire::Message> message = reader_.Next();
    if (message.ok() || message.error().code != ErrorCode::kNotFound) return message;
    std::array<std::byte, 4096> bytes;
    const auto room = std::span(bytes).first(std::min(bytes.size(), reader_.missing()));
    ASSIGN_OR_RETURN(const size_t received, Fill(room));
    if (received == 0) return message;
    reader_.Append(room.first(received));
  }
}

// Always with room for all the descriptors that a message can carry: what there is no room for the
// kernel closes, on this thread.
Result<size_t> Connection::Fill(std::span<std::byte> bytes) {
  if (Closing(uid_) >= kMostClosing) return Gone("what its user has sent takes too long to close");
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, kCredentials + CMSG_SPACE(sizeof(int) * kMostInMessage)> space;
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = space.data();
  header.msg_controllen = kCredentials;  // these come first; descriptors are cut off
  ssize_t n = recvmsg(socket_.get(), &header, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return size_t{0};
  if (n <= 0) return Gone("it closed the connection");
  const bool brings_descriptors = (header.msg_flags & MSG_CTRUNC) != 0;
  if (brings_descriptors && !HasRoomForDescriptors(socket_.get())) {
    return Gone("the daemon has no descriptors left for those it sends");
  }
  piece.iov_len = static_cast<size_t>(n);  // no more: what has come since may bring others
  header.msg_controllen = space.size();
  n = recvmsg(socket_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n <= 0) return Gone("it cannot be read");
  sender_ = SenderOf(header);
  for (UniqueFd& fd : wire::DetachFds(header)) {
    if (IsMemory(fd.get(), software_gpu_)) std::swap(memory_, fd);
    CloseElsewhere(std::move(fd), uid_);
  }
  return static_cast<size_t>(n);
}

Status Connection::Queue(const wire::Message& message, const std::vector<int>& fds, UniqueFd file) {
  const bool lags = queued_ > kMaxQueued;
  if (lags || message.SinceVersion() > reader_.version()) {
    CloseElsewhere(std::move(file), uid_);
    if (lags) return Gone("it does not read its messages");
    return {};  // it would not understand
  }
  Frame frame;
  frame.file = std::move(file);
  frame.bytes = wire::Encode(message, reader_.version());
  for (const int fd : fds) frame.fds.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  queued_ += frame.footprint();
  queue_.push_back(std::move(frame));
  return {};
}

Status Connection::Flush() {
  while (!queue_.empty()) {
    Frame& frame = queue_.front();
    iovec piece{frame.bytes.data() + sent_, frame.bytes.size() - sent_};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    wire::FdSpace space{};
    std::vector<int> fds;
    for (const UniqueFd& fd : frame.fds) fds.push_back(fd.get());
    if (frame.file) fds.push_back(frame.file.get());
    if (sent_ == 0) wire::AttachFds(header, space, fds);
    const ssize_t n = sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return {};
      return Gone("it closed the connection");
    }
    sent_ += static_cast<size_t>(n);
    if (sent_ < frame.bytes.size()) continue;
    queued_ -= frame.footprint();
    CloseElsewhere(std::move(frame.file), uid_);
    sent_ = 0;
    queue_.pop_front();
  }
  return {};
}

}  // namespace tandem::daemon
