// The daemon's socket and the lock that keeps it the only daemon there.
#pragma once

#include <string>

#include "src/base/result.h"
#include "src/base/unique_fd.h"

namespace tandem::daemon {

// While it lives, no other daemon listens at `path`; at its end the socket is removed. A socket
// that a dead daemon left is replaced.
class Listener {
 public:
  // Takes the lock. Errors: kUnavailable, naming the process that runs already.
  static Result<Listener> Claim(const std::string& path);
  // From here on clients can connect: those of this user, or of all of them.
  Status Listen(bool to_everybody = false);
  Listener(Listener&&) noexcept = default;
  ~Listener();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }

 private:
  Listener(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  UniqueFd lock_;
  UniqueFd socket_;
};

}  // namespace tandem::daemon
