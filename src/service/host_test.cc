// The host's memory: refusals for lack of it, and what people and programs are told.
#include <fcntl.h>

#include "src/service/service_test.h"
#include "src/service/spill_quota.h"

namespace tandem::service {
namespace {

class HostTest : public ServiceTest {
 protected:
  explicit HostTest(Bytes foreign = {}, bool measured = false)
      : ServiceTest(foreign, {}, MiB(40), measured) {}

  bool Reserve(ConnectionId id, Bytes total) {
    Say(id, wire::Reserve{++sequence_, total.count});
    return Heard<wire::Reserved>(id).granted != 0;
  }
  void Suspend(const char* target) {
    Connect(900, 999);
    Say(900, wire::Control{"suspend", target, 0});
  }
  Bytes Promised() { return Bytes(Ask("status")["host_promised_bytes"].get<uint64_t>()); }

  uint64_t sequence_ = 0;
};

TEST_F(HostTest, AProgramIsToldWhyAndTheOthersWhatTheyMayNeed) {
  Join(1, 11);
  Join(2, 12);
  EXPECT_TRUE(Reserve(1, MiB(60)));
  EXPECT_TRUE(Reserve(2, MiB(60)));
  EXPECT_FALSE(Reserve(2, MiB(70)));
  EXPECT_EQ(pages_[0]->decisions_.host_refusals.load(), 0u);
  EXPECT_EQ(pages_[1]->decisions_.host_refusals.load(), 1u);
  for (const FakePages* pages : pages_) {
    EXPECT_EQ(Bytes(pages->decisions_.host_limit_bytes.load()), MiB(40));
    EXPECT_EQ(Bytes(pages->decisions_.host_share_bytes.load()), MiB(20));
  }
  EXPECT_EQ(Ask("status")["host_limit_bytes"], MiB(40).count);
  EXPECT_EQ(Promised(), MiB(40));
  EXPECT_FALSE(Reserve(1, MiB(101)));  // its limit
  EXPECT_EQ(pages_[0]->decisions_.host_refusals.load(), 0u);
}

// It kept the copies, and wrote nothing since.
TEST_F(HostTest, WhatLeavesWithoutBeingCopiedIsOnTheHostAllTheSame) {
  Join(1, 11);
  Want(1, MiB(60));
  Say(1, wire::Running{Heard<wire::Grant>(1).epoch, 0});
  Join(2, 12);
  Want(2, MiB(60));
  Say(1, wire::Released{1});
  pages_[0]->reports_.swapped_bytes = MiB(20).count;
  Say(1, wire::Evicted{MiB(40).count, 0});
  said_ = service_.OnProcessGone(12, now_);
  EXPECT_EQ(Ask("sessions")["sessions"][0]["host_share_bytes"], MiB(20).count);
}

TEST_F(HostTest, SuspendingIsRefusedWhereTheHostHasNoRoom) {
  Join(1, 11);
  Join(2, 12);
  EXPECT_TRUE(Reserve(1, MiB(41)));
  EXPECT_TRUE(Reserve(2, MiB(30)));
  Suspend("1");
  EXPECT_EQ(Refusal(900), wire::RefusalCode::kHostFull);
  EXPECT_EQ(Promised(), Bytes());
  Suspend("2");
  EXPECT_TRUE(Silent<wire::Refused>(900));
  EXPECT_EQ(Promised(), MiB(30));
  Suspend("2");  // again
  EXPECT_TRUE(Silent<wire::Refused>(900));
}

class RestartedHostTest : public HostTest {
 protected:
  RestartedHostTest() : HostTest(MiB(60), true) { now_ = Instant(); }
  // A session from before, of whose 60 MiB 20 are on the card.
  void Return(ConnectionId id) {
    Connect(id, static_cast<int>(id), 1000, true);
    Say(id, wire::Register{"0.1", 0, kGpu, "train", MiB(60).count, MiB(20).count, 0});
  }
};

TEST_F(RestartedHostTest, WhatSessionsHadBeforeIsNotCountedTwice) {
  Return(1);
  Return(2);
  now_ = now_ + kSettling;
  EXPECT_EQ(Promised(), MiB(80));
  EXPECT_EQ(Ask("status")["host_limit_bytes"], MiB(120).count);
}

class SpillTest : public ServiceTest {
 protected:
  SpillTest()
      : ServiceTest({}, {}, MiB(40), false,
                    Spill{"/scratch",
                          MiB(60),
                          {},
                          [this](ConnectionId id, const SpillOwner&, unsigned, unsigned) {
                            if (!disk_is_gone_) asked_.push_back(id);
                            return !disk_is_gone_;
                          },
                          [this](int pid) { ended_.push_back(pid); }}) {}

  void GiveFiles() {
    for (const ConnectionId id : std::exchange(asked_, {})) {
      said_ = service_.OnSpillFile(id, UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)), now_);
    }
  }
  // Whether it was sent a file with its pages.
  bool Register(ConnectionId id, uint8_t spills) {
    Connect(id, static_cast<int>(id));
    wire::Register m{"0.1", 0, kGpu, "train", 0, 0, 0};
    m.spills = spills;
    Say(id, m);
    GiveFiles();
    for (const Outgoing& out : said_) {
      if (out.to == id && std::holds_alternative<wire::Registered>(*out.message)) {
        return static_cast<bool>(out.memory);
      }
    }
    ADD_FAILURE() << "it is not registered";
    return false;
  }
  bool Reserve(ConnectionId id, Bytes total) {
    Say(id, wire::Reserve{++sequence_, total.count});
    return Heard<wire::Reserved>(id).granted != 0;
  }
  Bytes InFile(size_t session) { return Bytes(pages_[session]->decisions_.host_file_bytes.load()); }
  Bytes Share(size_t session) { return Bytes(pages_[session]->decisions_.host_share_bytes.load()); }

