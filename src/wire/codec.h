// Encoding of messages, and cutting a byte stream into messages.
//
// Threading: none of its own. Pure: no sockets here (channel.h has those).
// Invariants
// 1. The decoder never reads past what it was given, and a FrameReader refuses a message above its
//    bound from the header alone: it never waits for the rest of one.
// 2. After an error a FrameReader stays in error: the stream cannot be trusted any more.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/wire/messages.h"

namespace tandem::wire {

// Cuts strings at kMaxString, so that it always gives something a reader accepts. `version`: the
// reader's.
std::vector<std::byte> Encode(const Message& message, uint16_t version = kVersion);

class FrameReader {
 public:
  // `bound`: of a message's payload. kMaxAnswer for clients that query; no other message is as
  // large.
  explicit FrameReader(uint32_t bound = kMaxPayload) : bound_(bound) {}

  // Takes bytes as they come from the stream.
  void Append(std::span<const std::byte> bytes);

  // The next whole message. Errors: kNotFound while it is incomplete; where the stream is broken
  // kVersion if the peer speaks a version this side does not understand, kInvalid for everything
  // else.
  Result<Message> Next();

  // How many bytes the next message lacks, as far as its header says. REQUIRES: the last Next gave
  // kNotFound.
  size_t missing() const;

  // The version to speak to the peer: the one its latest message was in. This side's own before any
  // has come.
  uint16_t version() const { return version_; }

 private:
  uint32_t bound_;
  uint16_t version_ = kVersion;
  std::vector<std::byte> buffer_;
  size_t begin_ = 0;  // of what is not consumed yet
  bool broken_ = false;
};

}  // namespace tandem::wire
