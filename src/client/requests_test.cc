#include "src/client/requests.h"

#include <gtest/gtest.h>

namespace tandem::client {
namespace {

uint64_t LastTotal(Requests& requests) {
  const auto messages = requests.TakeMessages();
  return std::get<wire::Reserve>(messages.back()).total_bytes;
}

TEST(RequestsTest, GrowthIsGrantedOrTakenBack) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  const uint64_t first = requests.Grow(MiB(4));
  EXPECT_EQ(LastTotal(requests), MiB(4).count);
  EXPECT_EQ(requests.Poll(first), Answer::kPending);
  requests.OnMessage(wire::Reserved{first, 1});
  EXPECT_EQ(requests.Poll(first), Answer::kGranted);
  const uint64_t second = requests.Grow(MiB(8));
  EXPECT_EQ(LastTotal(requests), MiB(12).count);
  requests.OnMessage(wire::Reserved{second, 0});
  EXPECT_EQ(requests.Poll(second), Answer::kRefused);
  EXPECT_EQ(requests.total(), MiB(4));
  requests.Shrink(MiB(4));
  EXPECT_EQ(LastTotal(requests), 0u);
}

TEST(RequestsTest, LimitHoldsWithoutDaemon) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  const uint64_t pending = requests.Grow(MiB(8));
  requests.OnLost(MiB(10), Bytes());
  EXPECT_EQ(requests.Poll(pending), Answer::kGranted);
  EXPECT_EQ(requests.Poll(requests.Grow(MiB(4))), Answer::kRefused);
  EXPECT_EQ(requests.Poll(requests.Grow(MiB(2))), Answer::kGranted);
  EXPECT_EQ(requests.total(), MiB(10));
}

TEST(RequestsTest, WithoutADaemonTheRestOfTheRunStillCounts) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  requests.OnLost(MiB(12), MiB(6));
  EXPECT_EQ(requests.Poll(requests.Grow(MiB(6))), Answer::kGranted);
  EXPECT_EQ(requests.Poll(requests.Grow(MiB(1))), Answer::kRefused);
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
  requests.OnLost(MiB(10), Bytes());
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
  requests.OnLost(MiB(10), Bytes());
  EXPECT_EQ(requests.PollFixed(first), Answer::kPending);
  requests.FixedGone(MiB(1));  // nobody hears of it but by the next registration
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
  const uint64_t first = requests.Grow(MiB(4));
  requests.OnMessage(wire::Reserved{first, 1});
  requests.Poll(first);
  const uint64_t second = requests.Grow(MiB(8));
  requests.Shrink(MiB(3));
  EXPECT_EQ(LastTotal(requests), MiB(9).count);  // to the daemon this is a growth that fits
  requests.OnMessage(wire::Reserved{second, 0});
  EXPECT_EQ(requests.Poll(second), Answer::kRefused);
  EXPECT_EQ(LastTotal(requests), MiB(1).count);
}

TEST(RequestsTest, TellsWhatChangedWhileItRegistered) {
  Requests requests;
  requests.OnRegistered(MiB(10), Bytes(), 0);
  requests.WantContext();
  requests.OnMessage(wire::ContextReserved{1});
  requests.OnLost(MiB(10), Bytes());
  requests.Poll(requests.Grow(MiB(2)));
  requests.ContextGone();
  requests.OnRegistered(MiB(10), Bytes(), 1);
  const auto messages = requests.TakeMessages();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(std::get<wire::Reserve>(messages[0]).total_bytes, MiB(2).count);
  EXPECT_TRUE(std::holds_alternative<wire::ContextGone>(messages[1]));
}

}  // namespace
}  // namespace tandem::client
