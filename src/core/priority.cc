// Priority: the more urgent class first. Its sessions take the card from the other classes at once;
// within a class each session gets a turn, in the order of arrival. Production's memory stays on
// the card.
//
// Opportunistic work has what others leave. Where there is room for its memory beside theirs, it
// has the card while they pause, up to shortly before they go on, or longer, as long as that slows
// no other session (harvest.h). It keeps little in flight, so that it is gone soon.
#include <array>
#include <map>

#include "src/core/harvest.h"
#include "src/core/policies.h"

namespace tandem::core {
namespace {

constexpr Duration kWindow = Microseconds(500);  // of opportunistic work in flight
// As good as for ever, and can be added to any instant there will be.
constexpr Duration kForEver = Seconds(int64_t{1} << 32);

bool IsOpportunistic(const Session& session) {
  return session.of_class == Class::kOpportunistic;
}

class Priority : public Policy, private Pacing {
 public:
  explicit Priority(const PolicyContext& context) : Policy(context.rules), queue_(*context.queue) {}

  const Pacing* pacing() const override { return this; }
  bool keeps_accounts() const override { return true; }

  void Place(const Session& session, Wish* wish) override {
    const auto level = static_cast<int64_t>(session.of_class);
    wish->group = static_cast<GroupId>(level) + 1;
    queue_.RankGroup(wish->group, kNoGroup, level);
  }

  bool Outranks(const Contest& contest) const override {
    return contest.waiter.of_class < contest.holder.of_class;
  }

  Instant TurnEnds(const Contest& contest) const override {
    if (contest.waiter.of_class > contest.holder.of_class) return kNever;
    return Policy::TurnEnds(contest);
  }

  Duration MayPause(const Contest& contest) const override {
    const bool of_others = contest.waiter.of_class > contest.holder.of_class;
    if (of_others && contest.holder.of_class == Class::kProduction) return kForEver;
    return Policy::MayPause(contest);
  }

  void OnSession(const Session& session, Instant now) override {
    Known& known = known_[session.id];
    Count(known, -1);
    known = Known{session.of_class, session.asks() || session.wants_growth, session.busy(), true};
    Count(known, 1);
    Turn(now);
  }

  void OnGone(SessionId id, Instant now) override {
    const auto at = known_.find(id);
    if (at == known_.end()) return;
    Count(at->second, -1);
    known_.erase(at);
    Turn(now);
  }

  void BeforeChoice(Instant now) override { harvest_.Update(now); }

 private:
  // Of one session, as it is counted.
  struct Known {
    Class of_class = Class::kInteractive;
    bool waits = false;
    bool busy = false;
    bool counts = false;
  };
  struct Counts {
    int sessions = 0;
    int waiting = 0;
    int busy = 0;
  };

  bool Bars(const Session& session) const override {
    return IsOpportunistic(session) && OfOthers(&Counts::sessions) > 0 && !harvest_.open();
  }
  Instant ChangesAt() const override { return harvest_.updates_at().value_or(kNever); }
  bool Watches(const Session& holder) const override {
    return !IsOpportunistic(holder) && of(Class::kOpportunistic).sessions > 0;
  }
  bool IsContended(const Session& holder) const override {
    if (IsOpportunistic(holder) && OfOthers(&Counts::sessions) > 0) return true;
    const Known& known = known_.at(holder.id);
    int waiting = known.waits ? -1 : 0;
    for (size_t level = 0; level <= static_cast<size_t>(holder.of_class); ++level) {
      waiting += counts_[level].waiting;
    }
    return waiting > 0;
  }
  Duration Window(const Session& session, Duration usual) const override {
    return IsOpportunistic(session) ? std::min(usual, kWindow) : usual;
  }

  const Counts& of(Class which) const { return counts_[static_cast<size_t>(which)]; }

  void Count(const Known& known, int sign) {
    if (!known.counts) return;
    Counts& counts = counts_[static_cast<size_t>(known.of_class)];
    counts.sessions += sign;
    counts.waiting += known.waits ? sign : 0;
    counts.busy += known.busy ? sign : 0;
  }

  // Of all classes but the opportunistic.
  int OfOthers(int Counts::*number) const {
    int sum = 0;
    for (size_t level = 0; level < static_cast<size_t>(Class::kOpportunistic); ++level) {
      sum += counts_[level].*number;
    }
    return sum;
  }

  void Turn(Instant now) {
    const bool works = OfOthers(&Counts::busy) > 0;
    if (works == harvest_.working()) return;
    if (works) {
      harvest_.OnWork(now);
    } else {
      harvest_.OnPause(now);
    }
  }

  WishQueue& queue_;
  std::map<SessionId, Known> known_;
  std::array<Counts, kClasses> counts_;
  Harvest harvest_;
};

}  // namespace

std::unique_ptr<Policy> MakePriority(const PolicyContext& context) {
  return std::make_unique<Priority>(context);
}

}  // namespace tandem::core
