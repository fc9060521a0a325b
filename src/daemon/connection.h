// Connection: one client's socket with what was received of its next message and what waits to be
// sent. Never blocks.
//
// Invariant: what waits to be sent is bounded; a client that does not read is given up.
#pragma once

#include <deque>
#include <vector>

#include "src/base/result.h"
#include "src/base/unique_fd.h"
#include "src/wire/codec.h"

namespace tandem::daemon {

class Connection {
 public:
  explicit Connection(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  // The next message, as wire::FrameReader::Next; what is behind it stays in the socket. Errors
  // also: kUnavailable at the end.
  Result<wire::Message> Receive();

  // Queues a message with copies of `fds`. kUnavailable where too much waits already.
  Status Queue(const wire::Message& message, const std::vector<int>& fds);
  // Sends what the socket takes. kUnavailable where the peer is gone.
  Status Flush();
  bool drained() const { return queue_.empty(); }
  size_t queued() const { return queued_; }  // bytes that wait to be sent

 private:
  struct Frame {
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> fds;  // go with the first byte
  };

  UniqueFd socket_;
  wire::FrameReader reader_;
  std::deque<Frame> queue_;
  size_t sent_ = 0;  // of the first frame
  size_t queued_ = 0;
};

}  // namespace tandem::daemon
