#include "src/client/lease.h"

#include <gtest/gtest.h>

namespace tandem::client {
namespace {

constexpr Bytes kChunk = MiB(2);

View Needs(Bytes need, Bytes resident, bool wanted = true) {
  return View{need, resident, need - resident, need == resident ? Bytes() : kChunk, wanted};
}

// The only message in the outbox, which must be a T.
template <typename T>
T Only(Lease& lease) {
  const std::vector<wire::Message> messages = lease.TakeMessages();
  EXPECT_EQ(messages.size(), 1u);
  if (messages.size() != 1 || !std::holds_alternative<T>(messages[0])) {
    ADD_FAILURE() << "another message";
    return {};
  }
  return std::get<T>(messages[0]);
}

bool Silent(Lease& lease) {
  return lease.TakeMessages().empty();
}

// A lease with an open gate and `bytes` on the card.
Lease Running(Bytes bytes, uint64_t epoch = 7) {
  Lease lease;
  lease.OnRegistered(bytes);
  lease.OnMessage(wire::Grant{epoch, bytes.count, 1000});
  EXPECT_EQ(lease.Next(Needs(bytes, bytes)), Step::kOpen);
  lease.OnOpened(Bytes());
  lease.TakeMessages();
  return lease;
}

TEST(LeaseTest, WithAllThatMayBeOnTheCardTheRestIsMadeCold) {
  Lease lease;
  lease.OnRegistered(Bytes());
  lease.OnMessage(wire::Grant{3, MiB(5).count, 1000});
  View view{MiB(8), MiB(4), MiB(20), kChunk, true, true};
  EXPECT_EQ(lease.Next(view), Step::kNone);  // more may come
  EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, MiB(8).count);
  view.need = MiB(5);  // there is no more
  EXPECT_EQ(lease.Next(view), Step::kRestore);
  view.missing = Bytes();
  EXPECT_EQ(lease.Next(view), Step::kOpen);
}

TEST(LeaseTest, AsksForTheCardWhileItsMemoryLeaves) {
  Lease lease = Running(MiB(8));
  lease.OnMessage(wire::Revoke{7, 1000});
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8), false)), Step::kDrain);
  lease.OnDrained(true);
  Only<wire::Released>(lease);
  lease.OnMessage(wire::Evict{0});
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8), false)), Step::kEvict);
  EXPECT_TRUE(Silent(lease));
  lease.OnWanted(Needs(MiB(8), MiB(6)));
  EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, MiB(8).count);
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(6))), Step::kEvict);
  EXPECT_TRUE(Silent(lease));
}

TEST(LeaseTest, TellsOfWhatComesUntilItRuns) {
  Lease lease;
  lease.OnRestored(MiB(2), MiB(2));  // without a lease there is nothing to report
  EXPECT_TRUE(Silent(lease));
  lease.OnRegistered(Bytes());
  lease.OnMessage(wire::Grant{3, MiB(8).count, 1000});
  lease.OnRestored(MiB(4), MiB(2), MiB(1));
  const auto restored = Only<wire::Restored>(lease);
  EXPECT_EQ(restored.epoch, 3u);
  EXPECT_EQ(restored.resident_bytes, MiB(4).count);
  EXPECT_EQ(restored.copied_bytes, MiB(2).count);
  EXPECT_EQ(restored.from_file_bytes, MiB(1).count);
  lease.OnOpened(MiB(2));
  Only<wire::Running>(lease);
  lease.OnRestored(MiB(8), Bytes());  // it has grown
  EXPECT_TRUE(Silent(lease));
}

TEST(LeaseTest, AsksOnceRestoresWithinCreditAndRuns) {
  Lease lease;
  lease.OnRegistered(Bytes());
  EXPECT_EQ(lease.Next(Needs(MiB(8), Bytes(), false)), Step::kNone);
  EXPECT_TRUE(Silent(lease));
  EXPECT_EQ(lease.Next(Needs(MiB(8), Bytes())), Step::kNone);
  EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, MiB(8).count);
  EXPECT_EQ(lease.Next(Needs(MiB(8), Bytes())), Step::kNone);
  EXPECT_TRUE(Silent(lease));

  lease.OnMessage(wire::Grant{3, MiB(5).count, 1000});
  EXPECT_EQ(lease.Next(Needs(MiB(8), Bytes())), Step::kRestore);
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(4))), Step::kNone);  // another chunk is above the credit
  lease.OnMessage(wire::Credit{MiB(8).count});
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(4))), Step::kRestore);
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kOpen);
  EXPECT_TRUE(Silent(lease));
  lease.OnOpened(MiB(6));
  const auto running = Only<wire::Running>(lease);
  EXPECT_EQ(running.epoch, 3u);
  EXPECT_EQ(running.bytes_in, MiB(6).count);
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kNone);
}

