#include "src/core/world_test.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::core {
namespace {

constexpr Duration kLatency = Microseconds(50);
constexpr Bytes kArray = MiB(3);

}  // namespace

uint64_t World::Start(const Habits& habits) {
  const uint64_t id = ++last_id_;
  Program& program = programs_[id];
  program.habits = habits;
  Bytes& need = program.habits.need;
  if (!habits.oversubscribes) need = std::min(need, arbiter_.MostResident());
  program.need = need;
  program.on_host = need;  // for all the arbiter knows of one that has it already
  program.tells_arrivals = Uniform() < 0.8;
  event::SessionAdded added{SessionId{id}, RunId{id}, arbiter_.budget().total(), need, {}, 0, {}};
  added.oversubscribes = habits.oversubscribes;
  if (habits.oversubscribes) added.limit = habits.need + kArray;
  added.tenant = habits.tenant;
  added.of_class = habits.of_class;
  Send(added);
  WantContext(id, program);
  return id;
}

Duration World::worked(uint64_t id) const {
  const Program& program = programs_.at(id);
  return program.working ? program.worked + (now_ - program.working_since) : program.worked;
}

void World::Kill(uint64_t id) {
  programs_.erase(id);
  Send(event::SessionGone{SessionId{id}});
}

void World::Stop(uint64_t id, Duration length) {
  programs_.at(id).stopped_until = now_ + length;
}

void World::Suspend(uint64_t id, bool suspended) {
  programs_.at(id).asked_at = now_;  // what it has waited so far says nothing about the arbiter
  Send(event::Suspended{SessionId{id}, suspended});
}

void World::CalmDown() {
  calm_ = true;
  for (auto& [id, program] : programs_) {
    if (program.fixed > Bytes()) {
      Send(event::FixedGone{SessionId{id}, std::exchange(program.fixed, Bytes())});
    }
    program.habits = {.need = program.habits.need,
                      .oversubscribes = program.habits.oversubscribes,
                      .pause = Seconds(1 << 20)};
    Suspend(id, false);
  }
}

std::vector<uint64_t> World::ids() const {
  std::vector<uint64_t> ids;
  for (const auto& [id, program] : programs_) ids.push_back(id);
  return ids;
}

void World::RunFor(Duration length) {
  const Instant end = now_ + length;
  while (!queue_.empty() && queue_.begin()->first <= end && !::testing::Test::HasFailure()) {
    auto entry = queue_.extract(queue_.begin());
    now_ = entry.key();
    entry.mapped()();
  }
  now_ = end;
}

void World::At(Instant when, Call call) {
  queue_.emplace(when, std::move(call));
}

void World::For(uint64_t id, Duration after, std::function<void(Program&)> call) {
  At(now_ + after, [this, id, call = std::move(call)] {
    const auto at = programs_.find(id);
    if (at == programs_.end()) return;
    if (at->second.stopped_until > now_) {
      For(id, at->second.stopped_until - now_, call);
    } else {
      call(at->second);
    }
  });
}

void World::Send(Event event) {
  At(now_ + kLatency, [this, event] { Deliver(event); });
}

void World::Deliver(const Event& event) {
  if (const auto* running = std::get_if<event::Running>(&event); running != nullptr) {
    running_since_.try_emplace(running->epoch, now_);
  }
  for (const Action& action : arbiter_.On(event, now_)) Act(action);
  Check();
  CheckHost();
}

bool World::quiet() const {
  const auto& sessions = arbiter_.sessions();
  return !arbiter_.claimant().has_value() &&
         std::none_of(sessions.begin(), sessions.end(), [this](const auto& entry) {
           const Session& session = entry.second;
           const bool evicting = arbiter_.ChargeOf(entry.first) > session.credit;
           return session.stuck || evicting || session.phase == Phase::kRevoking;
         });
}

// Each grant leads to work (invariant 7 of the arbiter).
void World::CheckProgress(const action::Revoke& revoke) {
  const auto ran = running_since_.find(revoke.epoch);
  const auto program = programs_.find(revoke.id.value);
  if (program == programs_.end()) return;
  if (revoke.why == action::Why::kTurnEnded) {
    ASSERT_NE(ran, running_since_.end()) << "session " << revoke.id.value << " never ran";
    EXPECT_GE(now_ - ran->second, config_.turns.Quantum(Duration()));
  }
  if (revoke.why == action::Why::kPaused) {
    EXPECT_NE(ran, running_since_.end()) << "session " << revoke.id.value << " never ran";
  }
}

