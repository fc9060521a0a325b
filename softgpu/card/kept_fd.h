// KeptFd: a descriptor that stays open for other processes to find by its number. The program may
// still close it, and then the number may name another file.
//
// Threading: as an object's owner says; CloseAll is for a forked child, which has one thread.
//
// Invariant: only the file that was given is ever closed or handed out. Forked children keep none.
#pragma once

#include <cstdint>

#include "src/base/unique_fd.h"

namespace tandem::soft {

// How to recognise a file; zero for what is none.
uint64_t InodeOf(int fd);

class KeptFd {
 public:
  explicit KeptFd(UniqueFd fd);
  ~KeptFd();
  KeptFd(const KeptFd&) = delete;
  KeptFd& operator=(const KeptFd&) = delete;

  // Negative if the program closed it.
  int get() const;
  uint64_t inode() const { return inode_; }
  // A new descriptor of the file; negative if the system refuses or the program closed ours.
  int Duplicate() const;

  // Around fork(), so that the child finds a list that no thread is changing.
  static void BeforeFork();
  static void AfterFork();
  // In the child: closes all there are.
  static void CloseAll();

 private:
  void Close();

  UniqueFd fd_;
  const uint64_t inode_;
};

// What another process keeps under a number; empty if it is not the file that it was, or of another
// user's process.
UniqueFd OpenKept(int pid, int fd, uint64_t inode, int mode);

}  // namespace tandem::soft
