#include "src/shim/os/interruptible_wait.h"

#include <gtest/gtest.h>
#include <sys/time.h>

namespace tandem::shim {
namespace {

volatile sig_atomic_t heard = 0;

class InterruptibleWaitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    heard = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { heard = heard + 1; };
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_[i]);
  }
  void TearDown() override {
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      sigaction(kSignals[i], &before_[i], nullptr);
    }
  }

  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1};
  struct sigaction before_[std::size(kSignals)];
};

TEST_F(InterruptibleWaitTest, WhatEndsAProgramEndsThePause) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    InterruptibleWait wait;
    pthread_kill(pthread_self(), signal);
    const int at_pause = heard;
    EXPECT_FALSE(wait.Pause(Seconds(60))) << signal;
    EXPECT_EQ(heard, at_pause + 1);
  }
}

TEST_F(InterruptibleWaitTest, OtherSignalsComeWhenThePauseIsOver) {
  InterruptibleWait wait;
  itimerval in_the_middle{};
  in_the_middle.it_value.tv_usec = 1000;
  setitimer(ITIMER_REAL, &in_the_middle, nullptr);
  while (heard == 0) {
    EXPECT_TRUE(wait.Pause(Milliseconds(20)));
  }
}

TEST_F(InterruptibleWaitTest, AThreadThatIsDeafToASignalStaysSo) {
  sigset_t deaf, before;
  sigemptyset(&deaf);
  sigaddset(&deaf, SIGINT);
  pthread_sigmask(SIG_BLOCK, &deaf, &before);
  {
    InterruptibleWait wait;
    pthread_kill(pthread_self(), SIGINT);
    EXPECT_TRUE(wait.Pause(Milliseconds(1)));
    EXPECT_EQ(heard, 0);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(heard, 1);
}

TEST_F(InterruptibleWaitTest, LeavesTheMaskAsItWas) {
  sigset_t before, after;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  { const InterruptibleWait wait; }
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  EXPECT_EQ(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
  EXPECT_EQ(sigismember(&before, SIGALRM), sigismember(&after, SIGALRM));
}

}  // namespace
}  // namespace tandem::shim
