// InterruptibleWait: a wait that ends when the program is asked to end.
//
// A program with a handler for Ctrl-C, as Python has, runs it in the middle of our wait and learns
// of it when we return. Other signals (timers, profilers, children that ended) must not end the
// wait: so while it sleeps they are held back, for as long as one pause.
//
// Threading: the thread that made it.
#pragma once

#include <csignal>

#include "src/base/time.h"

namespace tandem::shim {

class InterruptibleWait {
 public:
  // Until the end of this object SIGINT, SIGTERM, SIGHUP and SIGQUIT come only during pauses.
  InterruptibleWait();
  ~InterruptibleWait();
  InterruptibleWait(const InterruptibleWait&) = delete;
  InterruptibleWait& operator=(const InterruptibleWait&) = delete;

  // False if a handler of one of those four has run: wait no longer.
  bool Pause(Duration pause);

 private:
  sigset_t before_;   // the thread's mask
  sigset_t pausing_;  // what the thread does not hear of while it pauses
};

}  // namespace tandem::shim
