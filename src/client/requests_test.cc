#include "src/client/requests.h"

#include <gtest/gtest.h>

namespace tandem::client {
namespace {

uint64_t LastTotal(Requests& requests) {
  const auto messages = requests.TakeMessages();
  return std::get<wire::Reserve>(messages.back()).total_bytes;
}

// Grows by `by`, of which the daemon is asked and to which it says `granted`.
Answer Grow(Requests& requests, Bytes by, bool granted) {
  requests.Grow(by);
  EXPECT_EQ(requests.Poll(), Answer::kPending);
  const auto messages = requests.TakeMessages();
  const auto sequence = std::get<wire::Reserve>(messages.back()).sequence;
  requests.OnMessage(wire::Reserved{sequence, static_cast<uint8_t>(granted ? 1 : 0)});
  return requests.Poll();
}

// Without a question.
Answer Grow(Requests& requests, Bytes by) {
  requests.Grow(by);
  EXPECT_FALSE(requests.HasMessages());
  return requests.Poll();
}

TEST(RequestsTest, GrowthIsGrantedOrTakenBack) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  EXPECT_EQ(Grow(requests, MiB(4), true), Answer::kGranted);
  EXPECT_EQ(Grow(requests, MiB(8), false), Answer::kRefused);
  EXPECT_EQ(requests.total(), MiB(4));
  requests.Shrink(MiB(4));
  requests.ReturnAllUnused();
  EXPECT_EQ(LastTotal(requests), 0u);
}

TEST(RequestsTest, AsksForNothingThatIsStillReserved) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  Grow(requests, MiB(4), true);
  for (int i = 0; i < 3; ++i) {
    requests.Shrink(MiB(3));
    EXPECT_TRUE(requests.has_unused());
    EXPECT_EQ(Grow(requests, MiB(2)), Answer::kGranted);
    requests.Shrink(MiB(2));
    EXPECT_EQ(Grow(requests, MiB(3)), Answer::kGranted);
    requests.ReturnUnused();
    EXPECT_FALSE(requests.HasMessages());
  }
  requests.Shrink(MiB(2));
  requests.Grow(MiB(5));  // three of them beyond what is reserved
  EXPECT_EQ(LastTotal(requests), MiB(7).count);
}

TEST(RequestsTest, GivesBackWhatWasNotNeededSinceTheLastTime) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  Grow(requests, MiB(8), true);
  requests.Shrink(MiB(6));
  requests.ReturnUnused();  // it may just have been freed
  EXPECT_FALSE(requests.HasMessages());
  EXPECT_EQ(Grow(requests, MiB(1)), Answer::kGranted);
  requests.Shrink(MiB(1));
  requests.ReturnUnused();
  EXPECT_EQ(LastTotal(requests), MiB(3).count);  // and the one that was needed stays
  EXPECT_TRUE(requests.has_unused());
  requests.ReturnUnused();
  EXPECT_EQ(LastTotal(requests), MiB(2).count);
  EXPECT_FALSE(requests.has_unused());
  requests.ReturnUnused();
  EXPECT_FALSE(requests.HasMessages());
}

TEST(RequestsTest, WhatIsReservedForNothingIsInNobodysWay) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  Grow(requests, MiB(8), true);
  requests.Shrink(MiB(8));
  requests.WantFixed(MiB(10));
  auto messages = requests.TakeMessages();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(std::get<wire::Reserve>(messages[0]).total_bytes, 0u);
  Grow(requests, MiB(8), true);
  requests.Shrink(MiB(8));
  requests.WantContext();
  messages = requests.TakeMessages();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(std::get<wire::Reserve>(messages[0]).total_bytes, 0u);
}

TEST(RequestsTest, LimitHoldsWithoutDaemon) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  requests.Grow(MiB(8));
  requests.OnLost(MiB(10), MiB(10), false);
  EXPECT_EQ(requests.Poll(), Answer::kPending);  // there may be one in a moment
  requests.OnAbsent(true);
  EXPECT_EQ(requests.Poll(), Answer::kGranted);
  requests.TakeMessages();
  EXPECT_EQ(Grow(requests, MiB(4)), Answer::kRefused);
  EXPECT_EQ(Grow(requests, MiB(2)), Answer::kGranted);
  EXPECT_EQ(requests.total(), MiB(10));
}

TEST(RequestsTest, WithoutDaemonNothingGrowsBeyondWhatFitsBesideFixedMemory) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  Grow(requests, MiB(4), true);
  requests.OnLost(MiB(10), MiB(6), false);
  requests.OnAbsent(true);
  requests.TakeMessages();
  EXPECT_EQ(Grow(requests, MiB(3)), Answer::kRefused);
  EXPECT_EQ(Grow(requests, MiB(2)), Answer::kGranted);
  EXPECT_EQ(requests.total(), MiB(6));
}

TEST(RequestsTest, BesideSiblingsGrowthWaitsForTheNextDaemon) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  Grow(requests, MiB(2), true);
  requests.Grow(MiB(3));
  requests.OnLost(MiB(10), MiB(10), true);
  requests.OnAbsent(true);
  EXPECT_EQ(requests.Poll(), Answer::kPending);
  requests.Shrink(MiB(1));
  EXPECT_EQ(requests.claim(), MiB(1));
  requests.OnRegistered(MiB(10), requests.claim(), 0);
  const auto messages = requests.TakeMessages();
  ASSERT_EQ(messages.size(), 1u);
  const auto asked = std::get<wire::Reserve>(messages[0]);
  EXPECT_EQ(Bytes(asked.total_bytes), MiB(4));
  requests.OnMessage(wire::Reserved{asked.sequence, 1});
  EXPECT_EQ(requests.Poll(), Answer::kGranted);
  EXPECT_FALSE(requests.has_unused());
}

