#include "src/shim/os/end_by_signal.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace tandem::shim {
namespace {

TEST(EndBySignalTest, TheProgramDiesOfItWhateverItHandles) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, [](int) {});
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, nullptr);  // as on the agent's thread
        EndBySignal(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(EndBySignalTest, OneThatIgnoresItGoesOn) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_IGN);
        EndBySignal(SIGINT);
        std::_Exit(7);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace tandem::shim