TEST(LeaseTest, WhatItWaitsForIsCorrectedBothWays) {
  Lease lease;
  lease.OnRegistered(Bytes());
  for (const Bytes need : {MiB(8), MiB(4), MiB(6)}) {
    lease.Next(Needs(need, Bytes()));
    EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, need.count);
    lease.Next(Needs(need, Bytes()));
    EXPECT_TRUE(Silent(lease));
  }
}

TEST(LeaseTest, GrowthAsksWhenWantedAndOpensAgain) {
  Lease lease = Running(MiB(8));
  lease.OnShut();
  EXPECT_EQ(lease.Next(Needs(MiB(12), MiB(8), false)), Step::kNone);
  EXPECT_TRUE(Silent(lease));
  EXPECT_EQ(lease.Next(Needs(MiB(12), MiB(8))), Step::kNone);
  EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, MiB(12).count);
  lease.OnMessage(wire::Credit{MiB(12).count});
  EXPECT_EQ(lease.Next(Needs(MiB(12), MiB(8))), Step::kRestore);
  EXPECT_EQ(lease.Next(Needs(MiB(12), MiB(12))), Step::kOpen);
  lease.OnOpened(Bytes());
  EXPECT_EQ(Only<wire::Running>(lease).epoch, 7u);
}

TEST(LeaseTest, RevokedDrainsReleasesAndQueuesAgain) {
  Lease lease = Running(MiB(8));
  lease.OnMessage(wire::Revoke{6, 5000});  // an older lease: not meant any more
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kNone);
  lease.OnMessage(wire::Revoke{7, 5000});
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kDrain);
  EXPECT_EQ(lease.drain_deadline(), Milliseconds(5));
  lease.OnDrained(true);
  EXPECT_EQ(Only<wire::Released>(lease).epoch, 7u);
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kNone);
  EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, MiB(8).count);

  lease.OnMessage(wire::Evict{MiB(3).count});
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kEvict);
  lease.OnEvicted(MiB(6), MiB(2));
  EXPECT_EQ(Only<wire::Evicted>(lease).resident_bytes, MiB(6).count);
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(6))), Step::kEvict);
  lease.OnEvicted(MiB(2), MiB(4));
  lease.TakeMessages();
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(2))), Step::kNone);
}

TEST(LeaseTest, BusyOpensAgain) {
  Lease lease = Running(MiB(8));
  lease.OnMessage(wire::Revoke{7, 5000});
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kDrain);
  lease.OnDrained(false);
  EXPECT_EQ(Only<wire::Busy>(lease).epoch, 7u);
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kOpen);
  lease.OnOpened(Bytes());
  EXPECT_TRUE(Silent(lease));  // it never stopped holding the lease
}

TEST(LeaseTest, WhatCannotLeaveBeforeTheLeaseComesBackIsSaidOnceAndServed) {
  Lease lease = Running(MiB(8));
  lease.OnLost();
  lease.OnShut();  // something was allocated, and no daemon gives credit for it
  lease.OnRegistered(MiB(8));
  lease.OnMessage(wire::Evict{MiB(4).count});
  const View view = Needs(MiB(12), MiB(8));
  ASSERT_EQ(lease.Next(view), Step::kDrain);
  lease.OnDrained(false);
  EXPECT_EQ(Only<wire::Busy>(lease).epoch, 0u);
  EXPECT_EQ(lease.Next(view), Step::kNone);
  EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, MiB(12).count);
  lease.OnRested();
  ASSERT_EQ(lease.Next(view), Step::kDrain);
  lease.OnDrained(false);
  EXPECT_TRUE(Silent(lease));
  lease.OnMessage(wire::Grant{9, MiB(6).count, 1000});  // the rest comes free one by one
  EXPECT_EQ(lease.Next(view), Step::kNone);
  lease.OnMessage(wire::Credit{MiB(12).count});
  EXPECT_EQ(lease.Next(view), Step::kRestore);
  EXPECT_EQ(lease.Next(Needs(MiB(12), MiB(12))), Step::kOpen);
}

TEST(LeaseTest, EvictIsAnsweredEvenWhenNothingIsLeft) {
  Lease lease;
  lease.OnRegistered(MiB(4));
  lease.OnMessage(wire::Evict{0});
  EXPECT_EQ(lease.Next(Needs(Bytes(), Bytes(), false)), Step::kEvict);
  lease.OnEvicted(Bytes(), Bytes());
  EXPECT_EQ(Only<wire::Evicted>(lease).resident_bytes, 0u);
  EXPECT_EQ(lease.Next(Needs(Bytes(), Bytes(), false)), Step::kNone);
}

