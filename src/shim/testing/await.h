// AWAIT(condition): a test's thread waits until the condition holds. In vain, it ends the program
// and says for what: other threads of the test may wait for the same, and would outlive it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "src/base/time.h"

namespace tandem::shim {

template <typename Condition>
void Await(const Condition& condition, const char* text, const char* file, int line) {
  const Instant late = MonotonicNow() + Seconds(100);
  while (!condition()) {
    if (MonotonicNow() >= late) {
      std::fprintf(stderr, "%s:%d: waited in vain for %s\n", file, line, text);
      std::abort();
    }
    std::this_thread::yield();
  }
}

}  // namespace tandem::shim

#define AWAIT(condition) \
  ::tandem::shim::Await([&] { return condition; }, #condition, __FILE__, __LINE__)
