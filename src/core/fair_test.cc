// Who gets how much of a card's time under `fair`: sessions that never pause, in virtual time.
#include <gtest/gtest.h>

#include "src/core/world_test.h"

namespace tandem::core {
namespace {

class FairTest : public ::testing::Test {
 protected:
  FairTest() : world_(Config(), 1) {}

  static ArbiterConfig Config() {
    ArbiterConfig config;
    config.policy = "fair";
    config.budget = MiB(256);
    config.chunk = config.spare = MiB(2);
    return config;
  }
  // A program of that user that works all the time.
  uint64_t Start(const std::string& project, const std::string& user, Bytes need = MiB(32)) {
    return world_.Start({.need = need, .burst = Seconds(100000), .tenant = {project, user}});
  }
  // What part of the next while each of them works.
  std::vector<double> PartsOf(const std::vector<uint64_t>& ids, Duration length) {
    std::vector<Duration> before;
    for (const uint64_t id : ids) before.push_back(world_.worked(id));
    world_.RunFor(length);
    std::vector<double> parts;
    for (size_t i = 0; i < ids.size(); ++i) {
      parts.push_back((world_.worked(ids[i]) - before[i]).seconds() / length.seconds());
    }
    return parts;
  }
  void ExpectParts(const std::vector<uint64_t>& ids, const std::vector<double>& expected,
                   Duration length = Seconds(10)) {
    const std::vector<double> parts = PartsOf(ids, length);
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_NEAR(parts[i], expected[i], 0.02) << i;
  }
  ShareKey Session(const std::string& user, uint64_t id) { return {"", user, SessionId{id}}; }

