#include "src/client/requests.h"

#include <algorithm>

namespace tandem::client {

void Requests::Send(wire::Message message) {
  if (registered_) outbox_.push_back(std::move(message));
}

void Requests::Tell(Bytes total) {
  Send(wire::Reserve{++sequence_, total.count});
}

void Requests::OnRegistered(Bytes limit, Bytes claimed_total, uint32_t claimed_contexts,
                            Bytes claimed_fixed) {
  registered_ = true;
  limit_ = limit;
  outbox_.clear();
  reserved_ = claimed_total;
  unneeded_ = {};
  if (growing() && growth_->answer == Answer::kPending) AskIfNeeded();
  for (uint32_t i = contexts(); i < claimed_contexts; ++i) Send(wire::ContextGone{});
  for (uint64_t i = contexts_answered_; i < contexts_wanted_; ++i) Send(wire::ContextWanted{});
  if (fixed_ < claimed_fixed) Send(wire::FixedGone{(claimed_fixed - fixed_).count});
  for (const auto& [ticket, wanted] : fixed_wanted_) {
    if (wanted.answer == Answer::kPending) Send(wire::FixedWanted{ticket, wanted.by.count});
  }
}

Answer Requests::Judge() const {
  if (!absent_ || siblings_) return Answer::kPending;
  const bool fits = used() <= limit_ && total_ <= most_allocated_;
  return fits ? Answer::kGranted : Answer::kRefused;
}

Bytes Requests::claim() const {
  const bool granted = !growing() || growth_->answer == Answer::kGranted;
  return granted ? total_ : total_ - growth_->by;
}

void Requests::AskIfNeeded() {
  growth_->answer = total_ > reserved_ ? Answer::kPending : Answer::kGranted;
  if (total_ <= reserved_) return;
  growth_total_ = total_;
  Tell(total_);
  growth_sequence_ = sequence_;
}

void Requests::OnLost(Bytes limit, Bytes most_allocated, bool siblings) {
  registered_ = false;
  limit_ = limit;
  most_allocated_ = most_allocated;
  siblings_ = siblings;
  absent_ = false;
  outbox_.clear();
}

void Requests::OnAbsent(bool run_open) {
  absent_ = true;
  siblings_ = siblings_ && run_open;
  if (growing() && growth_->answer == Answer::kPending) growth_->answer = Judge();
}

void Requests::OnTurnedAway() {
  if (growing() && growth_->answer == Answer::kPending) growth_->answer = Answer::kRefused;
}

void Requests::Grow(Bytes by) {
  total_ += by;
  growth_ = Growth{by, Answer::kPending};
  unneeded_ = std::min(unneeded_, SaturatingSubtract(reserved_, total_));
  if (registered_) {
    AskIfNeeded();
  } else {
    growth_->answer = Judge();
  }
}

Answer Requests::Poll() {
  if (!growing()) return Answer::kRefused;
  const Growth growth = *growth_;
  if (growth.answer == Answer::kPending) return growth.answer;
  growth_.reset();
  if (growth.answer == Answer::kRefused) total_ -= growth.by;
  return growth.answer;
}

void Requests::Shrink(Bytes by) {
  total_ -= by;
}

void Requests::ReturnUnused() {
  if (!has_unused()) return;
  if (unneeded_ > Bytes()) {
    reserved_ -= unneeded_;
    Tell(reserved_);
  }
  unneeded_ = reserved_ - total_;
}

void Requests::ReturnAllUnused() {
  if (has_unused()) unneeded_ = reserved_ - total_;
  ReturnUnused();
}

uint64_t Requests::WantContext() {
  ReturnAllUnused();  // it may be in its way
  Send(wire::ContextWanted{});
  return ++contexts_wanted_;
}

Answer Requests::PollContext(uint64_t ticket) {
  const auto found = context_answers_.find(ticket);
  if (found == context_answers_.end()) return Answer::kPending;
  const Answer answer = found->second;
  context_answers_.erase(found);
  return answer;
}

void Requests::ContextGone() {
  ++contexts_gone_;
  Send(wire::ContextGone{});
}

uint64_t Requests::WantFixed(Bytes bytes) {
  ReturnAllUnused();
  Send(wire::FixedWanted{++sequence_, bytes.count});
  fixed_wanted_.emplace(sequence_, Growth{bytes, Answer::kPending});
  return sequence_;
}

Answer Requests::PollFixed(uint64_t ticket) {
  const auto found = fixed_wanted_.find(ticket);
  if (found == fixed_wanted_.end()) return Answer::kRefused;
  const Answer answer = found->second.answer;
  if (answer != Answer::kPending) fixed_wanted_.erase(found);
  return answer;
}

void Requests::FixedGone(Bytes bytes) {
  fixed_ = SaturatingSubtract(fixed_, bytes);
  Send(wire::FixedGone{bytes.count});
}

void Requests::OnMessage(const wire::FixedReserved& reserved) {
  const auto found = fixed_wanted_.find(reserved.sequence);
  if (found == fixed_wanted_.end() || found->second.answer != Answer::kPending) return;
  found->second.answer = reserved.granted != 0 ? Answer::kGranted : Answer::kRefused;
  if (reserved.granted != 0) fixed_ += found->second.by;
}

void Requests::OnMessage(const wire::Reserved& reserved) {
  const bool asked = growing() && growth_->answer == Answer::kPending;
  if (!asked || reserved.sequence != growth_sequence_) return;
  growth_->answer = reserved.granted != 0 ? Answer::kGranted : Answer::kRefused;
  if (reserved.granted != 0) reserved_ = growth_total_;
}

void Requests::OnMessage(const wire::ContextReserved& reserved) {
  if (!WaitsForContext()) return;
  const bool granted = reserved.granted != 0;
  if (granted) ++contexts_granted_;
  context_answers_[++contexts_answered_] = granted ? Answer::kGranted : Answer::kRefused;
}

}  // namespace tandem::client
