// RunLimits: how much the sessions of each run may allocate together on one GPU.
//
// Threading: none. Pure.
// Invariant: no grant takes a run above its limit. (Sessions that come from before the daemon's
// restart bring what they have allocated; such a run may start above and cannot grow. The same
// where a limit falls.)
#pragma once

#include <map>

#include "src/core/types.h"

namespace tandem::core {

class RunLimits {
 public:
  // `limit` counts for the first session of a run.
  void Add(SessionId session, RunId run, Bytes limit, Bytes allocated);
  void Remove(SessionId session);
  void SetLimit(RunId run, Bytes limit);  // nothing where the run has no session here

  // Whether `total` is allowed for the session; if so, it is now its allocation.
  bool Reserve(SessionId session, Bytes total);
  // Adds these bytes of fixed memory to the session if its limit allows; whether it did.
  bool TakeFixed(SessionId session, Bytes bytes);
  void AddFixed(SessionId session, Bytes bytes);  // that it has in any case
  // REQUIRES: it has as many.
  void GiveFixed(SessionId session, Bytes bytes);

  Bytes allocated(SessionId session) const;       // what can be swapped
  Bytes allocated() const { return allocated_; }  // by all
  Bytes limit(SessionId session) const;
  Bytes used(SessionId session) const;  // with what cannot be swapped
  Bytes run_used(SessionId session) const;
  uint64_t run_sessions(SessionId session) const;  // how many its run has

 private:
  struct Run {
    Bytes limit;
    Bytes used;
    uint64_t sessions = 0;
  };
  struct Member {
    RunId run;
    Bytes allocated;
    Bytes fixed;
  };

  std::map<RunId, Run> runs_;
  std::map<SessionId, Member> members_;
  Bytes allocated_;
};

}  // namespace tandem::core
