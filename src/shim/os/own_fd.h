// OwnFd: a descriptor inside a process that may close all descriptors it does not know, and then
// get others with the same numbers. Before every use it is checked that the number still names the
// file it named at first; a descriptor that is lost is given up without closing it, for its number
// now names another file, or none.
//
// (A program that does so between our check and our use can still be hit; it would have to do it
// within the same microsecond.)
#pragma once

#include <sys/stat.h>

#include "src/base/unique_fd.h"

namespace tandem::shim {

// Which file a descriptor names. Pipes and sockets have an inode each; eventfds share one.
class FileId {
 public:
  FileId() = default;
  static FileId Of(int fd) {
    FileId id;
    struct stat status {};
    if (fd < 0 || fstat(fd, &status) != 0) return id;
    id.device_ = status.st_dev;
    id.inode_ = status.st_ino;
    return id;
  }
  bool operator==(const FileId&) const = default;
  explicit operator bool() const { return inode_ != 0; }

 private:
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

class OwnFd {
 public:
  OwnFd() = default;
  explicit OwnFd(UniqueFd fd) : fd_(std::move(fd)), id_(FileId::Of(fd_.get())) {}
  OwnFd(OwnFd&&) noexcept = default;
  OwnFd& operator=(OwnFd&& other) noexcept {
    Drop();
    fd_ = std::move(other.fd_);
    id_ = other.id_;
    return *this;
  }
  ~OwnFd() { Drop(); }

  // −1 when it is not ours any more.
  int get() const { return intact() ? fd_.get() : -1; }
  bool intact() const { return id_ && FileId::Of(fd_.get()) == id_; }

 private:
  void Drop() {
    if (!intact()) fd_.Release();
    fd_.Reset();
  }

  UniqueFd fd_;
  FileId id_;
};

}  // namespace tandem::shim