TEST(LeaseTest, WhatGoesByItselfAfterAnEvictionThatFellShortIsToldToo) {
  Lease lease;
  lease.OnRegistered(MiB(4));
  lease.OnMessage(wire::Evict{MiB(1).count});
  EXPECT_EQ(lease.Next(Needs(Bytes(), MiB(2), false)), Step::kEvict);
  lease.OnEvicted(MiB(2), Bytes());
  EXPECT_EQ(Only<wire::Evicted>(lease).resident_bytes, MiB(2).count);
  EXPECT_EQ(lease.Next(Needs(Bytes(), Bytes(), false)), Step::kEvict);
  lease.OnEvicted(Bytes(), Bytes());
  EXPECT_EQ(Only<wire::Evicted>(lease).resident_bytes, 0u);
  EXPECT_EQ(lease.Next(Needs(Bytes(), Bytes(), false)), Step::kNone);
}

TEST(LeaseTest, IdleAndActiveAreToldOnce) {
  Lease lease = Running(MiB(8));
  lease.OnActive();
  EXPECT_TRUE(Silent(lease));
  lease.OnIdle();
  lease.OnIdle();
  EXPECT_EQ(Only<wire::Idle>(lease).epoch, 7u);
  lease.OnActive();
  lease.OnActive();
  EXPECT_EQ(Only<wire::Active>(lease).epoch, 7u);
}

TEST(LeaseTest, UnusedCreditGoesBackOnlyWhenNothingIsAsked) {
  Lease lease = Running(MiB(8));
  lease.OnContended(Needs(MiB(8), MiB(8)));
  EXPECT_TRUE(Silent(lease));
  lease.OnContended(Needs(MiB(4), MiB(4)));
  EXPECT_EQ(Only<wire::Evicted>(lease).resident_bytes, MiB(4).count);
  EXPECT_EQ(lease.credit(), MiB(4));
  // Growing above it: asked for, and until the answer nothing is given back.
  lease.OnShut();
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(4))), Step::kNone);
  EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, MiB(8).count);
  lease.OnContended(Needs(MiB(2), MiB(2)));
  EXPECT_TRUE(Silent(lease));
}

TEST(LeaseTest, HolderOutlivesItsDaemonAndStartsAnew) {
  Lease lease = Running(MiB(8));
  lease.OnLost();
  EXPECT_TRUE(lease.holds());
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kNone);
  lease.OnRegistered(MiB(8));
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kDrain);
  // What is under way may wait for a thread at the gate, so between two attempts it is open.
  lease.OnDrained(false);
  EXPECT_TRUE(Silent(lease));
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kOpen);
  lease.OnOpened(Bytes());
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kNone);
  lease.OnRested();
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kDrain);
  lease.OnDrained(true);
  EXPECT_TRUE(Silent(lease));  // the new daemon knows nothing of that lease
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kNone);
  EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, MiB(8).count);
}

TEST(LeaseTest, LostDaemonWantsNothingBackAnyMore) {
  Lease lease = Running(MiB(8));
  lease.OnMessage(wire::Revoke{7, 5000});
  lease.OnLost();
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kNone);
  EXPECT_TRUE(lease.holds());
}

TEST(LeaseTest, NothingLeavesTheCardUnderWorkThatIsUnderWay) {
  Lease lease = Running(MiB(8));
  lease.OnContended(Needs(MiB(4), MiB(4)));
  lease.TakeMessages();
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8), false)), Step::kDrain);  // more than the credit
  lease.OnDrained(false);
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8), false)), Step::kOpen);
  lease.OnOpened(Bytes());
  lease.OnRested();
  lease.OnMessage(wire::Evict{0});
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8), false)), Step::kDrain);
  lease.OnDrained(true);
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8), false)), Step::kEvict);
}

TEST(LeaseTest, WaiterAsksTheNextDaemonAgain) {
  Lease lease;
  lease.OnRegistered(Bytes());
  lease.Next(Needs(MiB(8), Bytes()));
  lease.TakeMessages();
  lease.OnLost();
  EXPECT_EQ(lease.Next(Needs(MiB(8), Bytes())), Step::kNone);
  EXPECT_TRUE(Silent(lease));
  lease.OnRegistered(Bytes());
  lease.Next(Needs(MiB(8), Bytes()));
  EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, MiB(8).count);
}

TEST(LeaseTest, KeepsTheLeaseIfTheDaemonGoesWhileItDrains) {
  Lease lease = Running(MiB(8));
  lease.OnMessage(wire::Revoke{7, 1000});
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kDrain);
  lease.OnLost();
  lease.OnDrained(true);
  EXPECT_TRUE(lease.holds());
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kOpen);
  EXPECT_TRUE(Silent(lease));
}

