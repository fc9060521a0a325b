// UniqueFd: owns one file descriptor and closes it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace tandem {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// The same file by a number that is not one of the standard streams': where those are closed, what
// is opened gets their numbers, and then what is printed. Without a descriptor to spare, as it was.
inline UniqueFd AboveStandardStreams(UniqueFd fd) {
  if (fd.get() < 0 || fd.get() > STDERR_FILENO) return fd;
  UniqueFd above(fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  return above ? std::move(above) : std::move(fd);
}

}  // namespace tandem
