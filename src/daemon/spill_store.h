// SpillStore: the files of `tandemd --spill` for the daemon's loop, which no file system may stop.
// A child process makes and watches them (spill_keeper.h).
//
// The child gets one order at a time. If it does not answer within kPatience, the file system
// hangs: sessions get no files, and there is no room to promise, until it answers. The child is not
// killed for that, since it knows all files. If it ends, another one is started, which knows none
// of them.
//
// Threading: none.
// Invariant: no descriptor of a file is closed on the daemon's thread (closing.h).
#pragma once

#include <sys/types.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/base/time.h"
#include "src/base/unique_fd.h"
#include "src/daemon/spill_keeper.h"
#include "src/service/log_rate.h"
#include "src/service/spill.h"

namespace tandem::daemon {

class SpillStore {
 public:
  static constexpr Duration kStartPatience = Seconds(10);
  static constexpr Duration kPatience = Seconds(3);  // less than a program waits for its session
  static constexpr Duration kPeriod = Seconds(1);    // between two looks at the files
  static constexpr Duration kRest = Seconds(10);     // after a child that failed

  struct File {
    uint64_t request = 0;
    UniqueFd file;  // empty: there is none
  };
  struct News {
    std::vector<File> files;
    std::optional<service::SpillSizes> sizes;
  };

  // An error where no files can be made there. `program` is this one.
  static Result<std::unique_ptr<SpillStore>> Open(std::string directory, Bytes limit,
                                                  std::string program = "/proc/self/exe");
  ~SpillStore();
  SpillStore(const SpillStore&) = delete;
  SpillStore& operator=(const SpillStore&) = delete;

  // News will have the file. False: there will be none.
  bool Ask(uint64_t request, const service::SpillOwner& owner, unsigned uid, unsigned gid,
           Instant now);
  // The process has ended, or has no use for files.
  void End(int pid, Instant now);
  // On the disk, as the child said last.
  Bytes available() const { return hangs_ ? Bytes() : available_; }

  // Where an answer will be readable. -1: no child.
  int fd() const { return socket_.get(); }
  // Whether fd() is another one since the last call.
  bool TakeStarted() { return std::exchange(started_, false); }
  News Take(Instant now);  // what is there; never waits
  News OnTime(Instant now);
  std::optional<Instant> wake() const;

 private:
  struct Pending {
    std::string packet;
    SpillOrder::What what = SpillOrder::kLook;
    unsigned uid = 0;
    std::optional<uint64_t> request;  // that still waits for a file
  };

  SpillStore(std::string directory, Bytes limit, std::string program)
      : directory_(std::move(directory)), limit_(limit), program_(std::move(program)) {}
  bool Start(Instant now);
  void Order(const SpillOrder& order, std::optional<uint64_t> request, Instant now);
  void SendNext(Instant now);
  void OnAnswer(const std::string& packet, UniqueFd file, Instant now, News* news);
  void GiveUpRequests(News* news);
  void Lose(Instant now, const std::string& why);

  const std::string directory_;
  const Bytes limit_;
  const std::string program_;
  pid_t child_ = 0;
  UniqueFd socket_;  // to the child
  bool started_ = false;
  std::deque<Pending> orders_;      // the first one is being served if `asked_at_`
  std::vector<uint64_t> forsaken_;  // requests of a child that has ended
  std::optional<Instant> asked_at_;
  bool opened_ = false;  // the child can make files
  bool hangs_ = false;
  Bytes available_;
  uint64_t files_ = 0;
  Instant look_at_;
  Instant rests_until_;
  std::string trouble_;  // the last
  service::LogRate log_rate_;
};

}  // namespace tandem::daemon
