#include "src/client/lease.h"

#include <algorithm>

namespace tandem::client {
namespace {

// For a lease that was not revoked but that a new daemon does not know.
constexpr Duration kStaleDeadline = Seconds(1);

}  // namespace

void Lease::Send(wire::Message message) {
  if (registered_) outbox_.push_back(std::move(message));
}

void Lease::DropLease() {
  epoch_ = 0;
  revoked_ = stale_ = open_ = opened_once_ = announce_ = idle_ = false;
  asked_ = undrained_ = false;
}

void Lease::OnRegistered(Bytes resident) {
  registered_ = true;
  credit_ = resident;
  asked_ = evict_asked_ = rooted_ = false;
  outbox_.clear();
  if (wire::Declare none; declared_.Fields() != none.Fields()) Send(declared_);
  if (epoch_ == 0) return;
  stale_ = revoked_ = true;
  deadline_ = kStaleDeadline;
}

void Lease::OnLost() {
  registered_ = false;
  asked_ = evict_asked_ = false;
  unwanted_ = revoked_;
  revoked_ = stale_ = undrained_ = false;  // no thread is left that wants the lease
  outbox_.clear();
  if (epoch_ != 0 && !opened_once_) DropLease();
}

void Lease::OnMessage(const wire::Grant& grant) {
  if (poisoned_) {
    credit_ = Bytes(grant.credit_bytes);
    Send(wire::Released{grant.epoch});
    return;
  }
  epoch_ = grant.epoch;
  window_ = Microseconds(static_cast<int64_t>(grant.window_us));
  credit_ = Bytes(grant.credit_bytes);
  revoked_ = stale_ = open_ = opened_once_ = idle_ = evict_asked_ = undrained_ = false;
  announce_ = true;
}

void Lease::OnMessage(const wire::Credit& credit) {
  credit_ = Bytes(credit.credit_bytes);
}

void Lease::OnMessage(const wire::Revoke& revoke) {
  if (poisoned_) Send(wire::Released{revoke.epoch});
  if (revoke.epoch != epoch_ || epoch_ == 0) return;  // crossed with our Released
  revoked_ = true;
  undrained_ = false;
  deadline_ = Microseconds(static_cast<int64_t>(revoke.deadline_us));
}

void Lease::OnMessage(const wire::Evict& evict) {
  credit_ = std::min(credit_, Bytes(evict.target_bytes));
  evict_asked_ = true;
  rooted_ = false;
}

Step Lease::Next(const View& view) {
  OnWanted(view);
  const bool evict = evict_asked_ || (view.resident > credit_ && !rooted_);
  if ((revoked_ || (evict && working_)) && !undrained_) {
    unwanted_ = false;
    return Step::kDrain;
  }
  if (evict && !working_) return Step::kEvict;
  if (poisoned_) return Step::kNone;
  if (epoch_ == 0) return Step::kNone;
  if (view.missing == Bytes()) {
    if (view.reserved <= credit_) return open_ && !asked_ ? Step::kNone : Step::kOpen;
    if (view.wanted) Ask(view);
    return Step::kNone;
  }
  if (view.resident + view.next_chunk <= credit_) return Step::kRestore;
  if (view.chills && view.need <= credit_) return Step::kRestore;
  if (view.wanted || !opened_once_) Ask(view);
  return Step::kNone;
}

void Lease::OnWanted(const View& view) {
  if (epoch_ == 0 && !poisoned_ && view.wanted) Ask(view);
}

void Lease::Ask(const View& view) {
  // Also where the need has fallen: there may never be room for what was asked for.
  if (!registered_ || (asked_ && view.need == asked_need_)) return;
  asked_ = true;
  asked_need_ = view.need;
  announce_ = true;
  Send(wire::Ready{view.need.count});
}

void Lease::OnDrained(bool drained) {
  const uint64_t epoch = epoch_;
  const bool stale = stale_;
  if (unwanted_ && epoch != 0) {
    unwanted_ = open_ = false;  // Next opens it again
    working_ = !drained;
    return;
  }
  if (drained) {
    DropLease();
    working_ = rooted_ = false;
    if (!stale && epoch != 0) Send(wire::Released{epoch});
    return;
  }
  // Next opens it again: work in flight may wait for work that threads are about to submit.
  open_ = false;
  undrained_ = true;
  revoked_ = stale;  // a lease that the daemon does not know must go: OnRested tries again
  if (!stale && epoch != 0) Send(wire::Busy{epoch});
  if (evict_asked_ && (stale || epoch == 0) && !std::exchange(rooted_, true)) Send(wire::Busy{});
}

// Once it runs the daemon has no use for it.
void Lease::OnRestored(Bytes resident, Bytes copied, Bytes from_file) {
  if (epoch_ == 0 || stale_ || opened_once_) return;
  Send(wire::Restored{epoch_, resident.count, copied.count, from_file.count});
}

void Lease::OnOpened(Bytes copied_in) {
  open_ = opened_once_ = working_ = true;
  asked_ = rooted_ = false;
  if (announce_) Send(wire::Running{epoch_, copied_in.count});
  announce_ = false;
}

void Lease::OnEvicted(Bytes resident, Bytes copied, Bytes to_file) {
  // Excess memory may still leave by itself, as freed memory does. That must be reported, too.
  evict_asked_ = resident > credit_;
  Send(wire::Evicted{resident.count, copied.count, to_file.count});
}

void Lease::OnIdle() {
  if (epoch_ == 0 || idle_ || revoked_) return;
  idle_ = true;
  Send(wire::Idle{epoch_});
}

void Lease::OnActive() {
  if (epoch_ == 0 || !idle_) return;
  idle_ = false;
  Send(wire::Active{epoch_});
}

void Lease::Declare(const wire::Declare& declared) {
  wire::Declare now = declared;
  if (now.Fields() == declared_.Fields()) return;
  declared_ = declared;
  Send(declared);
}

void Lease::Withdraw() {
  if (!asked_ || epoch_ != 0) return;
  asked_ = false;
  Send(wire::NotReady{});
}

void Lease::Leave() {
  if (!asked_ && !poisoned_) Send(wire::Leave{});
}

void Lease::OnContended(const View& view) {
  const bool settled = epoch_ == 0 || (open_ && view.missing == Bytes());
  const Bytes kept = epoch_ == 0 ? view.resident : std::max(view.resident, view.reserved);
  if (!registered_ || asked_ || revoked_ || !settled || kept >= credit_) return;
  credit_ = kept;
  Send(wire::Evicted{kept.count, 0});
}

void Lease::OnPoisoned() {
  if (poisoned_) return;
  poisoned_ = true;
  const uint64_t epoch = epoch_;
  const bool tell = epoch != 0 && !stale_;
  DropLease();
  working_ = false;  // nothing of it will ever be done
  if (tell) Send(wire::Released{epoch});
}

}  // namespace tandem::client
