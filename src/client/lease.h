// Lease: what one program's session may do with its GPU, and what it tells the daemon.
//
// Pure: events come in through the On… functions, messages to send collect in an outbox, and Next
// says what the caller (the shim's agent) shall do now. Asking again without an event in between
// gives the same answer, so that a step that failed is simply tried again.
//
// Threading: none of its own; the caller holds a lock.
// Invariants
// 1. Next asks for a restore only up to the credit: resident ≤ credit, but for what Evict took back
//    and is still on its way out, or cannot leave before the lease comes back, and for what shall
//    not be on the card.
// 2. Next says kOpen only with a lease, nothing missing, and no revocation pending.
// 3. Next says kEvict only when no work can be under way: after the gate was opened it says kDrain
//    first, whatever the daemon asked for.
// 4. Credit is given back unasked only while the daemon has no reason to send more (no Ready is
//    unanswered): otherwise the two sides could disagree about it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/time.h"
#include "src/wire/messages.h"

namespace tandem::client {

// How the program's memory stands.
struct View {
  Bytes need;           // what all live allocations take, or `reserved` where that is more
  Bytes resident;       // on the card, including what is freed but not yet given back
  Bytes missing;        // of `need`, not on the card
  Bytes next_chunk;     // size of the missing chunk that would be restored next
  bool wanted = false;  // threads wait at the gate, or for a lease of the program's own (tandem.h)
  bool chills = false;  // with `need` on the card the rest can be reached on the host
  Bytes reserved = {};  // that the program will have, by its own word, as far as it can be had
};

enum class Step {
  kNone,
  kDrain,    // close the gate, wait for submitted work: OnDrained
  kEvict,    // swap out until resident ≤ credit(): OnEvicted after every chunk
  kRestore,  // bring in missing chunks up to credit(), and make the rest cold where it chills
  kOpen,     // open the gate: OnOpened
};

class Lease {
 public:
  // The daemon took us (again), with `resident` on the card: that much is our credit. A lease from
  // before means nothing to it, so it is drained and dropped.
  void OnRegistered(Bytes resident);
  void OnLost();

  void OnMessage(const wire::Grant& grant);
  void OnMessage(const wire::Credit& credit);
  void OnMessage(const wire::Revoke& revoke);
  void OnMessage(const wire::Evict& evict);

  Step Next(const View& view);

  void OnDrained(bool drained);
  // Some time has passed since work would not drain, with the gate open: it may be tried again.
  void OnRested() { undrained_ = false; }
  // Threads may wait at the gate: asks for a lease where there is none, also while memory leaves.
  void OnWanted(const View& view);
  // Some of the missing memory has been restored: the bytes copied, and those of them from the
  // file.
  void OnRestored(Bytes resident, Bytes copied, Bytes from_file = {});
  void OnOpened(Bytes copied_in);
  // Allocations came that are not on the card: the gate was shut for new work.
  void OnShut() { open_ = false; }
  void OnEvicted(Bytes resident, Bytes copied, Bytes to_file = {});
  void OnIdle();
  void OnActive();
  // What the program says of its next work; kept for the next daemon.
  void Declare(const wire::Declare& declared);
  // No thread waits for the lease any more.
  void Withdraw();
  // Its memory may leave, though no session asked for that. Nothing while it waits for the lease.
  void Leave();
  // Another session waits for this GPU: unused credit goes back.
  void OnContended(const View& view);
  // The context is broken for good. Nothing will be swapped; the lease goes back.
  void OnPoisoned();
  // There is a context that is not broken.
  void OnHealed() { poisoned_ = false; }

  // Whether the program has what it asked for: the gate is open, with credit for all it will have.
  bool Satisfies(const View& view) const {
    return open_ && !revoked_ && view.missing == Bytes() && view.reserved <= credit_;
  }

  bool registered() const { return registered_; }
  bool poisoned() const { return poisoned_; }
  bool holds() const { return epoch_ != 0; }
  bool open() const { return open_; }
  // Whether it has run under this lease. It may be shut since, for memory that it has not used yet.
  bool has_run() const { return epoch_ != 0 && opened_once_; }
  // Whether work may be under way: the gate was open and nothing was drained since.
  bool working() const { return working_; }
  bool revoked() const { return revoked_; }
  bool idle() const { return idle_; }
  Bytes credit() const { return credit_; }
  // The most that the daemon was last told it is to be.
  Bytes asked_need() const { return asked_need_; }
  uint64_t epoch() const { return epoch_; }
  Duration drain_deadline() const { return deadline_; }
  Duration window() const { return window_; }

  bool HasMessages() const { return !outbox_.empty(); }
  std::vector<wire::Message> TakeMessages() { return std::exchange(outbox_, {}); }

 private:
  void Send(wire::Message message);
  void Ask(const View& view);
  void DropLease();

  bool registered_ = false;
  bool poisoned_ = false;
  bool evict_asked_ = false;  // an Evict waits for at least one answer
  // And was told that nothing can leave; until the gate opens, or something can, there is no use in
  // trying for the sake of the credit alone, which is on its way.
  bool rooted_ = false;
  bool revoked_ = false;      // the lease shall go back once drained
  bool stale_ = false;        // the lease is of a daemon that is gone
  bool working_ = false;      // work may be under way: the gate was open and nothing drained since
  bool undrained_ = false;    // the last attempt to drain failed
  bool unwanted_ = false;     // while it drains: the session that wanted the lease is gone
  bool open_ = false;         // the gate, as far as this machine has said
  bool opened_once_ = false;  // under this lease
  bool announce_ = false;     // the next opening is told with Running
  bool idle_ = false;         // Idle was said
  uint64_t epoch_ = 0;        // 0: no lease
  Bytes credit_;
  bool asked_ = false;  // Ready was sent and not yet satisfied
  Bytes asked_need_;
  wire::Declare declared_;
  Duration deadline_ = Seconds(1);
  Duration window_ = Milliseconds(10);  // of work in flight, as last granted
  std::vector<wire::Message> outbox_;
};

}  // namespace tandem::client
