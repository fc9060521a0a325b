// Interactive: sessions with short bursts go first, and may interrupt long bursts. Long bursts wait
// longer, but not for ever.
//
// Multi-level feedback (Corbató, Merwin-Daggett and Daley, "An Experimental Time-Sharing System",
// AFIPS 1962), with two differences. A session begins on the level where its last bursts have
// ended, not on the highest one again, since moving its memory costs more than a wrong guess. And
// instead of a queue for each level, waiting sessions have patience: the longer a session's bursts,
// the longer it is asked to wait for others, and wishes are served in the order of the instants at
// which that ends. So no session that arrives after that instant goes ahead.
//
// A session that says how long its burst will be is taken at its word until it exceeds it.
//
// Interrupting is paid for from an allowance (SwitchAllowance): what the ends of turns leave of the
// time that may be spent on switching. A session that had to wait longer than it was asked to is
// not interrupted before the end of its turn. A session works at least as long as its own switch
// took, and one that has just had a whole turn waits for its next one.
#include <algorithm>

#include "src/core/policies.h"

namespace tandem::core {
namespace {

// Bursts up to the first bound are of the first level. Each level's bound is the one before times
// this factor.
constexpr Duration kFirstBound = Milliseconds(100);
constexpr int64_t kGrowth = 4;
// A session waits for others up to this many of its bursts, and none longer than the most. (In the
// simulations of src/sim/policy_test.cc 2 to 10 come to much the same, and 30 to longer waits.)
constexpr int64_t kPatience = 4;
constexpr Duration kMostPatience = Seconds(60);

class Interactive : public Policy {
 public:
  explicit Interactive(const TurnRules& rules) : Policy(rules), allowance_(rules.cost_multiple) {}

  // The instant up to which it is asked to wait.
  void Place(const Session& session, Wish* wish) override {
    wish->rank = wish->since.ns;
    if (wish->kind != Wish::Kind::kLease) return;
    const Duration patience = std::max(session.ExpectedBurst(), Scaled(kFirstBound)) * kPatience;
    wish->rank += std::min(patience, Scaled(kMostPatience)).ns;
  }

  Instant InterruptsAt(const Contest& contest) const override {
    const bool overdue = contest.holder.rank <= contest.holder.granted_at.ns;
    const bool turns_are_fixed = rules().cost_multiple == 0;
    if (contest.wish.kind != Wish::Kind::kLease || overdue || turns_are_fixed) return kNever;
    if (contest.waiter.had_its_turn) return kNever;
    if (contest.waiter.ExpectedBurst() > Scaled(kMostPatience)) return kNever;
    // Once the holder's burst is of a higher level than the waiter's with both switches.
    const Duration price = contest.cost * 2;
    const Duration bound = LevelBound(contest.waiter.ExpectedBurst() + price);
    const Instant outgrown = contest.now + (bound - contest.holder.BurstSoFar(contest.now));
    const Instant paid_off = contest.holder.running_since + contest.cost;
    return std::max({outgrown, paid_off, allowance_.AffordableAt(price, contest.now)});
  }

  void BeforeChoice(Instant now) override { allowance_.Start(now); }
  void OnSwitch(Duration cost, Instant now) override { allowance_.Spend(cost, now); }

 private:
  // Of the level of such a burst.
  Duration LevelBound(Duration burst) const {
    Duration bound = Scaled(kFirstBound);
    while (bound < burst && bound < Scaled(kMostPatience)) bound = bound * kGrowth;
    return bound;
  }

  SwitchAllowance allowance_;
};

}  // namespace

std::unique_ptr<Policy> MakeInteractive(const PolicyContext& context) {
  return std::make_unique<Interactive>(context.rules);
}

}  // namespace tandem::core
