// Loans: memory that two workers share by handles (cuIpcGetMemHandle, cuIpcGetEventHandle). The
// lender fills a block, records an event and offers both. The borrower opens them, waits for the
// event on its GPU, looks at every word, keeps the block open for a while, fills it with what the
// lender has asked for, records the event and gives the block back. The lender then looks.
//
// Either may be killed at any time, end, or lose its context. Then a word of the block is what it
// was or what it was to become.
//
// Threading: one thread, the device's.
// Invariants
// 1. The lender neither writes to nor frees a lent block before the borrower has given it back or
//    has gone. But its context may end, which leaves the memory to the borrower.
// 2. Neither ever waits for the other, but on the GPU for an event that has been recorded: each has
//    memory that the other may be waiting for.
// 3. Each offer is answered once, unless the borrower goes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/soak/counts.h"
#include "tests/soak/device.h"

namespace soak {

// One of the two.
class Partner {
 public:
  Partner() = default;
  Partner(const Partner&) = delete;
  Partner& operator=(const Partner&) = delete;
  virtual ~Partner() = default;

  // Goes on with its part, if the other one is there. May throw ContextBroken.
  virtual void Step() = 0;
  // Frees and closes all its blocks, before the context is destroyed. May throw ContextBroken.
  virtual void Finish() = 0;
  // The context broke, and was destroyed with all that was in it; another is there.
  virtual void ContextEnded() = 0;
};

// `role` is "lend:PATH" or "borrow:PATH", with the same path for both. `counts` outlives it.
std::unique_ptr<Partner> MakePartner(const std::string& role, Device* device, uint32_t seed,
                                     Counts* counts);

}  // namespace soak
