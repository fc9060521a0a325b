// DaemonLink: this process's session with the daemon: the connection, the two shared pages, and the
// pure machines of src/client behind one lock.
//
// Threading: the program's threads call Reserve, Unreserve, WaitForContext and ContextGone; the
// agent alone calls Register, Receive and Lose. With runs a function on the lease under the lock
// and then sends what it left to say.
// Invariants
// 1. Growth waits no longer than the daemon lives, but beside siblings as long as the run is open.
//    Contexts and what cannot be swapped wait for the next daemon. Such a wait is told on stderr.
// 2. The lock is never held while waiting, but for room in the socket's buffer (bounded).
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/base/result.h"
#include "src/client/lease.h"
#include "src/client/requests.h"
#include "src/shim/os/host_share.h"
#include "src/shim/os/own_fd.h"
#include "src/wire/channel.h"
#include "src/wire/pages.h"

namespace tandem::shim {

struct Identity {
  std::string build;
  uint64_t run = 0;  // 0: of no run
  std::string device;
  std::string program;
  bool can_oversubscribe = false;  // the device can reach memory of the host's that we map
};

// What is known from the daemon once and for all.
struct Terms {
  Bytes card;
  Bytes limit;
  Bytes chunk;
};

class DaemonLink {
 public:
  explicit DaemonLink(Identity identity) : identity_(std::move(identity)) {}
  DaemonLink(const DaemonLink&) = delete;
  DaemonLink& operator=(const DaemonLink&) = delete;

  // Connects and registers, with what is allocated already and `resident` of it on the card.
  Result<Terms> Register(Bytes resident) EXCLUDES_LOCK(mutex_);
  void Lose() EXCLUDES_LOCK(mutex_);
  // An attempt to register again has failed: no daemon answers, or it refuses. Growth does not wait
  // for ever.
  void StayAway(bool absent) EXCLUDES_LOCK(mutex_);
  // The messages that are there, already applied to the machines. An error: the daemon is gone.
  Status Receive() EXCLUDES_LOCK(mutex_);
  // The agent's; −1 without a connection, or where the program has closed it.
  int fd() const { return FileId::Of(channel_.fd()) == channel_id_ ? channel_.fd() : -1; }

  template <typename Function>
  void With(Function function) EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    function(lease_);
    Flush();
  }

  // Whether the program may have `by` more bytes. One thread after the other waits for its answer.
  bool Reserve(Bytes by) EXCLUDES_LOCK(mutex_);
  // The daemon hears of it by ReturnUnusedReservation, or at once where others of the run may want
  // them.
  void Unreserve(Bytes by) EXCLUDES_LOCK(mutex_);
  // Gives back what has not been needed since the last time. Whether something is left for the
  // next.
  bool ReturnUnusedReservation() EXCLUDES_LOCK(mutex_);
  // False: there is no room for one beside what the program has allocated, or others have needed it
  // for too long.
  bool WaitForContext() EXCLUDES_LOCK(mutex_);
  void ContextGone() EXCLUDES_LOCK(mutex_);
  // Waits for room for bytes that cannot be swapped. False: they are above the limit, or there is
  // no room for them beside what the program has allocated, or others have needed it for too long.
  bool WaitForFixed(Bytes bytes) EXCLUDES_LOCK(mutex_);
  // The same without waiting: PollFixed with the ticket, from time to time.
  uint64_t AskForFixed(Bytes bytes) EXCLUDES_LOCK(mutex_);
  client::Answer PollFixed(uint64_t ticket) EXCLUDES_LOCK(mutex_);
  void FixedGone(Bytes bytes) EXCLUDES_LOCK(mutex_);
  bool WaitsForContext() const EXCLUDES_LOCK(mutex_);
  // Whether threads of the program wait for room, or may.
  bool WaitsForRoom() const EXCLUDES_LOCK(mutex_);
  // Whether the daemon has said, since it was last asked, that the user ends the program.
  bool TakeEnd() { return end_asked_.exchange(false, std::memory_order_relaxed); }
  // No process can open that memory any more; called before its bytes are returned.
  void Withdraw(const wire::Withdraw& offer) EXCLUDES_LOCK(mutex_);