  bool disk_is_gone_ = false;
  std::vector<ConnectionId> asked_;
  std::vector<int> ended_;  // processes without use for files
  uint64_t sequence_ = 0;
};

TEST_F(SpillTest, WhatTheMemoryHasNoRoomForIsInAFile) {
  EXPECT_TRUE(Register(1, 1));
  EXPECT_TRUE(Register(2, 1));
  EXPECT_TRUE(Reserve(1, MiB(75)));
  EXPECT_TRUE(Reserve(2, MiB(75)));  // 50 of each may have to leave
  EXPECT_EQ(Share(0), MiB(50));
  EXPECT_EQ(Share(1), MiB(50));
  EXPECT_EQ(InFile(0) + InFile(1), MiB(60));
  EXPECT_FALSE(Reserve(2, MiB(76)));
  const Json status = Ask("status");
  EXPECT_EQ(status["host_limit_bytes"], MiB(100).count);
  EXPECT_EQ(status["host_promised_bytes"], MiB(100).count);
  EXPECT_EQ(status["spill_limit_bytes"], MiB(60).count);
  EXPECT_EQ(status["spill_promised_bytes"], MiB(60).count);
  EXPECT_EQ(status["spill_directory"], "/scratch");
}

// Of a version that knows no files, or where none can be made.
TEST_F(SpillTest, WhoeverHasNoFileNeedsMemory) {
  EXPECT_FALSE(Register(1, 0));
  disk_is_gone_ = true;
  EXPECT_FALSE(Register(2, 1));
  EXPECT_TRUE(Reserve(1, MiB(60)));
  EXPECT_TRUE(Reserve(2, MiB(60)));
  EXPECT_EQ(InFile(0) + InFile(1), Bytes());
  EXPECT_FALSE(Reserve(2, MiB(61)));
}

// A file system may take as long as it likes.
TEST_F(SpillTest, ASessionWaitsForItsOwnFileOnly) {
  wire::Register m{"0.1", 0, kGpu, "train", 0, 0, 0};
  m.spills = 1;
  Connect(1, 11);
  Say(1, m);
  EXPECT_TRUE(said_.empty());
  Say(1, wire::Reserve{1, MiB(10).count});
  EXPECT_TRUE(said_.empty());
  Join(2, 12);
  Heard<wire::Registered>(2);
  EXPECT_EQ(asked_, std::vector<ConnectionId>{1});
  GiveFiles();
  Heard<wire::Registered>(1);
  EXPECT_NE(Heard<wire::Reserved>(1).granted, 0);
}

TEST_F(SpillTest, FilesEndWithTheProcess) {
  EXPECT_TRUE(Register(1, 1));
  said_ = service_.OnDisconnected(1, now_);
  EXPECT_TRUE(ended_.empty());
  said_ = service_.OnProcessGone(1, now_);
  EXPECT_EQ(ended_, std::vector<int>{1});
}

// It has ended, or given up, before its file was there.
TEST_F(SpillTest, AFileThatCameToNoSessionEnds) {
  wire::Register m{"0.1", 0, kGpu, "train", 0, 0, 0};
  m.spills = 1;
  Connect(1, 11);
  Say(1, m);
  said_ = service_.OnDisconnected(1, now_);
  EXPECT_EQ(ended_, std::vector<int>{11});
  GiveFiles();
  EXPECT_TRUE(said_.empty());
}

TEST_F(SpillTest, AFileThatGrowsBeyondItsPromiseEndsItsProcessAlone) {
  EXPECT_TRUE(Register(1, 1));
  EXPECT_TRUE(Register(2, 1));
  EXPECT_TRUE(Reserve(1, MiB(75)));
  EXPECT_TRUE(Reserve(2, MiB(75)));
  const Bytes slack = MiB(5);
  SpillSizes sizes{{{1, 0}, InFile(0)}, {{2, 0}, InFile(1)}};
  EXPECT_TRUE(service_.OnSpillSizes(sizes, now_).empty());
  sizes[{2, 0}] += slack;
  const std::vector<Offender> offenders = service_.OnSpillSizes(sizes, now_);
  ASSERT_EQ(offenders.size(), 1u);
  EXPECT_EQ(offenders[0].pid, 2);
  EXPECT_NE(offenders[0].reason.find("in its spill file"), std::string::npos);
  // The other one may keep what is no longer promised.
  said_ = service_.OnProcessGone(2, now_);
  EXPECT_EQ(InFile(0), Bytes());
  sizes.erase({2, 0});
  for (int i = 0; i < 5; ++i) {
    now_ = now_ + SpillQuota::kGrace * 3;
    EXPECT_TRUE(service_.OnSpillSizes(sizes, now_).empty());
  }
}

TEST_F(SpillTest, SuspendingNamesBothLimits) {
  EXPECT_TRUE(Register(1, 1));
  EXPECT_TRUE(Register(2, 1));
  EXPECT_TRUE(Reserve(1, MiB(75)));
  EXPECT_TRUE(Reserve(2, MiB(70)));
  Connect(900, 999);
  Say(900, wire::Control{"suspend", "1", 0});
  const auto refused = Heard<wire::Refused>(900);
  EXPECT_EQ(static_cast<wire::RefusalCode>(refused.code), wire::RefusalCode::kHostFull);
  EXPECT_NE(refused.reason.find("60 MiB in /scratch (--spill)"), std::string::npos)
      << refused.reason;
}

}  // namespace
}  // namespace tandem::service
