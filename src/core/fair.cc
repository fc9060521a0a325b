// Fair: each user and session gets its share of the card's time (shares.h), one at a time.
//
// Start-time fair queueing (Goyal, Vin and Cheng, "Start-time Fair Queuing: A Scheduling Algorithm
// for Integrated Services Packet Switching Networks", SIGCOMM 1996), in a tree as there (section
// 3). Each node of it has a tag: the time that was used below it, over its part of its level. Of
// the branches that wait, the one with the least tag is served first, level by level. A node that
// wants nothing for longer than a quantum starts again at the virtual time of its level, the least
// tag of those that go on wanting: an unused share is not owed. An instant between two kernels,
// in which the card goes to another session, costs no session its share.
//
// Time counts from when the lease is given, so that bringing a session's memory in is paid for by
// that session, to when it is given back, pauses included: meanwhile no other session has the card.
// A holder keeps it for its quantum, and longer as long as its branch is the one with the least
// tag: so no session that keeps waiting lags by more than a quantum of each of the others.
//
// All is charged in time, since one at a time has the card and all of its memory is there for it.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "src/core/policies.h"
#include "src/core/shares.h"

namespace tandem::core {
namespace {

// If fractions take all of the time, a session without one still gets this part, or it would
// starve.
constexpr double kLeastRest = 0.01;
constexpr double kMostNs = 4e18;  // 127 years
// A session that returns within a quantum is owed what it missed of its share, up to this number of
// quanta.
constexpr double kMostOwed = 8;

// A project, a user or a session; all of them are in the root. Each is a group of the queue.
struct Node {
  struct ByTag {
    bool operator()(const Node* a, const Node* b) const {
      return a->tag != b->tag ? a->tag < b->tag : a->id < b->id;
    }
  };

  GroupId id = kNoGroup;
  Node* parent = nullptr;
  std::string name;
  Share share;
  double tag = 0;   // of the time used: that of a weight of 1
  int wanting = 0;  // sessions in it that use the card or wait for it
  Instant left_at;  // since then none does
  std::map<std::string, std::unique_ptr<Node>> children;

  // Of its children, those that want something.
  std::set<Node*, ByTag> active;
  double weights = 0;       // of those that have one
  double fractions = 0;     // of the others
  double virtual_time = 0;  // never less than it was

  // By how much its tag grows for a nanosecond of its time. The weight does not depend on the other
  // sessions that wait: earlier charges still count the same after they come and go.
  double Rate() const {
    if (!share.fraction.has_value()) return 1 / share.weight;
    if (parent->weights <= 0) return 1 / *share.fraction;
    return std::max(1 - parent->fractions, kLeastRest) / (parent->weights * *share.fraction);
  }
  void KeepTime() {
    if (!active.empty()) virtual_time = std::max(virtual_time, (*active.begin())->tag);
  }
};

class Fair : public Policy {
 public:
  explicit Fair(const PolicyContext& context)
      : Policy(context.rules),
        shares_(*context.shares),
        queue_(*context.queue),
        quantum_(context.rules.floor) {}

  bool together() const override { return false; }
  bool keeps_accounts() const override { return true; }

  void OnSession(const Session& session, Instant now) override {
    Advance(now);
    Node& leaf = LeafOf(session);
    const bool holds = session.holds_well();  // a suspended session uses nothing and wants nothing
    if (holds) {
      working_.insert(&leaf);
    } else {
      working_.erase(&leaf);
    }
    const bool wants = !session.stuck && (holds || session.asks() || session.wants_growth);
    if (wants != (leaf.wanting > 0)) SetWanting(&leaf, wants);
  }

  void OnGone(SessionId id, Instant now) override {
    Advance(now);
    const auto at = leaves_.find(id);
    if (at == leaves_.end()) return;
    Node* node = at->second;
    leaves_.erase(at);
    working_.erase(node);
    if (node->wanting > 0) SetWanting(node, false);
    Node* const user = node->parent;
    Remove(node);
    if (user->children.empty()) left_.insert(user);
    ForgetSettled();
  }

  void OnShares(Instant now) override {
    Advance(now);
    for (const auto& [id, leaf] : leaves_) {
      Node* const user = leaf->parent;
      Node* const project = user->parent;
      SetShare(project, {project->name, {}, {}});
      SetShare(user, {project->name, user->name, {}});
      SetShare(leaf, {project->name, user->name, id});
    }
  }

  void Place(const Session& session, Wish* wish) override { wish->group = LeafOf(session).id; }

  void BeforeChoice(Instant now) override { Advance(now); }

  void OnSwitch(Duration cost, Instant /*now*/) override { quantum_ = rules().Quantum(cost); }

  Instant TurnEnds(const Contest& contest) const override {
    return std::max(Policy::TurnEnds(contest), contest.now + Due(contest));
  }

  // Who is still owed time need not give it away for an instant without work: no longer than what
  // switching may cost.
  Duration MayPause(const Contest& contest) const override {
    const Duration usual = Policy::MayPause(contest);
    if (rules().cost_multiple == 0) return usual;
    return std::max(usual, std::min(Due(contest), contest.quantum / rules().cost_multiple));
  }