TEST(LeaseTest, PoisonedGivesBackAndNeverRestores) {
  Lease lease = Running(MiB(8));
  lease.OnPoisoned();
  EXPECT_EQ(Only<wire::Released>(lease).epoch, 7u);
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kNone);
  lease.OnMessage(wire::Evict{0});
  EXPECT_EQ(lease.Next(Needs(MiB(8), MiB(8))), Step::kEvict);
  lease.OnEvicted(Bytes(), Bytes());
  EXPECT_EQ(lease.Next(Needs(MiB(8), Bytes())), Step::kNone);
}

// ---- What the program says itself (tandem.h)

TEST(LeaseTest, OpensWithCreditForAllThatTheProgramWillHave) {
  Lease lease;
  lease.OnRegistered(MiB(8));
  View view = Needs(MiB(8), MiB(8));
  view.need = view.reserved = MiB(20);
  EXPECT_EQ(lease.Next(view), Step::kNone);
  EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, MiB(20).count);
  lease.OnMessage(wire::Grant{3, MiB(10).count, 1000});
  EXPECT_EQ(lease.Next(view), Step::kNone);
  EXPECT_FALSE(lease.Satisfies(view));
  lease.OnMessage(wire::Credit{MiB(20).count});
  EXPECT_EQ(lease.Next(view), Step::kOpen);
  lease.OnOpened(Bytes());
  EXPECT_TRUE(lease.Satisfies(view));
  lease.TakeMessages();
  lease.OnContended(view);  // what it will have is not given back
  EXPECT_TRUE(Silent(lease));
  view.need = view.resident;
  view.reserved = Bytes();
  lease.OnContended(view);
  EXPECT_EQ(Only<wire::Evicted>(lease).resident_bytes, MiB(8).count);
}

TEST(LeaseTest, AsksForMoreUnderAnOpenGateAndSaysWhenItIsThere) {
  Lease lease = Running(MiB(8));
  View view = Needs(MiB(8), MiB(8));
  view.need = view.reserved = MiB(20);
  EXPECT_EQ(lease.Next(view), Step::kNone);
  EXPECT_EQ(Only<wire::Ready>(lease).need_bytes, MiB(20).count);
  EXPECT_EQ(lease.Next(view), Step::kNone);
  EXPECT_TRUE(Silent(lease));
  EXPECT_TRUE(lease.open());  // other threads go on
  lease.OnMessage(wire::Credit{MiB(20).count});
  EXPECT_EQ(lease.Next(view), Step::kOpen);
  lease.OnOpened(Bytes());
  EXPECT_EQ(Only<wire::Running>(lease).epoch, 7u);
  EXPECT_EQ(lease.Next(view), Step::kNone);
}

TEST(LeaseTest, WaitsNoLongerWhereTheProgramGivesUp) {
  Lease lease;
  lease.OnRegistered(Bytes());
  lease.Withdraw();
  EXPECT_TRUE(Silent(lease));
  lease.OnWanted(Needs(MiB(8), MiB(8)));
  Only<wire::Ready>(lease);
  lease.Leave();  // it waits
  EXPECT_TRUE(Silent(lease));
  lease.Withdraw();
  Only<wire::NotReady>(lease);
  lease.Leave();
  Only<wire::Leave>(lease);
  lease.OnWanted(Needs(MiB(8), MiB(8)));  // and may ask again
  Only<wire::Ready>(lease);
  lease.OnMessage(wire::Grant{3, MiB(8).count, 1000});
  lease.Withdraw();
  EXPECT_TRUE(Silent(lease));
}

TEST(LeaseTest, TellsTheNextDaemonWhatTheProgramHasDeclared) {
  Lease lease = Running(MiB(8));
  lease.Declare(wire::Declare{1000, 2, MiB(9).count});
  EXPECT_EQ(Only<wire::Declare>(lease).burst_us, 1000u);
  lease.Declare(wire::Declare{1000, 2, MiB(9).count});
  EXPECT_TRUE(Silent(lease));
  lease.OnLost();
  lease.OnRegistered(MiB(8));
  EXPECT_EQ(Only<wire::Declare>(lease).memory_bytes, MiB(9).count);
  lease.Declare(wire::Declare{});
  EXPECT_EQ(Only<wire::Declare>(lease).of_class, wire::Declare::kOfRun);
  lease.OnLost();
  lease.OnRegistered(MiB(8));
  EXPECT_TRUE(Silent(lease));
}

}  // namespace
}  // namespace tandem::client