// Although the GPU is free: others work, or what cannot be swapped is in the way.
bool World::MayWait(const Wish& wish) const {
  const Session& session = arbiter_.sessions().at(wish.id);
  if (wish.kind == Wish::Kind::kLease) {
    return arbiter_.IsBarred(session) || session.need > arbiter_.MostResident();
  }
  const Bytes needed = wish.kind == Wish::Kind::kFixed ? kArray : config_.context;
  Bytes largest;
  for (const auto& [id, each] : arbiter_.sessions()) {
    if (!each.suspended) largest = std::max(largest, each.must_hold());
  }
  return wish.lasting() && largest + needed > arbiter_.MostResident();
}

// What the arbiter believes, and what is really on the card.
void World::Check() {
  const Budget& budget = arbiter_.budget();
  ASSERT_TRUE(arbiter_.roster().counted() == arbiter_.roster().Recounted());
  ASSERT_LE(budget.charged(), budget.total() + config_.spare);
  Bytes resident;
  uint64_t contexts = 0;
  for (const auto& [id, program] : programs_) {
    ASSERT_LE(program.resident, program.credit) << "session " << id;
    resident += program.resident + program.fixed;
    if (program.has_context) ++contexts;
    // Those who never get an answer count, too.
    const bool held_up = program.wants && !(program.open && program.has_context);
    const bool waits = held_up || program.wants_fixed;
    const auto session = arbiter_.sessions().find(SessionId{id});
    const bool suspended = session != arbiter_.sessions().end() && session->second.suspended;
    if (waits && !suspended && program.stopped_until <= now_) {
      longest_wait_ = std::max(longest_wait_, now_ - program.asked_at);
    }
  }
  const uint64_t above = std::max<uint64_t>(contexts, config_.reserved) - config_.reserved;
  ASSERT_LE(resident + Bytes(above * config_.context.count), budget.total() + config_.spare);
  bool settled = quiet();
  // Lent bytes are back once no session is on its way in or out.
  if (settled) {
    ASSERT_LE(budget.charged(), budget.total());
  }
  lent_ = lent_ || budget.charged() > budget.total();
  for (const auto& [id, session] : arbiter_.sessions()) {
    settled = settled && !session.holds();
    if (session.suspended && !session.holds() && !session.stuck) {
      ASSERT_EQ(session.credit, Bytes()) << "session " << id.value;
    }
  }
  if (!settled) return;
  for (const Wish& wish : arbiter_.Waiting()) {
    ASSERT_TRUE(MayWait(wish)) << "the GPU is free and session " << wish.id.value << " waits";
  }
}

// Evictions raise a session's bytes on the host at most to the excess, before or after the event.
// They move whole chunks.
void World::CheckHost() {
  const Bytes most = std::max(std::exchange(excess_, arbiter_.excess()), arbiter_.excess());
  for (const auto& [id, session] : arbiter_.sessions()) {
    const auto program = programs_.find(id.value);
    if (program == programs_.end()) continue;
    const Bytes now = arbiter_.OnHost(session);
    const Bytes before = std::exchange(program->second.on_host, now);
    if (session.goes()) continue;
    ASSERT_LE(now, std::max(before, most) + config_.chunk) << "session " << id.value;
  }
}

