// Peer: the other worker of a pair, as one of the two sees it: messages by a socket that has a
// name. One waits there and the other calls; when either has gone, it waits or calls for who comes
// next.
//
// Threading: one thread. Nothing here waits.
// Invariant: messages of one connection arrive whole and in order; one may be lost only with it.
#pragma once

#include <string>
#include <type_traits>

#include "src/base/unique_fd.h"

namespace soak {

class Peer {
 public:
  enum class Heard { kNothing, kMessage, kGone };

  // One of the two waits, the other calls. Ends the program if it cannot wait there.
  Peer(std::string path, bool waits);

  // Whether it is there, as far as is known; looks for another if none is.
  bool Find();
  // Gone, or it has never been there: false.
  template <typename Message>
  bool Send(const Message& message) {
    static_assert(std::is_trivially_copyable_v<Message>);
    return SendBytes(&message, sizeof(message));
  }
  // From the one that Find found. What that has sent before it went comes first.
  template <typename Message>
  Heard Receive(Message* message) {
    static_assert(std::is_trivially_copyable_v<Message>);
    return ReceiveBytes(message, sizeof(*message));
  }

 private:
  bool SendBytes(const void* bytes, size_t count);
  Heard ReceiveBytes(void* bytes, size_t count);

  const std::string path_;
  tandem::UniqueFd waiting_, connection_;
};

}  // namespace soak
