#include "src/core/limits.h"

#include <algorithm>

namespace tandem::core {

void RunLimits::Add(SessionId session, RunId run, Bytes limit, Bytes allocated) {
  Run& shared = runs_[run];
  if (shared.sessions++ == 0) shared.limit = limit;
  shared.used += allocated;
  allocated_ += allocated;
  members_[session] = Member{run, allocated, {}};
}

void RunLimits::Remove(SessionId session) {
  const Member& member = members_.at(session);
  Run& run = runs_.at(member.run);
  run.used -= member.allocated + member.fixed;
  allocated_ -= member.allocated;
  if (--run.sessions == 0) runs_.erase(member.run);
  members_.erase(session);
}

void RunLimits::SetLimit(RunId run, Bytes limit) {
  const auto at = runs_.find(run);
  if (at != runs_.end()) at->second.limit = limit;
}

bool RunLimits::Reserve(SessionId session, Bytes total) {
  Member& member = members_.at(session);
  Run& run = runs_.at(member.run);
  const Bytes others = run.used - member.allocated;
  if (total > member.allocated && total > SaturatingSubtract(run.limit, others)) return false;
  run.used = others + total;
  allocated_ = allocated_ - member.allocated + total;
  member.allocated = total;
  return true;
}

bool RunLimits::TakeFixed(SessionId session, Bytes bytes) {
  const Run& run = runs_.at(members_.at(session).run);
  if (bytes > SaturatingSubtract(run.limit, run.used)) return false;
  AddFixed(session, bytes);
  return true;
}

void RunLimits::AddFixed(SessionId session, Bytes bytes) {
  Member& member = members_.at(session);
  member.fixed += bytes;
  runs_.at(member.run).used += bytes;
}

void RunLimits::GiveFixed(SessionId session, Bytes bytes) {
  Member& member = members_.at(session);
  member.fixed -= bytes;
  runs_.at(member.run).used -= bytes;
}

Bytes RunLimits::allocated(SessionId session) const {
  return members_.at(session).allocated;
}

Bytes RunLimits::limit(SessionId session) const {
  return runs_.at(members_.at(session).run).limit;
}

Bytes RunLimits::used(SessionId session) const {
  const Member& member = members_.at(session);
  return member.allocated + member.fixed;
}

Bytes RunLimits::run_used(SessionId session) const {
  return runs_.at(members_.at(session).run).used;
}

uint64_t RunLimits::run_sessions(SessionId session) const {
  return runs_.at(members_.at(session).run).sessions;
}

}  // namespace tandem::core