void World::Act(const Action& action) {
  if (const auto* grant = std::get_if<action::Grant>(&action)) {
    EXPECT_TRUE(epochs_.insert(grant->epoch).second);
    For(grant->id.value, kLatency, [this, grant = *grant](Program& program) {
      program.epoch = grant.epoch;
      program.credit = grant.credit;
      program.bytes_in = Bytes();
      Restore(grant.id.value, program);
    });
  } else if (const auto* credit = std::get_if<action::Credit>(&action)) {
    For(credit->id.value, kLatency, [this, credit = *credit](Program& program) {
      program.credit = credit.credit;
      Restore(credit.id.value, program);
    });
  } else if (const auto* revoke = std::get_if<action::Revoke>(&action)) {
    CheckProgress(*revoke);
    For(revoke->id.value, kLatency, [this, revoke = *revoke](Program& program) {
      if (program.epoch != revoke.epoch) return;
      const uint64_t id = revoke.id.value;
      if (program.working && Uniform() < program.habits.busy) {
        Send(event::Busy{SessionId{id}, program.epoch});
      } else {
        program.revoking = true;
        For(id, Microseconds(300), [this, id](Program& p) { Release(id, p); });
      }
    });
  } else if (const auto* evict = std::get_if<action::Evict>(&action)) {
    EXPECT_FALSE(arbiter_.sessions().at(evict->id).holds());
    For(evict->id.value, kLatency, [this, evict = *evict](Program& program) {
      program.target = evict.target;
      if (!std::exchange(program.evicting, true)) EvictChunk(evict.id.value, program);
    });
  } else if (const auto* contended = std::get_if<action::SetContended>(&action)) {
    For(contended->id.value, Duration(), [this, contended = *contended](Program& program) {
      program.contended = contended.contended || contended.watched;
      if (program.contended && program.open && !program.working && !program.told_idle) {
        program.told_idle = true;
        Send(event::Idle{contended.id, program.epoch});
      }
    });
  } else if (const auto* context = std::get_if<action::ContextReserved>(&action)) {
    if (!context->granted) {
      ++refused_;
      return For(context->id.value, Seconds(1),
                 [this, id = context->id.value](Program& program) { WantContext(id, program); });
    }
    For(context->id.value, kLatency, [this, id = context->id.value](Program& program) {
      program.has_context = true;
      WantToWork(id, program);
    });
  } else if (const auto* fixed = std::get_if<action::FixedReserved>(&action)) {
    if (!fixed->granted) ++refused_;
    For(fixed->id.value, kLatency, [this, fixed = *fixed](Program& program) {
      const uint64_t id = fixed.id.value;
      program.wants_fixed = false;
      if (fixed.granted && calm_) Send(event::FixedGone{fixed.id, kArray});
      if (fixed.granted && !calm_) program.fixed = kArray;
      Rest(id, program);
    });
  } else if (const auto* done = std::get_if<action::HandoverDone>(&action)) {
    handovers_.push_back(done->record);
  } else if (const auto* wake = std::get_if<action::WakeAt>(&action)) {
    wake_ = wake->instant;
    At(std::max(wake_, now_ + Duration(1)), [this, at = wake_] {
      if (wake_ == at) Deliver(event::Tick{});
    });
  } else if (const auto* breach = std::get_if<action::Breach>(&action)) {
    ADD_FAILURE() << "session " << breach->id.value << ": " << breach->reason;
  }
}

Duration World::Draw(Duration mean, bool random) {
  if (!random) return mean;
  return Duration(static_cast<int64_t>(-std::log(1 - Uniform()) * static_cast<double>(mean.ns)));
}

Duration World::BusTime(Bytes bytes) const {
  return Duration(static_cast<int64_t>(static_cast<double>(bytes.count) / bytes_per_second_ * 1e9));
}

void World::WantContext(uint64_t id, Program& program) {
  program.wants = true;
  program.asked_at = now_;
  Send(event::ContextWanted{SessionId{id}});
}

void World::WantToWork(uint64_t id, Program& program) {
  program.wants = true;
  if (program.open && program.resident >= program.need) {
    BeginBurst(id, program);
  } else {
    program.open = false;
    program.asked_at = now_;
    Ask(id, program);
  }
}

// What it may have on the card is shown to it.
void World::Ask(uint64_t id, Program& program) {
  if (program.habits.oversubscribes) {
    program.need = std::min(program.habits.need, arbiter_.MostResident());
  }
  const auto chance = [&] { return program.habits.say > 0 && Uniform() < program.habits.say; };
  if (chance()) Send(event::Declared{SessionId{id}, Draw(program.habits.burst, true)});
  Send(event::Ready{SessionId{id}, program.need});
  if (chance()) For(id, Milliseconds(50), [this, id](Program& p) { GiveUp(id, p); });
}

// It waits no longer, where it still waits for a lease.
void World::GiveUp(uint64_t id, Program& program) {
  if (!program.wants || program.epoch != 0 || program.working) return;
  program.wants = false;
  Send(event::NotReady{SessionId{id}});
  Rest(id, program);
}

void World::BeginBurst(uint64_t id, Program& program) {
  program.wants = false;
  program.working = true;
  program.working_since = now_;
  if (program.told_idle) Send(event::Active{SessionId{id}, program.epoch});
  program.told_idle = false;
  const bool interrupted = program.left > Duration();
  const Duration length =
      interrupted ? program.left : Draw(program.habits.burst, program.habits.random);
  program.left = Duration();
  program.work_until = now_ + length;
  For(id, length, [this, id](Program& p) {
    if (p.working && now_ >= p.work_until) EndBurst(id, p);
  });
}

