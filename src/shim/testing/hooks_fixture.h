// HooksTest: a process with one guest, for which the daemon grants memory that cannot be swapped.
// The test fills in what FakeDriver lacks before it calls a hook.
#pragma once

#include "src/shim/testing/fake_process.h"
#include "src/shim/testing/guest_fixture.h"

namespace tandem::shim {

class HooksTest : public GuestTest {
 protected:
  HooksTest() {
    daemon_.GrantFixed(kCard);
    SetFakeProcess(&real_, guest_.get());
  }
  ~HooksTest() override { SetFakeProcess(nullptr, nullptr); }

  cuda::RealDriver& real_ = driver_.table();
};

}  // namespace tandem::shim
