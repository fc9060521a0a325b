#include "src/serve/stream.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "src/serve/answer.h"

namespace tandem::serve {

std::string RefusalText(int status, const std::string& reason) {
  const std::string body = ErrorAnswer(status, reason).body;
  return fmt::format(
      "HTTP/1.1 {} Refused\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Cache-Control: no-store\r\n{}Connection: close\r\n\r\n{}",
      status, body.size(), status == 405 ? "Allow: GET, HEAD\r\n" : "", body);
}

bool Stream::Await(short events, Instant deadline) const {
  for (;;) {
    const int64_t left_ms = (deadline - MonotonicNow()).ns / 1000000;
    if (left_ms <= 0) return false;
    pollfd event{socket_, events, 0};
    const int ready = poll(&event, 1, static_cast<int>(std::min<int64_t>(left_ms, 3600000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool Stream::Fill(Instant deadline) {
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t size = recv(socket_, part.data(), part.size(), MSG_DONTWAIT);
    if (size > 0) {
      received_.append(part.data(), static_cast<size_t>(size));
      return true;
    }
    if (size == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    if (!Await(POLLIN, deadline)) return false;
  }
}

bool Stream::AwaitHead(Head* head) {
  if (received_.empty() && !Fill(MonotonicNow() + kIdlePatience)) return false;
  const Instant deadline = MonotonicNow() + kHeadPatience;
  size_t end;
  while ((end = EndOfHead(received_)) == std::string::npos) {
    if (received_.size() > kLongestHead) {
      *head = {431, "the headers are longer than 16384 bytes", ""};
      return true;
    }
    if (!Fill(deadline)) return false;
  }
  *head = end > kLongestHead ? Head{431, "the headers are longer than 16384 bytes", ""}
                             : CheckHead(std::string_view(received_).substr(0, end));
  received_.erase(0, end);
  head_ = head->text;
  given_ = 0;
  return true;
}

void Stream::Refuse(const Head& head) {
  const std::string text = RefusalText(head.refused, head.reason);
  write(text.data(), text.size());
}

// Also where the client has only closed its own side: it waits for no more events then.
bool Stream::is_writable() const {
  pollfd event{socket_, POLLRDHUP, 0};
  return poll(&event, 1, 0) == 0;
}

ssize_t Stream::read(char* to, size_t size) {
  const size_t count = std::min(size, head_.size() - given_);
  std::memcpy(to, head_.data() + given_, count);
  given_ += count;
  return static_cast<ssize_t>(count);  // 0: no request has a body
}

ssize_t Stream::write(const char* from, size_t size) {
  const Instant deadline =
      MonotonicNow() + kWritePatience +
      Duration(static_cast<int64_t>(size) * (Seconds(1).ns / kLeastBytesPerSecond));
  for (size_t written = 0; written < size;) {
    const ssize_t count =
        send(socket_, from + written, size - written, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) {
      written += static_cast<size_t>(count);
      continue;
    }
    if (count < 0 && errno != EAGAIN && errno != EINTR) return -1;
    if (!Await(POLLOUT, std::min(deadline, MonotonicNow() + kWritePatience))) return -1;
  }
  return static_cast<ssize_t>(size);
}

}  // namespace tandem::serve