 private:
  // What the holder may have until the waiter's branch is the one with the lesser tag.
  Duration Due(const Contest& contest) const {
    const Node* holder = leaves_.at(contest.holder.id);
    const Node* waiter = leaves_.at(contest.waiter.id);
    while (holder->parent != waiter->parent) {
      holder = holder->parent;
      waiter = waiter->parent;
    }
    const double behind = waiter->tag - holder->tag;
    if (holder->wanting == 0 || behind <= 0) return Duration();
    return Duration(Whole(behind / holder->Rate()));
  }

  static int64_t Whole(double ns) { return static_cast<int64_t>(std::min(ns, kMostNs)); }

  void Remove(Node* node) {
    queue_.RemoveGroup(node->id);
    node->parent->children.erase(node->parent->children.find(node->name));
  }

  // A user whose last session has gone comes back as it was, unless it has nothing to make up for
  // any more; or else its share could be had again and again by ever new sessions.
  void ForgetSettled() {
    for (auto at = left_.begin(); at != left_.end();) {
      Node* const node = *at;
      const bool empty = node->children.empty();
      if (empty && node->tag > node->parent->virtual_time) {
        ++at;
        continue;
      }
      at = left_.erase(at);
      if (!empty) continue;
      Node* const parent = node->parent;
      Remove(node);
      if (parent->parent == nullptr || !parent->children.empty()) continue;
      at = left_.insert(parent).first;
    }
  }

  Node& LeafOf(const Session& session) {
    Node*& leaf = leaves_[session.id];
    if (leaf == nullptr) {
      const Tenant& tenant = session.tenant;
      Node& project = Child(&root_, tenant.project, {tenant.project, {}, {}});
      Node& user = Child(&project, tenant.user, {tenant.project, tenant.user, {}});
      leaf = &Child(&user, std::to_string(session.id.value),
                    {tenant.project, tenant.user, session.id});
    }
    return *leaf;
  }

  Node& Child(Node* parent, const std::string& name, const ShareKey& key) {
    std::unique_ptr<Node>& child = parent->children[name];
    if (child == nullptr) {
      child = std::make_unique<Node>();
      child->id = ++last_group_;
      child->parent = parent;
      child->name = name;
      child->share = shares_.Of(key);
      queue_.RankGroup(child->id, parent->id, 0);
    }
    return *child;
  }

  // The time since the last call is charged to those who work, and to all that they are in.
  void Advance(Instant now) {
    const double each = static_cast<double>((now - now_).ns) /
                        static_cast<double>(std::max(working_.size(), size_t{1}));
    now_ = now;
    if (each == 0) return;
    for (Node* leaf : working_) {
      for (Node* node = leaf; node->parent != nullptr; node = node->parent) {
        SetTag(node, node->tag + each * node->Rate());
      }
    }
  }

  // REQUIRES: it wants something.
  void SetTag(Node* node, double tag) {
    node->parent->active.erase(node);
    node->tag = tag;
    node->parent->active.insert(node);
    node->parent->KeepTime();
    queue_.RankGroup(node->id, node->parent->id, Whole(tag));
  }

  void SetWanting(Node* leaf, bool wants) {
    for (Node* node = leaf; node->parent != nullptr; node = node->parent) {
      Node& parent = *node->parent;
      node->wanting += wants ? 1 : -1;
      if (wants && node->wanting == 1) {
        Count(node, 1);
        const bool soon = now_ - node->left_at <= quantum_;
        const double owed = soon ? kMostOwed * static_cast<double>(quantum_.ns) * node->Rate() : 0;
        SetTag(node, std::max(node->tag, parent.virtual_time - owed));
      } else if (!wants && node->wanting == 0) {
        node->left_at = now_;
        parent.KeepTime();
        parent.active.erase(node);
        Count(node, -1);
      }
    }
  }

  static void Count(Node* node, int sign) {
    Node& parent = *node->parent;
    if (node->share.fraction.has_value()) {
      parent.fractions = std::max(parent.fractions + sign * *node->share.fraction, 0.0);
    } else {
      parent.weights = std::max(parent.weights + sign * node->share.weight, 0.0);
    }
    if (parent.active.empty() && sign < 0) parent.fractions = parent.weights = 0;  // exactly
  }

  void SetShare(Node* node, const ShareKey& key) {
    const Share share = shares_.Of(key);
    if (node->share == share) return;
    const double before = node->Rate();
    if (node->wanting > 0) Count(node, -1);
    node->share = share;
    if (node->wanting > 0) Count(node, 1);
    // What it has had too much counts as it would have been charged with this share.
    const double now = node->parent->virtual_time;
    if (node->tag <= now) return;
    const double tag = now + (node->tag - now) * node->Rate() / before;
    if (node->wanting > 0) {
      SetTag(node, tag);
    } else {
      node->tag = tag;
    }
  }

  const Shares& shares_;
  WishQueue& queue_;
  Duration quantum_;  // of the last switch
  Node root_;
  std::map<SessionId, Node*> leaves_;
  std::set<Node*> working_;
  std::set<Node*> left_;  // without a session
  GroupId last_group_ = kNoGroup;
  Instant now_;
};

}  // namespace

std::unique_ptr<Policy> MakeFair(const PolicyContext& context) {
  return std::make_unique<Fair>(context);
}

}  // namespace tandem::core
