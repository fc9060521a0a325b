// Encoding of messages, and cutting a byte stream into messages.
//
// Threading: none of its own. Pure: no sockets here (channel.h has those).
// Invariants
// 1. The decoder never reads past what it was given and never holds more than one message's bound.
// 2. After an error a FrameReader stays in error: the stream cannot be trusted any more.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/wire/messages.h"

namespace tandem::wire {

std::vector<std::byte> Encode(const Message& message);

// Cuts strings at kMaxString, so that Encode always gives something a decoder accepts.
// Errors: kVersion when the peer speaks another version, kInvalid for everything else.
Result<Message> Decode(const Header& header, std::span<const std::byte> payload);

class FrameReader {
 public:
  // Takes bytes as they come from the stream.
  void Append(std::span<const std::byte> bytes);

  // The next whole message; kNotFound while it is incomplete; kVersion or kInvalid when the stream
  // is broken.
  Result<Message> Next();

 private:
  std::vector<std::byte> buffer_;
  size_t begin_ = 0;  // of what is not consumed yet
  bool broken_ = false;
};

}  // namespace tandem::wire