  World world_;
};

TEST_F(FairTest, EqualsGetTheSame) {
  std::vector<uint64_t> ids;
  for (const char* user : {"a", "b", "c", "d"}) ids.push_back(Start("", user));
  world_.RunFor(Seconds(1));
  ExpectParts(ids, {0.25, 0.25, 0.25, 0.25});
}

TEST_F(FairTest, WeightsOfOneTwoAndFour) {
  const std::vector<uint64_t> ids = {Start("", "a"), Start("", "b"), Start("", "c")};
  world_.SetShare({"", "b", {}}, {2, {}});
  world_.SetShare({"", "c", {}}, {4, {}});
  world_.RunFor(Seconds(1));
  for (int i = 0; i < 5; ++i) ExpectParts(ids, {1 / 7.0, 2 / 7.0, 4 / 7.0});
}

// A session that pauses gives way at once, and is soon back for the rest of its share.
TEST_F(FairTest, InstantsWithoutWorkCostNobodyItsShare) {
  std::vector<uint64_t> ids;
  for (const char* user : {"a", "b", "c"}) {
    ids.push_back(world_.Start({.need = MiB(32),
                                .burst = Milliseconds(20),
                                .pause = Milliseconds(1),
                                .random = true,
                                .tenant = {"", user}}));
  }
  world_.SetShare({"", "b", {}}, {2, {}});
  world_.SetShare({"", "c", {}}, {4, {}});
  world_.RunFor(Seconds(10));
  const std::vector<double> parts = PartsOf(ids, Seconds(100));
  const double sum = parts[0] + parts[1] + parts[2];
  EXPECT_NEAR(parts[0] / sum, 1 / 7.0, 0.02);
  EXPECT_NEAR(parts[2] / sum, 4 / 7.0, 0.02);
}

// The session that a switch brings in is charged for its time; the others lose nothing.
TEST_F(FairTest, AlsoWhereTheyDoNotFitTogether) {
  const std::vector<uint64_t> ids = {Start("", "a", MiB(200)), Start("", "b", MiB(200))};
  world_.SetShare({"", "b", {}}, {3, {}});
  world_.RunFor(Seconds(20));
  const std::vector<double> parts = PartsOf(ids, Seconds(200));
  EXPECT_NEAR(parts[1] / (parts[0] + parts[1]), 0.75, 0.02);
  EXPECT_GT(parts[0] + parts[1], 0.93);
}

TEST_F(FairTest, AUserWithManySessionsGetsNoMoreThanOneWithOneAndSoDoProjects) {
  const std::vector<uint64_t> ids = {Start("vision", "a"), Start("vision", "a"),
                                     Start("vision", "a"), Start("vision", "b"),
                                     Start("speech", "c")};
  world_.RunFor(Seconds(2));
  ExpectParts(ids, {1 / 12.0, 1 / 12.0, 1 / 12.0, 1 / 4.0, 1 / 2.0}, Seconds(20));
  world_.SetShare({"vision", {}, {}}, {3, {}});
  world_.RunFor(Seconds(2));
  ExpectParts(ids, {1 / 8.0, 1 / 8.0, 1 / 8.0, 3 / 8.0, 1 / 4.0}, Seconds(20));
}

TEST_F(FairTest, AFractionIsThatPartOfTheCardAndTheOthersDivideTheRest) {
  const std::vector<uint64_t> ids = {Start("", "a"), Start("", "b"), Start("", "c")};
  world_.SetShare({"", "a", {}}, {1, 0.3});
  world_.SetShare({"", "c", {}}, {4, {}});
  world_.RunFor(Seconds(1));
  for (int i = 0; i < 6; ++i) ExpectParts(ids, {0.3, 0.14, 0.56});
}

TEST_F(FairTest, WhatIsNotUsedIsLentAndComesBackAtOnce) {
  const uint64_t a = Start("", "a"), b = Start("", "b");
  world_.SetShare({"", "a", {}}, {1, 0.3});
  world_.RunFor(Seconds(1));
  world_.Suspend(b, true);
  world_.RunFor(Seconds(1));
  EXPECT_GT(PartsOf({a}, Seconds(10))[0], 0.98);
  world_.Suspend(b, false);
  ExpectParts({a, b}, {0.3, 0.7}, Seconds(2));  // and it is not made to wait for what it had
}

TEST_F(FairTest, WhoeverDidNotWantItsShareIsNotOwedIt) {
  const uint64_t a = Start("", "a"), b = Start("", "b");
  world_.Suspend(b, true);
  world_.RunFor(Seconds(100));
  world_.Suspend(b, false);
  ExpectParts({a, b}, {0.5, 0.5}, Seconds(4));
}

TEST_F(FairTest, FractionsOfAllOfItLeaveALittleForTheOthers) {
  const std::vector<uint64_t> ids = {Start("", "a"), Start("", "b"), Start("", "c")};
  world_.SetShare({"", "a", {}}, {1, 0.7});
  world_.SetShare({"", "b", {}}, {1, 0.6});
  world_.RunFor(Seconds(1));
  const std::vector<double> parts = PartsOf(ids, Seconds(100));
  EXPECT_NEAR(parts[0] / parts[1], 7 / 6.0, 0.03);
  EXPECT_NEAR(parts[2], 0.01 / 1.31, 0.003);
}

TEST_F(FairTest, AShareOfOneSessionIsWithinItsUsers) {
  const uint64_t a = Start("", "a"), more = Start("", "a"), b = Start("", "b");
  world_.SetShare(Session("a", more), {4, {}});
  world_.RunFor(Seconds(1));
  ExpectParts({a, more, b}, {0.1, 0.4, 0.5}, Seconds(20));
}

TEST_F(FairTest, WhoeverComesAndGoesLeavesTheOthersTheirs) {
  const uint64_t a = Start("p", "a"), b = Start("q", "b");
  world_.RunFor(Seconds(1));
  for (int i = 0; i < 20; ++i) {
    const uint64_t passing = Start("q", "c" + std::to_string(i));
    world_.RunFor(Milliseconds(300));
    world_.Kill(passing);
  }
  ExpectParts({a, b}, {0.5, 0.5});
}

TEST_F(FairTest, PausesAreChargedWhereNobodyElseCouldHaveTheCardMeanwhile) {
  const uint64_t pausing = world_.Start({.need = MiB(200),
                                         .burst = Milliseconds(10),
                                         .pause = Milliseconds(90),
                                         .tenant = {"", "a"}});
  const uint64_t working = Start("", "b", MiB(200));
  world_.RunFor(Seconds(100));
  EXPECT_GT(PartsOf({working}, Seconds(200))[0], 0.45);
  EXPECT_GT(world_.worked(pausing), Seconds(2));
}

TEST_F(FairTest, WhoeverIsStoppedTakesNothingFromTheOthers) {
  const uint64_t stopped = Start("", "a"), sibling = Start("", "a"), b = Start("", "b");
  world_.RunFor(Seconds(1));
  world_.Stop(stopped, Seconds(1000));
  world_.RunFor(Seconds(20));
  ExpectParts({sibling, b}, {0.5, 0.5}, Seconds(20));
}

TEST_F(FairTest, ThoseWhoSharedTheCardBeforeGetTheirParts) {
  world_.SetPolicy("interactive");
  const std::vector<uint64_t> ids = {Start("", "a"), Start("", "b")};
  world_.SetShare({"", "b", {}}, {3, {}});
  world_.RunFor(Seconds(5));
  ExpectParts(ids, {1, 1});
  world_.SetPolicy("fair");
  world_.RunFor(Seconds(1));
  ExpectParts(ids, {0.25, 0.75});
}

// Charges from a time of many waiters are not made up for at the pace of few.
TEST_F(FairTest, ManyWhoLeaveDoNotLeaveADebt) {
  const uint64_t a = Start("", "a", MiB(150)), b = Start("", "b", MiB(150));
  std::vector<uint64_t> others;
  for (int i = 0; i < 8; ++i) others.push_back(Start("", "c" + std::to_string(i), MiB(150)));
  world_.RunFor(Seconds(60));
  for (const uint64_t id : others) world_.Suspend(id, true);
  const double quantum = world_.arbiter().Quantum().seconds();
  const std::vector<double> parts = PartsOf({a, b}, Duration(static_cast<int64_t>(quantum * 6e9)));
  EXPECT_NEAR(parts[0], parts[1], 0.4);
}

TEST_F(FairTest, AShareThatIsRaisedCountsAtOnce) {
  const uint64_t a = Start("", "a"), b = Start("", "b");
  world_.SetShare({"", "a", {}}, {0.001, {}});
  world_.RunFor(Seconds(100));
  world_.SetShare({"", "a", {}}, {1, {}});
  ExpectParts({a, b}, {0.5, 0.5}, Seconds(10));
}

TEST_F(FairTest, NewSessionsInTheirPlaceGetAUserNoMoreThanItsShare) {
  const uint64_t b = Start("", "b");
  world_.SetShare({"", "b", {}}, {9, {}});
  world_.RunFor(Seconds(1));
  const Duration before = world_.worked(b);
  for (int i = 0; i < 100; ++i) {
    const uint64_t passing = Start("", "a");
    world_.RunFor(Milliseconds(200));
    world_.Kill(passing);
  }
  EXPECT_NEAR((world_.worked(b) - before).seconds() / 20, 0.9, 0.03);
}

}  // namespace
}  // namespace tandem::core
