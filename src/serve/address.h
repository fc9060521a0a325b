// Address: where `tandem serve` listens, and by which names a browser may call it.
//
// Threading: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/base/unique_fd.h"

namespace tandem::serve {

struct Address {
  std::string host;  // as written, without brackets: a name or a numeric address
  uint16_t port = 0;
};

// "127.0.0.1:9870", "[::1]:9870", "localhost:9870". Error: kInvalid, with an example.
Result<Address> ParseAddress(const std::string& text);

// "127.0.0.1:9870", "[::1]:9870".
std::string FormatAddress(const Address& address);

struct Listener {
  UniqueFd socket;
  Address address;        // with the port that it has
  bool loopback = false;  // only programs of this machine reach it
};

// Binds and listens. The error says what is wrong, and which option to change.
Result<Listener> Listen(const Address& address);

// Whether a request to a loopback listener may come with this Host header. Another name means that
// the browser was led here by a page whose name was made to point to this machine.
bool IsOwnName(std::string_view host_header, const Address& listen);

}  // namespace tandem::serve
