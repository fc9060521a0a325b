// A process that says anything, with any descriptors, over real sockets: nothing of it stays
// behind.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <random>

#include "src/base/testing/descriptors.h"
#include "src/base/testing/rounds.h"
#include "src/base/testing/seed.h"
#include "src/daemon/daemon_test.h"
#include "src/wire/testing/any_message.h"

namespace tandem::daemon {
namespace {

// What the process does. It is forked: nothing here may fail a test, and what cannot be sent is
// not.
class Rage {
 public:
  Rage(const std::string& path, uint64_t seed) : path_(path), random_(seed) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == 0) fds_ = {ends[0], ends[1]};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0) {
      fds_.insert(fds_.end(), {ends[0], ends[1]});
    }
    fds_.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    fds_.push_back(memfd_create("file", MFD_CLOEXEC));
    // More often than others, since this is what the daemon takes.
    memory_ = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    fcntl(memory_, F_ADD_SEALS, F_SEAL_SHRINK);
  }
  // One connection after another.
  void Run(uint64_t connections) {
    for (uint64_t i = 0; i < connections; ++i) {
      const Result<wire::Channel> channel = wire::ConnectDaemon(path_);
      if (!channel.ok()) continue;
      if (Draw(2) == 0) {
        Send(*channel, wire::Register{"0.1", 0, "GPU-1", "x", 0, 0, 0});
      } else if (Draw(2) == 0) {
        Send(*channel, wire::Offer{Draw(3), Draw(3), "GPU-1"});
      }
      for (uint64_t left = Draw(20); left > 0 && Send(*channel, Anything()); --left) continue;
      if (Draw(2) == 0) HearOut(*channel);
    }
  }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }

  void Fill(std::string& field) { field = Draw(2) == 0 ? "GPU-1" : std::string(Draw(5000), 'x'); }
  template <typename T>
  void Fill(T& field) {
    field = static_cast<T>(Draw(2) == 0 ? Draw(3) : random_());
  }
  wire::Message Anything() {
    wire::Message message = kinds_[Draw(kinds_.size())];
    wire::FillFields(message, [this](auto& field) { Fill(field); });
    return message;
  }
  int Descriptor(int socket) {
    if (Draw(2) == 0) return memory_;
    return Draw(8) == 0 ? socket : fds_[Draw(fds_.size())];
  }

  // False where the daemon no longer listens, or the socket has no room.
  bool Send(const wire::Channel& channel, const wire::Message& message) {
    std::vector<std::byte> bytes = wire::Encode(message);
    if (Draw(20) == 0) bytes[Draw(bytes.size())] = static_cast<std::byte>(random_());
    std::vector<int> fds(Draw(3) == 0 ? Draw(254) : Draw(3));
    for (int& fd : fds) fd = Descriptor(channel.fd());
    iovec piece{bytes.data(), bytes.size()};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    std::vector<char> space(CMSG_SPACE(sizeof(int) * fds.size()));
    if (!fds.empty()) {
      header.msg_control = space.data();
      header.msg_controllen = space.size();
      cmsghdr* const rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
    }
    return sendmsg(channel.fd(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  }

  // Until the daemon has read all and closed, too: before that, what it got goes with the process.
  static void HearOut(const wire::Channel& channel) {
    shutdown(channel.fd(), SHUT_WR);
    std::array<char, 4096> answers;
    while (recv(channel.fd(), answers.data(), answers.size(), 0) > 0) continue;
  }

  const std::string path_;
  const std::vector<wire::Message> kinds_ = wire::EveryKind();
  std::mt19937_64 random_;
  std::vector<int> fds_;
  int memory_ = -1;
};

TEST_F(DaemonTest, OfAnyMessagesAndDescriptorsNothingStays) {
  const uint64_t seed = RandomSeed();
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
  wire::Channel session = Join();
  ASSERT_EQ(session.TakeFds().size(), 2u);
  const size_t before = OpenDescriptors();
  const pid_t child = fork();
  if (child == 0) {
    Rage(path_, seed).Run(Rounds(300));
    _exit(0);
  }
  int status = -1;
  ASSERT_TRUE(RunUntil([&] { return waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 1; }));
  EXPECT_TRUE(RunUntil([&] { return OpenDescriptors() == before; })) << OpenDescriptors() - before;
  ASSERT_TRUE(
      RunUntil([] { return Closing(getuid()) == 0; }));  // before, it hears none of this user
  EXPECT_EQ(Ask("sessions")["sessions"].size(), 1u);
  EXPECT_EQ(Ask("status")["gpus"][0]["charged_bytes"], 0u);
  ASSERT_TRUE(session.Send(wire::Reserve{1, MiB(1).count}).ok());
  EXPECT_EQ(Expect<wire::Reserved>(session).granted, 1);
}

}  // namespace
}  // namespace tandem::daemon