TEST(RequestsTest, WhatWasFreedMeanwhileIsEnoughForTheGrowthThatWaited) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  Grow(requests, MiB(8), true);
  requests.OnLost(MiB(10), MiB(10), true);
  requests.Grow(MiB(3));
  const Bytes claimed = requests.claim();
  requests.Shrink(MiB(5));  // while it registers
  requests.OnRegistered(MiB(10), claimed, 0);
  EXPECT_FALSE(requests.HasMessages());
  EXPECT_EQ(requests.Poll(), Answer::kGranted);
  EXPECT_EQ(requests.total(), MiB(6));
}

TEST(RequestsTest, NothingIsWaitedForThatWillNotCome) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  requests.Grow(MiB(3));
  requests.OnLost(MiB(10), MiB(10), true);
  EXPECT_EQ(requests.claim(), Bytes());
  requests.OnTurnedAway();
  EXPECT_EQ(requests.claim(), Bytes());  // though no caller has polled yet
  EXPECT_EQ(requests.Poll(), Answer::kRefused);
  requests.Grow(MiB(3));
  EXPECT_EQ(requests.Poll(), Answer::kPending);
  requests.OnAbsent(false);  // with the run its siblings have ended
  EXPECT_EQ(requests.Poll(), Answer::kGranted);
}

TEST(RequestsTest, ContextsWaitForTheNextDaemon) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  const uint64_t first = requests.WantContext();
  const uint64_t second = requests.WantContext();
  EXPECT_EQ(requests.TakeMessages().size(), 2u);
  requests.OnMessage(wire::ContextReserved{1});
  EXPECT_EQ(requests.PollContext(first), Answer::kGranted);
  EXPECT_EQ(requests.PollContext(second), Answer::kPending);
  requests.OnLost(MiB(10), MiB(10), false);
  EXPECT_EQ(requests.PollContext(second), Answer::kPending);
  requests.OnRegistered(MiB(10), Bytes(), 1);
  EXPECT_EQ(requests.TakeMessages().size(), 1u);  // only the one still wanted
  requests.OnMessage(wire::ContextReserved{1});
  EXPECT_EQ(requests.PollContext(second), Answer::kGranted);
  EXPECT_EQ(requests.contexts(), 2u);
  requests.ContextGone();
  EXPECT_EQ(requests.contexts(), 1u);
}

TEST(RequestsTest, ARefusedContextCountsForNothing) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  const uint64_t first = requests.WantContext();
  const uint64_t second = requests.WantContext();
  requests.OnMessage(wire::ContextReserved{0});
  requests.OnMessage(wire::ContextReserved{1});
  EXPECT_FALSE(requests.WaitsForContext());
  EXPECT_EQ(requests.PollContext(second), Answer::kGranted);
  EXPECT_EQ(requests.PollContext(first), Answer::kRefused);
  EXPECT_EQ(requests.contexts(), 1u);
}

TEST(RequestsTest, WhatCannotBeSwappedWaitsForTheNextDaemonToo) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  const uint64_t first = requests.WantFixed(MiB(4));
  const uint64_t second = requests.WantFixed(MiB(2));
  const uint64_t third = requests.WantFixed(MiB(1));
  requests.OnMessage(wire::FixedReserved{second, 1});
  requests.OnMessage(wire::FixedReserved{third, 0});
  EXPECT_EQ(requests.PollFixed(first), Answer::kPending);
  EXPECT_EQ(requests.PollFixed(second), Answer::kGranted);
  EXPECT_EQ(requests.PollFixed(third), Answer::kRefused);
  EXPECT_EQ(requests.fixed(), MiB(2));
  requests.OnLost(MiB(10), MiB(10), false);
  EXPECT_EQ(requests.PollFixed(first), Answer::kPending);
  requests.FixedGone(MiB(1));  // the daemon hears of it only at the next registration
  requests.TakeMessages();
  requests.OnRegistered(MiB(10), Bytes(), 0, MiB(2));
  const auto messages = requests.TakeMessages();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(std::get<wire::FixedGone>(messages[0]).bytes, MiB(1).count);
  EXPECT_EQ(std::get<wire::FixedWanted>(messages[1]).bytes, MiB(4).count);
  requests.OnMessage(wire::FixedReserved{first, 1});
  requests.OnMessage(wire::FixedReserved{first, 1});  // counts once
  EXPECT_EQ(requests.PollFixed(first), Answer::kGranted);
  EXPECT_EQ(requests.fixed(), MiB(5));
}

TEST(RequestsTest, RefusedGrowthLeavesTheDaemonsBooks) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  Grow(requests, MiB(4), true);
  requests.Grow(MiB(8));
  requests.Shrink(MiB(3));
  requests.ReturnUnused();  // not before the answer
  auto messages = requests.TakeMessages();
  ASSERT_EQ(messages.size(), 1u);
  requests.OnMessage(wire::Reserved{std::get<wire::Reserve>(messages[0]).sequence, 0});
  EXPECT_EQ(requests.Poll(), Answer::kRefused);
  requests.ReturnAllUnused();
  EXPECT_EQ(LastTotal(requests), MiB(1).count);
}

TEST(RequestsTest, TellsWhatChangedWhileItRegistered) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  requests.WantContext();
  requests.OnMessage(wire::ContextReserved{1});
  requests.OnLost(MiB(10), MiB(10), false);
  requests.OnAbsent(true);
  requests.TakeMessages();
  Grow(requests, MiB(4));
  requests.Shrink(MiB(2));
  requests.ContextGone();
  requests.OnRegistered(MiB(10), MiB(4), 1);
  const auto messages = requests.TakeMessages();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<wire::ContextGone>(messages[0]));
  EXPECT_TRUE(requests.has_unused());
}

}  // namespace
}  // namespace tandem::client
