// A connection between two processes that carries messages.
//
// Threading: Send may be called by several threads if they hold a common lock; Receive by one.
// Errors: kUnavailable when the peer is gone, kVersion and kInvalid from the decoder.
#pragma once

#include <sys/socket.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/base/time.h"
#include "src/base/unique_fd.h"
#include "src/wire/codec.h"

namespace tandem::wire {

// How tandemd ends where another one has its socket, perhaps one that is just starting.
inline constexpr int kExitRunsAlready = 75;

struct Peer {
  int pid = 0;
  unsigned uid = 0;
};

// Descriptors with one message; a peer that sends more loses the rest.
inline constexpr size_t kMaxFds = 4;
struct FdSpace {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFds)> bytes;
};
// Makes `header`, which is to be sent, carry `fds`. `space` must live until it is.
void AttachFds(msghdr& header, FdSpace& space, std::span<const int> fds);
// Those that a received `header` carries.
std::vector<UniqueFd> DetachFds(msghdr& header);

class Channel {
 public:
  Channel() = default;
  explicit Channel(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  void Close() { socket_.Reset(); }
  // Leaves the descriptor open: it turned out to be another one's.
  void Abandon() { socket_.Release(); }

  // Who is at the other end, from the kernel.
  Result<Peer> GetPeer() const;

  // Sends everything, waiting at most `patience` for room in the socket's buffer.
  Status Send(const Message& message, Duration patience = Seconds(5), std::vector<int> fds = {});

  // The next message. kNotFound when none came within `patience` (zero: do not wait).
  Result<Message> Receive(Duration patience);

  // Descriptors that came with the messages received so far, in order; the caller owns them.
  std::vector<UniqueFd> TakeFds() { return std::move(fds_); }

 private:
  Status Fill();  // reads what is there

  UniqueFd socket_;
  FrameReader reader_{kMaxAnswer};
  std::vector<UniqueFd> fds_;
};

// Connects to the daemon at `path` and checks that it runs as root or as this user. Errors:
// kNotFound where there is no socket, kUnavailable where no daemon listens behind it (stale),
// kRefused where another user owns it.
Result<Channel> ConnectDaemon(const std::string& path);

}  // namespace tandem::wire