void World::EndBurst(uint64_t id, Program& program) {
  program.working = false;
  program.worked = program.worked + (now_ - program.working_since);
  if (Uniform() < program.habits.grow) {
    const Bytes chunk = arbiter_.config().chunk;
    const Bytes change(chunk.count * (1 + random_() % 8));
    // Contexts and arrays fit beside it.
    const Bytes most(arbiter_.budget().total().count * 7 / 10);
    if (Uniform() < 0.5 && program.need + change <= most) {
      program.need += change;
    } else if (program.need > change) {
      program.need -= change;
      if (program.resident > program.need) {
        program.resident = program.credit = program.need;
        Send(event::Evicted{SessionId{id}, program.resident, Bytes()});
      }
    }
    Send(event::Reserve{SessionId{id}, 1, program.need});
  }
  if (Uniform() < program.habits.stop) {
    Stop(id, Draw(program.habits.longest_stop / 2, true));
  }
  if (program.contended && program.open) {
    program.told_idle = true;
    Send(event::Idle{SessionId{id}, program.epoch});
  }
  if (Uniform() < program.habits.reset) {
    program.has_context = false;
    Send(event::ContextGone{SessionId{id}});
    WantContext(id, program);
    return;
  }
  if (Uniform() < program.habits.array) return ChangeFixed(id, program);
  Rest(id, program);
}

void World::ChangeFixed(uint64_t id, Program& program) {
  if (program.fixed > Bytes()) {
    Send(event::FixedGone{SessionId{id}, std::exchange(program.fixed, Bytes())});
    return Rest(id, program);
  }
  program.wants_fixed = true;
  program.asked_at = now_;
  Send(event::FixedWanted{SessionId{id}, 1, kArray});
}

void World::Rest(uint64_t id, Program& program) {
  if (program.habits.say > 0 && Uniform() < program.habits.say) Send(event::Leaving{SessionId{id}});
  For(id, Draw(program.habits.pause, program.habits.random),
      [this, id](Program& p) { WantToWork(id, p); });
}

void World::Restore(uint64_t id, Program& program) {
  if (program.habits.oversubscribes) program.need = std::min(program.need, arbiter_.MostResident());
  const Bytes aim = std::min(program.need, program.credit);
  if (program.copying) return;
  if (aim > program.resident) {
    program.copying = true;
    const Bytes part = std::min(aim - program.resident, arbiter_.config().chunk);
    For(id, BusTime(part), [=, this](Program& p) {
      p.copying = false;
      // What is freed meanwhile may make the rest superfluous.
      const Bytes fits = SaturatingSubtract(std::min(p.need, p.credit), p.resident);
      if (p.epoch == 0) return;
      p.resident += std::min(part, fits);
      p.bytes_in += part;
      p.kept += part;
      if (p.tells_arrivals && !p.open) {
        Send(event::Restored{SessionId{id}, p.epoch, p.resident, part});
      }
      Restore(id, p);
    });
    return;
  }
  if (program.resident < program.need || program.open || program.epoch == 0) return;
  if (program.revoking) return;
  program.open = true;
  program.kept = Bytes();
  Send(event::Running{SessionId{id}, program.epoch, program.bytes_in});
  if (program.wants && program.has_context) {
    BeginBurst(id, program);
  } else if (!program.wants && program.contended) {  // it waited no longer when the lease came
    program.told_idle = true;
    Send(event::Idle{SessionId{id}, program.epoch});
  }
}

void World::EvictChunk(uint64_t id, Program& program) {
  program.credit = std::min(program.credit, std::max(program.target, program.resident));
  if (program.resident <= program.target) {
    program.evicting = false;
    program.credit = program.resident;
    Send(event::Evicted{SessionId{id}, program.resident, Bytes()});
    return;
  }
  const Bytes part = std::min(program.resident, arbiter_.config().chunk);
  For(id, BusTime(part), [=, this](Program& p) {
    p.evicting = false;
    if (p.epoch != 0) return;
    p.resident -= std::min(part, p.resident);
    p.credit = std::max(p.target, p.resident);
    const Bytes spared = std::min(p.kept, part);
    p.kept -= spared;
    Send(event::Evicted{SessionId{id}, p.resident, part - spared});
    if (p.resident > p.target) {
      p.evicting = true;
      EvictChunk(id, p);
    } else {
      p.credit = p.resident;
    }
  });
}

// Work that was on the GPU continues after the next grant.
void World::Release(uint64_t id, Program& program) {
  if (program.epoch == 0) return;
  program.revoking = false;
  program.open = false;
  program.told_idle = false;
  if (program.working) {
    program.wants = true;
    program.left = std::max(program.work_until - now_, Duration(1));
    program.worked = program.worked + (now_ - program.working_since);
  }
  program.working = false;
  Send(event::Released{SessionId{id}, program.epoch});
  program.epoch = 0;
  if (program.wants && program.has_context) {
    program.asked_at = now_;
    Ask(id, program);
  }
}

}  // namespace tandem::core
