// Requests: what a program asks of the daemon in advance: room for its allocations, and room on the
// card for a context.
//
// Pure, like Lease: the caller sends what TakeMessages gives and polls for answers.
//
// Freed bytes stay reserved for a moment, so that a program that allocates and frees by turns does
// not ask each time. ReturnUnused, called at intervals, gives back what was not needed in between.
//
// Threading: none of its own; the caller holds a lock.
// Invariants
// 1. `total` is what the live allocations and an unanswered growth come to.
// 2. What live allocations come to is reserved with the daemon that we are registered with.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/wire/messages.h"

namespace tandem::client {

enum class Answer { kPending, kGranted, kRefused };

class Requests {
 public:
  // The daemon has registered us and believes our claims; later changes are reported.
  void OnRegistered(Bytes limit, Bytes claimed_total, uint32_t claimed_contexts,
                    Bytes claimed_fixed = {});
  // The connection is gone; growth waits for the next one, or to hear that there is no daemon.
  // `most_allocated`: what fits beside the fixed memory, of others and its own.
  void OnLost(Bytes limit, Bytes most_allocated, bool siblings);
  // There is none. A session that is alone in its run keeps to its last limit, so that it does not
  // hang and the limit still holds; and to what fits, so that it can run again. If it has siblings,
  // their growth is unknown: growth goes on waiting, as contexts do, as long as the run is open.
  void OnAbsent(bool run_open);
  // There is one that will not have us.
  void OnTurnedAway();

  // Asks for `by` more bytes, unless they are still reserved; then Poll, which takes a refused
  // growth back. REQUIRES: !growing().
  void Grow(Bytes by);
  Answer Poll();
  bool growing() const { return growth_.has_value(); }
  void Shrink(Bytes by);
  // Gives back what has been reserved for nothing since the last time; or all that is.
  void ReturnUnused();
  void ReturnAllUnused();
  // Whether anything is reserved for nothing, and can be given back.
  bool has_unused() const { return registered_ && !growing() && reserved_ > total_; }

  // Asks for a context; PollContext with the ticket. ContextGone when it is destroyed, or when it
  // could not be created after all.
  uint64_t WantContext();
  Answer PollContext(uint64_t ticket);
  void ContextGone();
  bool WaitsForContext() const { return contexts_answered_ < contexts_wanted_; }
  bool WaitsForRoom() const { return WaitsForContext() || !fixed_wanted_.empty(); }

  // Asks for bytes that cannot be swapped; PollFixed with the ticket. FixedGone when they are free
  // again, or could not be taken after all.
  uint64_t WantFixed(Bytes bytes);
  Answer PollFixed(uint64_t ticket);
  void FixedGone(Bytes bytes);

  void OnMessage(const wire::Reserved& reserved);
  void OnMessage(const wire::ContextReserved& reserved);
  void OnMessage(const wire::FixedReserved& reserved);

  bool registered() const { return registered_; }
  Bytes total() const { return total_; }
  // What is to be claimed of a new daemon: without a growth that it has yet to grant.
  Bytes claim() const;
  Bytes fixed() const { return fixed_; }
  Bytes used() const { return total_ + fixed_; }
  uint32_t contexts() const { return static_cast<uint32_t>(contexts_granted_ - contexts_gone_); }

  bool HasMessages() const { return !outbox_.empty(); }
  std::vector<wire::Message> TakeMessages() { return std::exchange(outbox_, {}); }

 private:
  struct Growth {
    Bytes by;
    Answer answer = Answer::kPending;
  };

  void Send(wire::Message message);
  void Tell(Bytes total);
  Answer Judge() const;  // without a daemon; kPending: only the next one can tell
  void AskIfNeeded();    // for the growth

  bool registered_ = false;
  Bytes limit_;
  Bytes most_allocated_;  // without a daemon
  bool siblings_ = false;
  bool absent_ = false;  // there is no daemon
  Bytes total_;
  Bytes reserved_;  // with the daemon
  Bytes unneeded_;  // the least that was reserved for nothing since the last ReturnUnused
  uint64_t sequence_ = 0;
  std::optional<Growth> growth_;  // not polled yet
  uint64_t growth_sequence_ = 0;
  Bytes growth_total_;  // that was told with it
  uint64_t contexts_wanted_ = 0;
  uint64_t contexts_answered_ = 0;
  std::map<uint64_t, Answer> context_answers_;  // not polled yet, by ticket
  uint64_t contexts_granted_ = 0;
  uint64_t contexts_gone_ = 0;
  Bytes fixed_;                              // granted and not gone
  std::map<uint64_t, Growth> fixed_wanted_;  // not polled yet, by ticket
  std::vector<wire::Message> outbox_;
};

}  // namespace tandem::client
