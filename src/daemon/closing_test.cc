// Descriptors that take for ever to close do not stop the daemon, whichever way they come. The loop
// turns on the test's own thread: were one closed there, the test would end in its own time limit.
#include "src/daemon/closing.h"

#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>

#include "src/daemon/daemon_test.h"
#include "src/daemon/received_memory.h"

namespace tandem::daemon {
namespace {

// A connection full of unread bytes: to close it lasts until the other end goes.
class SlowToClose {
 public:
  SlowToClose() {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.get(), where, length), 0) << std::strerror(errno);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    EXPECT_EQ(getsockname(listener.get(), where, &length), 0);
    fd_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd_.get(), where, length), 0) << std::strerror(errno);
    other_end_.Reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger patience{1, 30000};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &patience, sizeof(patience));
    const std::vector<char> bytes(65536);
    while (send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
  }
  int fd() const { return fd_.get(); }
  void Forget() { fd_.Reset(); }
  // Lets it be closed.
  void Release() { other_end_.Reset(); }

 private:
  UniqueFd other_end_;
  UniqueFd fd_;
};

class ClosingTest : public DaemonTest {
 protected:
  // Sends `bytes` with `count` descriptors, of which `fd` is the last; Channel::Send would not.
  static void SendWith(const wire::Channel& channel, std::vector<std::byte> bytes, int fd,
                       size_t count, int flags = 0) {
    std::vector<char> space(CMSG_SPACE(sizeof(int) * count));
    iovec piece{bytes.data(), bytes.size()};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = space.data();
    header.msg_controllen = space.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::vector<int> fds(count, STDERR_FILENO);
    fds.back() = fd;
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * count);
    EXPECT_GT(sendmsg(channel.fd(), &header, MSG_NOSIGNAL | flags), 0) << std::strerror(errno);
  }
  // The test has let go of the last descriptor: only the daemon can be closing it.
  void ExpectTheDaemonLives(SlowToClose& slow) {
    EXPECT_EQ(Ask("status")["gpus"][0]["uuid"], "GPU-1");
    EXPECT_GT(Closing(getuid()), 0u);
    slow.Release();
    EXPECT_TRUE(RunUntil([] { return Closing(getuid()) == 0; }));
  }

  const std::vector<std::byte> garbage_ = std::vector<std::byte>(300, std::byte{0x5a});
  const std::vector<std::byte> question_ = wire::Encode(wire::Query{"status"});
};

TEST_F(ClosingTest, AsManyAsAMessageCarries) {
  SlowToClose slow;
  wire::Channel channel = Connect();
  SendWith(channel, question_, slow.fd(), 253);
  slow.Forget();
  Expect<wire::Answer>(channel);
  ExpectTheDaemonLives(slow);
}

TEST_F(ClosingTest, BehindWhatTheSenderIsDroppedFor) {
  SlowToClose slow;
  wire::Channel channel = Connect();
  SendRaw(channel, garbage_);
  SendWith(channel, garbage_, slow.fd(), 1);
  slow.Forget();
  Expect<wire::Refused>(channel);
  ExpectClosed(channel);
  ExpectTheDaemonLives(slow);
}

TEST_F(ClosingTest, WithAnUrgentByte) {
  SlowToClose slow;
  wire::Channel channel = Connect();
  SendWith(channel, {question_[0]}, slow.fd(), 1, MSG_OOB);
  slow.Forget();
  SendRaw(channel, {question_.begin() + 1, question_.end()});
  Expect<wire::Answer>(channel);
  ExpectTheDaemonLives(slow);
}

TEST_F(ClosingTest, OfWhomeverThereIsNoRoomFor) {
  Start({.max_connections_per_user = 1});
  std::optional<wire::Channel> first = Connect();
  SlowToClose slow;
  wire::Channel second = wire::ConnectDaemon(path_).value();
  SendWith(second, {question_[0]}, slow.fd(), 1, MSG_OOB);
  SendRaw(second, question_);
  slow.Forget();
  ExpectClosed(second);
  first.reset();
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 0; }));
  ExpectTheDaemonLives(slow);
}

// It may be of a file system that hangs.
TEST_F(ClosingTest, AFileThatTheClientDidNotRead) {
  SlowToClose slow;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd client(ends[1]);
  {
    Connection connection(UniqueFd(ends[0]), getuid(), false);
    UniqueFd file(fcntl(slow.fd(), F_DUPFD_CLOEXEC, 0));
    slow.Forget();
    EXPECT_TRUE(connection.Queue(wire::Answer{"{}"}, {}, std::move(file)).ok());
  }
  ExpectTheDaemonLives(slow);
}

TEST_F(ClosingTest, FromAUserOfWhomTooManyWaitNothingIsReceived) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit many{std::min<rlim_t>(before.rlim_max, 8192), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &many), 0);
  SlowToClose slow;
  wire::Channel channel = Connect();
  SendWith(channel, question_, slow.fd(), 1);
  slow.Forget();
  Expect<wire::Answer>(channel);
  for (size_t sent = 1; sent + 253 < kMostClosing; sent += 253) {
    SendWith(channel, question_, STDERR_FILENO, 253);
    Expect<wire::Answer>(channel);
  }
  SendWith(channel, question_, STDERR_FILENO, 253);
  ExpectClosed(channel);
  EXPECT_GE(Closing(getuid()), kMostClosing);
  slow.Release();
  EXPECT_TRUE(RunUntil([] { return Closing(getuid()) == 0; }));
  EXPECT_EQ(Ask("status")["gpus"][0]["uuid"], "GPU-1");
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(ClosingTest, WhatThereIsNoDescriptorLeftFor) {
  SlowToClose slow;
  wire::Channel channel = Connect();
  SendWith(channel, question_, slow.fd(), 1);
  slow.Forget();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<UniqueFd> hoard;
  for (UniqueFd fd; (fd = UniqueFd(dup(channel.fd())));) hoard.push_back(std::move(fd));
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 0; }));
  setrlimit(RLIMIT_NOFILE, &before);
  hoard.clear();
  ExpectClosed(channel);
  ExpectTheDaemonLives(slow);
}

TEST_F(ClosingTest, OfferedMemoryIsClosedElsewhereToo) {
  SlowToClose slow;
  wire::Channel channel = Connect();
  SendWith(channel, question_, slow.fd(), 1);
  slow.Forget();
  Expect<wire::Answer>(channel);  // what comes now waits behind that
  wire::Channel session = Join();
  const UniqueFd memory(memfd_create("memory", MFD_CLOEXEC));
  for (size_t i = 0; i < 3; ++i) {  // a new one, the same again, and none that may be offered
    wire::Channel offerer = Connect();
    const char* const device = i < 2 ? "GPU-1" : "GPU-2";
    ASSERT_TRUE(offerer.Send(wire::Offer{1, 2, device}, kPatience, {memory.get()}).ok());
    Await(offerer).ok();
    EXPECT_EQ(Closing(getuid()), 1 + i);
  }
  ASSERT_TRUE(session.Send(wire::Withdraw{1, 2}).ok());
  EXPECT_TRUE(RunUntil([] { return Closing(getuid()) == 4; }));
  ExpectTheDaemonLives(slow);
}

TEST(ReceivedMemoryTest, FilesAreMemoryOnlyWhereThereIsASoftwareGpu) {
  const UniqueFd file(memfd_create("memory", MFD_CLOEXEC));
  EXPECT_TRUE(IsMemory(file.get(), true));
  EXPECT_FALSE(IsMemory(file.get(), false));
  const UniqueFd other(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(IsMemory(other.get(), true));
}

}  // namespace
}  // namespace tandem::daemon
