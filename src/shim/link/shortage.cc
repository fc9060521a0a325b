#include "src/shim/link/shortage.h"

#include <algorithm>

#include "src/shim/os/log.h"

namespace tandem::shim {
namespace {

constexpr int kRefusalPatience = 3;  // refusals
constexpr Bytes kFirstShortage = MiB(2);
constexpr Duration kShortageKept = Seconds(10);

}  // namespace

void Shortage::OnRefused(Instant now) {
  Step(now);
  if (++refusals_ < kRefusalPatience || ticket_.has_value()) return;
  asked_ = std::max(kFirstShortage, taken_);  // twice as much each time
  ticket_ = link_->AskForFixed(asked_);
}

void Shortage::Step(Instant now) {
  if (taken_ != Bytes() && now >= until_) GiveBack(&taken_);
  if (!ticket_.has_value()) return;
  const client::Answer answer = link_->PollFixed(*ticket_);
  if (answer == client::Answer::kPending) return;
  ticket_.reset();
  if (answer != client::Answer::kGranted) return;
  if (refusals_ == 0) return GiveBack(&asked_);  // it had enough meanwhile
  taken_ += asked_;
  until_ = now + kShortageKept;
  Log(LogLevel::kInfo,
      "the GPU has %s less free memory than expected; evicted other sessions to compensate",
      FormatBytes(taken_).c_str());
}

void Shortage::GiveBack(Bytes* bytes) {
  link_->FixedGone(*bytes);
  *bytes = Bytes();
}

}  // namespace tandem::shim
