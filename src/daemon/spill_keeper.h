// SpillKeeper: makes the files of `tandemd --spill` and looks at what they hold.
//
// It runs in a child process (spill_store.h), since any call on a file system that hangs may wait
// for ever, also at the end of a process.
//
// Invariants
// 1. A file is empty when it is made, has no name, and belongs to its process's user.
// 2. It is watched until no other process has it open. Once its process has ended it holds nothing,
//    though another process may have got its descriptor.
// 3. The numbers of files of a session and of a user are bounded.
#pragma once

#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/base/unique_fd.h"
#include "src/service/spill.h"

namespace tandem::daemon {

// What the daemon and the child say to each other, a packet each; every order has one answer.
struct SpillOrder {
  enum What : uint32_t { kOpen, kMake, kEnd, kLook };
  What what = kLook;
  service::SpillOwner owner;
  unsigned uid = 0, gid = 0;
};
// Behind the order kOpen: the directory.
struct SpillOpening {
  SpillOrder order{SpillOrder::kOpen, {}, 0, 0};
  uint64_t limit = 0;
};
// With the file, after kMake. Behind it: why there is none, or after kLook a SpillSize for each
// owner.
struct SpillAnswer {
  uint64_t available = 0;  // on the disk
  uint64_t files = 0;      // that are kept
  bool failed = false;
};
struct SpillSize {
  service::SpillOwner owner;
  uint64_t bytes = 0;
};
inline constexpr size_t kMaxSpillPacket = 128 << 10;

class SpillKeeper {
 public:
  static constexpr size_t kMostOfSession = 8;
  static constexpr size_t kMostOfUser = 512;
  static constexpr size_t kMost = 4096;

  SpillKeeper(std::string directory, Bytes limit)
      : directory_(std::move(directory)), limit_(limit) {}

  // An error where no file can be made that room can be reserved for.
  Status Try() const;
  Result<UniqueFd> Make(const service::SpillOwner& owner, unsigned uid, unsigned gid);
  // The process has ended.
  void End(int pid);
  service::SpillSizes Look();
  Bytes Available() const;
  size_t files() const { return files_.size(); }

 private:
  struct File {
    UniqueFd fd;  // not the one that the session has: that one is seen to be closed
    service::SpillOwner owner;
    unsigned uid = 0;
    bool newest = true;  // of its session, which may still use those before
    bool ended = false;
  };

  Result<UniqueFd> MakeNameless() const;
  void DropUnused();

  const std::string directory_;
  const Bytes limit_;
  std::vector<File> files_;
};

// The child's part: serves the daemon at its standard input. Returns the exit status.
int RunSpillKeeper();

}  // namespace tandem::daemon