  // No message will be received any more: waiting threads are released.
  void Retire() EXCLUDES_LOCK(mutex_);
  // In a forked child: gives up the copies of the descriptors, takes no lock.
  void AbandonInChild();

  std::string device() const EXCLUDES_LOCK(mutex_);
  // The agent's: the GPU that the daemon has told the program to move to, since last asked.
  std::optional<std::string> TakeMove() EXCLUDES_LOCK(mutex_);
  // The program has moved there: the session here has ended, and one there is to be registered.
  void OnMoved(const std::string& device) EXCLUDES_LOCK(mutex_);
  void OnNotMoved(const std::string& reason) EXCLUDES_LOCK(mutex_);
  bool contended() const;
  // Whether the daemon wants to know of pauses, even if no session waits.
  bool watched() const;
  // As the daemon, also one that is gone, last said.
  bool suspended() const;
  // Whether calls that would wait for the lease are to fail.
  bool refuses() const;
  Bytes limit() const;
  // Of a session that oversubscribes, the most that will be on the card at once, in whole granules:
  // perhaps nothing. None of others.
  std::optional<Bytes> most_resident() const;
  // The most that it may ask for, its allocations included: the rest is not waited for.
  Bytes most_needed() const;
  // Whether its run may, which is said to one that cannot.
  bool run_oversubscribes() const;
  // Of the host, the most that this session may need.
  HostShare host_share() const;
  // The agent's: the file that came with the last registration, if any.
  OwnFd TakeSpillFile() { return std::exchange(spill_file_, OwnFd()); }
  // By all sessions of the run: by the others as the daemon last said, by this one as it is.
  Bytes used() const;
  bool holds() const { return holds_.load(std::memory_order_acquire); }  // the lease
  void Publish(Bytes resident, Bytes swapped, Bytes exchanged);

 private:
  Result<Terms> TryToRegister(Bytes resident) EXCLUDES_LOCK(mutex_);
  void Flush() REQUIRES_LOCK(mutex_);
  void Disconnect() REQUIRES_LOCK(mutex_);
  void TellHostFull();
  // `by` more was refused: says once that it is the limit's doing, where it is.
  void TellLimit(Bytes by);
  // Waits for the answer that `poll` gives, and tells of it on stderr (room_wait.h). False:
  // refused.
  template <typename Poll>
  bool WaitForRoom(std::string what, bool smaller, Poll poll) REQUIRES_LOCK(mutex_);
  // `last`: when that was told the last time.
  void TellOfRoom(const std::optional<std::string>& line, std::optional<Instant>* last)
      REQUIRES_LOCK(mutex_);
  Duration fixed_wait() const;
  Bytes others_used() const;
  Bytes most_allocated() const;  // while no daemon answers
  bool has_siblings() const;     // in the run, on this GPU
  Status MapPages() EXCLUDES_LOCK(mutex_);

  Identity identity_;  // changed by the agent under the lock
  mutable Mutex mutex_;
  CondVar answered_;
  wire::Channel channel_;  // replaced by the agent under the lock, as is its id
  FileId channel_id_;
  OwnFd spill_file_;
  client::Lease lease_ GUARDED_BY(mutex_);
  client::Requests requests_ GUARDED_BY(mutex_);
  bool retired_ GUARDED_BY(mutex_) = false;
  std::optional<std::string> move_asked_ GUARDED_BY(mutex_);
  std::string moved_from_ GUARDED_BY(mutex_);    // until a daemon has been told
  bool registering_ GUARDED_BY(mutex_) = false;  // what was claimed must not grow meanwhile
  std::atomic<bool> host_full_told_{false};
  std::atomic<bool> limit_told_{false};
  std::atomic<bool> end_asked_{false};
  std::optional<Instant> room_waited_for_ GUARDED_BY(mutex_);  // told then; as is the next
  std::optional<Instant> room_refused_ GUARDED_BY(mutex_);
  std::atomic<uint64_t> limit_{0};
  std::atomic<uint64_t> own_used_{0};
  std::atomic<bool> holds_{false};
  // Mappings are replaced by newer ones but never unmapped: a reader needs no lock.
  std::atomic<const wire::DecisionsPage*> decisions_{nullptr};
  std::atomic<wire::ReportsPage*> reports_{nullptr};
};

}  // namespace tandem::shim
