// Connection: one client's socket, the received part of its next message, and the messages to send.
// Never blocks.
//
// Invariants
// 1. What waits to be sent is bounded; a client that does not read is given up.
// 2. No descriptor that the client has sent is closed on this thread, whether it was received or
//    not (closing.h). Nor is one of a file that it is sent.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "src/base/result.h"
#include "src/base/unique_fd.h"
#include "src/wire/codec.h"

namespace tandem::daemon {

class Connection {
 public:
  Connection(UniqueFd socket, unsigned uid, bool software_gpu)
      : socket_(std::move(socket)), uid_(uid), software_gpu_(software_gpu) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return socket_.get(); }

  // The next message, as wire::FrameReader::Next; later ones stay in the socket. Errors also:
  // kUnavailable at the end.
  Result<wire::Message> Receive();
  // The process that has sent the end of what was received last; 0: unknown.
  int sender() const { return sender_; }
  // A descriptor of memory of a GPU that came with the message, if any; all others are let go of.
  UniqueFd TakeMemory() { return std::move(memory_); }

  // Queues a message with copies of `fds`, and behind them `file`, if any. kUnavailable where too
  // much waits already.
  Status Queue(const wire::Message& message, const std::vector<int>& fds, UniqueFd file = {});
  // Sends what the socket takes. kUnavailable where the peer is gone.
  Status Flush();
  bool drained() const { return queue_.empty(); }
  size_t queued() const { return queued_; }  // bytes that wait to be sent, as they lie in memory

 private:
  // Of a frame in memory beside its bytes, about: the frame, and two allocations.
  static constexpr size_t kOverhead = 128;
  struct Frame {
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> fds;  // go with the first byte
    UniqueFd file;              // the last of them
    size_t footprint() const { return bytes.size() + kOverhead; }
  };

  Result<size_t> Fill(std::span<std::byte> bytes);  // 0 bytes: there are none yet

  UniqueFd socket_;
  UniqueFd memory_;
  const unsigned uid_;
  const bool software_gpu_;  // serves one: what it exports is taken
  int sender_ = 0;
  wire::FrameReader reader_;
  std::deque<Frame> queue_;
  size_t sent_ = 0;  // of the first frame
  size_t queued_ = 0;
};

}  // namespace tandem::daemon
