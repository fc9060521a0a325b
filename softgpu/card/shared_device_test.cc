#include "softgpu/card/shared_device.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>

#include "softgpu/card/bus.h"

namespace tandem::soft {
namespace {

// A soft_peer and the two pipes to it.
class Peer {
 public:
  Peer() {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      execl(SOFT_PEER, SOFT_PEER, static_cast<char*>(nullptr));
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = fdopen(to[1], "w");
    from_ = fdopen(from[0], "r");
  }
  ~Peer() {
    Kill();
    fclose(to_);
    fclose(from_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  std::string Ask(const std::string& command) {
    Tell(command);
    return Line();
  }
  void Tell(const std::string& command) {
    std::fprintf(to_, "%s\n", command.c_str());
    std::fflush(to_);
  }
  std::string Line() {
    char line[512] = {};
    if (std::fgets(line, sizeof(line), from_) == nullptr) return "(ended)";
    std::string text = line;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void Stop() {
    kill(pid_, SIGSTOP);
    int status = 0;
    waitpid(pid_, &status, WUNTRACED);
  }
  void Continue() { kill(pid_, SIGCONT); }
  // Waits until it has had `count` turns from this moment on; the pipe may be full of older ones.
  void WaitForTurns(int count) {
    const Instant from = MonotonicNow();
    while (count > 0) {
      long long at_ns = 0;
      const std::string line = Line();
      ASSERT_EQ(std::sscanf(line.c_str(), "turn %lld", &at_ns), 1) << line;
      if (Instant(at_ns) >= from) --count;
    }
  }

 private:
  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

class SharedDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    char pattern[] = "/tmp/tandem-soft-test-XXXXXX";
    directory_ = mkdtemp(pattern);
  }
  void TearDown() override {
    unlink(file().c_str());
    rmdir(directory_.c_str());
  }
  std::string file() const { return directory_ + "/tandem-soft-gpu"; }
  std::string Open(Bytes bytes) const {
    return "open " + directory_ + " gpu " + std::to_string(bytes.count);
  }
  std::string ForAll(Bytes bytes) const {
    return "open-for-all " + directory_ + " gpu " + std::to_string(bytes.count);
  }
  std::unique_ptr<SharedDevice> OpenHere(Bytes bytes) {
    auto device = SharedDevice::Open(directory_, "gpu", bytes);
    EXPECT_TRUE(device.ok());
    return device.ok() ? std::move(device).value() : nullptr;
  }
  static std::string Charge(Bytes bytes) { return "charge " + std::to_string(bytes.count); }
  static std::string Total(Bytes bytes) { return "total " + std::to_string(bytes.count); }

  std::string directory_;
};

TEST_F(SharedDeviceTest, ProcessesShareOneVram) {
  const auto device = OpenHere(MiB(64));
  Peer peer;
  EXPECT_EQ(peer.Ask(Open(MiB(512))), Total(MiB(64)));  // the first one's size holds
  EXPECT_EQ(peer.Ask(Charge(MiB(40))), "yes");
  EXPECT_FALSE(device->Charge(MiB(32)));
  EXPECT_TRUE(device->Charge(MiB(24)));
  EXPECT_EQ(peer.Ask(Charge(KiB(64))), "no");
  device->Return(MiB(24));
  EXPECT_EQ(peer.Ask("free"), "free " + std::to_string(MiB(24).count));
}

TEST_F(SharedDeviceTest, TheKilledGiveTheirShareBackAtOnce) {
  const auto device = OpenHere(MiB(64));
  Peer peer;
  ASSERT_EQ(peer.Ask(Open(MiB(64))), Total(MiB(64)));
  ASSERT_EQ(peer.Ask(Charge(MiB(60))), "yes");
  EXPECT_EQ(device->Free(), MiB(4));
  peer.Kill();
  EXPECT_TRUE(device->Charge(MiB(64)));
  EXPECT_EQ(device->Free(), Bytes());
}

TEST_F(SharedDeviceTest, TheStoppedKeepTheirShareAndHoldNobodyUp) {
  const auto device = OpenHere(MiB(64));
  Peer peer;
  ASSERT_EQ(peer.Ask(Open(MiB(64))), Total(MiB(64)));
  ASSERT_EQ(peer.Ask(Charge(MiB(60))), "yes");
  peer.Stop();
  EXPECT_FALSE(device->Charge(MiB(8)));
  EXPECT_TRUE(device->Charge(MiB(4)));
  peer.Continue();
  EXPECT_EQ(peer.Ask("free"), "free 0");
}

// The program may close every descriptor it can find, and fork: it keeps its slot.
TEST_F(SharedDeviceTest, TheSlotOutlivesDescriptorsAndNotTheProcess) {
  const auto device = OpenHere(MiB(64));
  Peer peer;
  ASSERT_EQ(peer.Ask(Open(MiB(64))), Total(MiB(64)));
  ASSERT_EQ(peer.Ask(Charge(MiB(50))), "yes");
  ASSERT_EQ(peer.Ask("close-all"), "closed");
  EXPECT_FALSE(device->Charge(MiB(20)));
  ASSERT_EQ(peer.Ask("fork"), "forked");
  peer.Kill();  // its child lives
  EXPECT_TRUE(device->Charge(MiB(64)));
}

TEST_F(SharedDeviceTest, WhenNobodyIsLeftTheNextOneDecides) {
  {
    Peer peer;
    ASSERT_EQ(peer.Ask(Open(MiB(64))), Total(MiB(64)));
    ASSERT_EQ(peer.Ask(Charge(MiB(60))), "yes");
  }
  const auto device = OpenHere(MiB(128));
  EXPECT_EQ(device->total(), MiB(128));
  EXPECT_EQ(device->Free(), MiB(128));
}

TEST_F(SharedDeviceTest, ASizeThatNothingSetsStaysForLaterProcesses) {
  const auto open = [&](Bytes bytes, VramSource source) {
    return SharedDevice::Open(directory_, "gpu", bytes, false, Users::kThis, source)
        .value()
        ->total();
  };
  const auto look = [&](VramSource source) {
    return LookAt(directory_, "gpu", MiB(10), source).value().total;
  };
  EXPECT_EQ(open(MiB(64), VramSource::kHost), MiB(64));
  EXPECT_EQ(open(MiB(128), VramSource::kHost), MiB(64));
  EXPECT_EQ(look(VramSource::kHost), MiB(64));
  EXPECT_EQ(look(VramSource::kSet), MiB(10));
  EXPECT_EQ(open(MiB(32), VramSource::kSet), MiB(32));
  EXPECT_EQ(look(VramSource::kHost), MiB(10)) << "that one was set";
  EXPECT_EQ(open(MiB(128), VramSource::kHost), MiB(128));
  std::ofstream(file()) << "not a page";
  EXPECT_EQ(open(MiB(64), VramSource::kHost), MiB(64));
}

TEST_F(SharedDeviceTest, ADamagedFileIsReplacedOnceItIsNotInUse) {
  std::ofstream(file()) << "not a page";
  ASSERT_EQ(chmod(file().c_str(), 0600), 0);
  auto device = OpenHere(MiB(64));
  device->page()->version = kSharedVersion + 1;
  Peer peer;
  EXPECT_NE(peer.Ask(Open(MiB(64))).find("another version"), std::string::npos);
  device.reset();
  EXPECT_EQ(peer.Ask(Open(MiB(32))), Total(MiB(32)));
}

TEST_F(SharedDeviceTest, OtherPeoplesFilesAreRefused) {
  std::ofstream(file()) << "";
  ASSERT_EQ(chmod(file().c_str(), 0666), 0);
  EXPECT_FALSE(SharedDevice::Open(directory_, "gpu", MiB(64)).ok());
  ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  EXPECT_FALSE(SharedDirectory(directory_, Users::kThis).ok());
  EXPECT_FALSE(SharedDirectory(directory_, Users::kAll).ok());
}

TEST_F(SharedDeviceTest, ADirectoryForAllUsersLetsThemIn) {
  const std::string made = directory_ + "/all";
  const mode_t before = umask(077);
  EXPECT_TRUE(SharedDirectory(made, Users::kAll).ok());
  umask(before);
  struct stat info = {};
  EXPECT_EQ(stat(made.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755u);
  rmdir(made.c_str());
}

TEST_F(SharedDeviceTest, UsersShareADeviceOfRootsWhereBothSaySo) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, to be two users";
  const std::string elsewhere = "open-for-all " + directory_ + " other 1048576";
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  Peer peer;
  ASSERT_EQ(peer.Ask("become 65534"), "become");
  EXPECT_NE(peer.Ask(elsewhere).find("cannot open"), std::string::npos);  // root has to make it
  auto alone = OpenHere(MiB(64));
  EXPECT_NE(peer.Ask(ForAll(MiB(64))).find("cannot open"), std::string::npos);
  alone.reset();
  const auto device =
      SharedDevice::Open(directory_, "gpu", MiB(64), /*model_clock=*/false, Users::kAll).value();
  EXPECT_NE(peer.Ask(Open(MiB(64))).find("not a private file"), std::string::npos);
  EXPECT_EQ(peer.Ask(ForAll(MiB(512))), Total(MiB(64)));
  EXPECT_EQ(peer.Ask(Charge(MiB(40))), "yes");
  EXPECT_FALSE(device->Charge(MiB(32)));
  peer.Kill();
  EXPECT_TRUE(device->Charge(MiB(64)));
}

TEST_F(SharedDeviceTest, TheEngineGoesRound) {
  Peer one, two;
  ASSERT_EQ(one.Ask(Open(MiB(64))), Total(MiB(64)));
  ASSERT_EQ(two.Ask(Open(MiB(64))), Total(MiB(64)));
  one.Tell("contend");
  two.Tell("contend");
  for (int round = 0; round < 10; ++round) {
    one.WaitForTurns(3);
    two.WaitForTurns(3);
  }
}

TEST_F(SharedDeviceTest, TheEngineLeavesTheStoppedAndTheDead) {
  Peer stopped, killed, living;
  for (Peer* peer : {&stopped, &killed, &living}) {
    ASSERT_EQ(peer->Ask(Open(MiB(64))), Total(MiB(64)));
    peer->Tell("contend");
  }
  stopped.WaitForTurns(2);
  killed.WaitForTurns(2);
  stopped.Stop();
  living.WaitForTurns(10);
  killed.Kill();
  living.WaitForTurns(10);
  stopped.Continue();
  stopped.WaitForTurns(10);
  living.WaitForTurns(10);
}

TEST(BusTest, ReservationsNeverOverlap) {
  auto page = std::make_unique<SharedPage>();
  Bus bus(page.get(), 1'000'000'000);
  EXPECT_EQ(bus.piece(), Bytes(1'000'000));
  const Instant now(5'000'000);
  const Instant first = bus.Reserve(Direction::kToDevice, Bytes(1000), now, Instant());
  EXPECT_EQ(first, now + Microseconds(1));
  const Instant second = bus.Reserve(Direction::kToDevice, Bytes(1000), now, Instant());
  EXPECT_EQ(second, first + Microseconds(1));
  // The other direction is free.
  EXPECT_EQ(bus.Reserve(Direction::kToHost, Bytes(1000), now, Instant()), first);
  // A copy that woke late goes on where its last piece ended; a new one starts now.
  const Instant late = second + Duration(1500);
  EXPECT_EQ(bus.Reserve(Direction::kToDevice, Bytes(1000), late, second), second + Microseconds(1));
  EXPECT_EQ(bus.Reserve(Direction::kToDevice, Bytes(1000), late, Instant()),
            late + Microseconds(1));
}

TEST(BusTest, ACopyThatWasStoppedHasNoTimeSavedUp) {
  auto page = std::make_unique<SharedPage>();
  Bus bus(page.get(), 1'000'000'000);
  const Instant before =
      bus.Reserve(Direction::kToHost, Bytes(1000), Instant(5'000'000), Instant());
  const Instant now = before + Seconds(10);
  EXPECT_EQ(bus.Reserve(Direction::kToHost, Bytes(1000), now, before), now - Microseconds(1));
}

// Copies at different rates share the time of one bus, and none changes another's rate.
TEST(BusTest, ACopyKeepsItsRate) {
  auto page = std::make_unique<SharedPage>();
  Bus fast(page.get(), 1'000'000'000);
  Bus slow = fast.At(1'000'000);
  EXPECT_EQ(fast.Time(Bytes(1000)), Microseconds(1));
  EXPECT_EQ(slow.Time(Bytes(1000)), Milliseconds(1));
  const Instant now(5'000'000);
  const Instant first = slow.Reserve(Direction::kToDevice, Bytes(1000), now, Instant());
  EXPECT_EQ(first, now + Milliseconds(1));
  EXPECT_EQ(fast.Reserve(Direction::kToDevice, Bytes(1000), now, Instant()),
            first + Microseconds(1));
}

TEST(BusTest, PiecesAreShortOnTheFastestBus) {
  auto page = std::make_unique<SharedPage>();
  EXPECT_EQ(Bus(page.get(), 10'000'000'000'000).piece(), MiB(16));
}

}  // namespace
}  // namespace tandem::soft
