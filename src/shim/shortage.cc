#include "src/shim/shortage.h"

#include <algorithm>

#include "src/shim/log.h"

namespace tandem::shim {
namespace {

constexpr int kPatience = 3;  // refusals
constexpr Bytes kFirst = MiB(2);
constexpr Duration kKept = Seconds(10);

}  // namespace

void Shortage::OnRefused(Instant now) {
  Step(now);
  if (++refusals_ < kPatience || ticket_.has_value()) return;
  asked_ = std::max(kFirst, taken_);  // twice as much each time
  ticket_ = link_->AskForFixed(asked_);
}

void Shortage::Step(Instant now) {
  if (ticket_.has_value()) {
    const client::Answer answer = link_->PollFixed(*ticket_);
    if (answer == client::Answer::kPending) return;
    ticket_.reset();
    if (answer == client::Answer::kGranted) {
      taken_ += asked_;
      until_ = now + kKept;
      Log(LogLevel::kInfo, "the card has %s less than was thought; others left for it",
          FormatBytes(taken_).c_str());
    }
  }
  if (taken_ == Bytes() || now < until_) return;
  link_->FixedGone(taken_);
  taken_ = Bytes();
}

}  // namespace tandem::shim
