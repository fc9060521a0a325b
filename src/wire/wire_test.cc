#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "src/base/testing/rounds.h"
#include "src/base/testing/seed.h"
#include "src/wire/channel.h"
#include "src/wire/codec.h"
#include "src/wire/testing/any_message.h"

namespace tandem::wire {
namespace {

// With something else in every field.
std::vector<Message> OneOfEach() {
  std::vector<Message> all = EveryKind();
  uint64_t last = 0;
  for (Message& message : all) {
    FillFields(message, [&](auto& field) {
      last += 0x0123456789abcdef;
      if constexpr (std::is_same_v<decltype(field), std::string&>) {
        field = std::to_string(last);
      } else {
        field = static_cast<std::decay_t<decltype(field)>>(last);
      }
    });
  }
  return all;
}

TEST(CodecTest, EveryMessageSurvivesTheStreamByteByByte) {
  for (const Message& message : OneOfEach()) {
    const std::vector<std::byte> bytes = Encode(message);
    FrameReader reader(kMaxAnswer);
    for (size_t i = 0; i < bytes.size(); ++i) {
      EXPECT_EQ(reader.Next().error().code, ErrorCode::kNotFound);
      reader.Append(std::span(bytes).subspan(i, 1));
    }
    Result<Message> back = reader.Next();
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(Encode(*back), bytes);
  }
}

TEST(CodecTest, SeveralMessagesInOnePiece) {
  std::vector<std::byte> bytes = Encode(Ready{1});
  const std::vector<std::byte> second = Encode(Ready{2});
  bytes.insert(bytes.end(), second.begin(), second.end());
  FrameReader reader;
  reader.Append(bytes);
  EXPECT_EQ(std::get<Ready>(*reader.Next()).need_bytes, 1u);
  EXPECT_EQ(std::get<Ready>(*reader.Next()).need_bytes, 2u);
  EXPECT_EQ(reader.Next().error().code, ErrorCode::kNotFound);
}

TEST(CodecTest, AnotherVersionIsToldApartFromGarbage) {
  std::vector<std::byte> bytes = Encode(Ready{1});
  bytes[4] = std::byte{kVersion + 1};
  FrameReader versioned;
  versioned.Append(bytes);
  const Error error = versioned.Next().error();
  EXPECT_EQ(error.code, ErrorCode::kVersion);
  const std::string theirs = "version " + std::to_string(kVersion + 1);
  EXPECT_NE(error.message.find(theirs), std::string::npos);
  bytes[0] = std::byte{0};
  FrameReader garbage;
  garbage.Append(bytes);
  EXPECT_EQ(garbage.Next().error().code, ErrorCode::kInvalid);
  garbage.Append(Encode(Ready{1}));
  EXPECT_EQ(garbage.Next().error().code, ErrorCode::kInvalid) << "a broken stream stays broken";
}

TEST(CodecTest, RefusedIsReadInEveryVersion) {
  std::vector<std::byte> bytes = Encode(Refused{9, 1, "too old"});
  bytes[4] = std::byte{kVersion + 1};
  FrameReader reader;
  reader.Append(bytes);
  EXPECT_EQ(std::get<Refused>(*reader.Next()).reason, "too old");
}

TEST(CodecTest, OversizedIsRefusedFromTheHeaderAlone) {
  std::vector<std::byte> bytes = Encode(Ready{1});
  bytes[11] = std::byte{0x7f};
  FrameReader reader;
  reader.Append(std::span(bytes).first(kHeaderBytes));
  EXPECT_EQ(reader.Next().error().code, ErrorCode::kInvalid);
}

TEST(CodecTest, OnlyWhoAsksTakesLongAnswers) {
  const std::vector<std::byte> bytes = Encode(Answer{std::string(kMaxPayload + 1, 'x')});
  FrameReader asks(kMaxAnswer), answers;
  asks.Append(bytes);
  EXPECT_TRUE(asks.Next().ok());
  answers.Append(std::span(bytes).first(kHeaderBytes));
  EXPECT_EQ(answers.Next().error().code, ErrorCode::kInvalid);
}

TEST(CodecTest, LongStringsAreCutNotRefused) {
  FrameReader reader;
  reader.Append(Encode(Query{std::string(100000, 'x')}));
  EXPECT_EQ(std::get<Query>(*reader.Next()).what.size(), kMaxString);
}

TEST(CodecTest, MutatedStreamsNeverCrash) {
  const uint64_t seed = RandomSeed();
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::vector<Message> all = OneOfEach();
  for (uint64_t round = 0; round < Rounds(20000); ++round) {
    std::vector<std::byte> bytes = Encode(all[random() % all.size()]);
    for (uint64_t flips = random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    FrameReader reader;
    reader.Append(bytes);
    const Result<Message> message = reader.Next();
    if (message.ok()) {
      EXPECT_LE(Encode(*message).size(), kHeaderBytes + kMaxAnswer);
    }
  }
}

std::pair<Channel, Channel> Pair() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {Channel(UniqueFd(fds[0])), Channel(UniqueFd(fds[1]))};
}

TEST(ChannelTest, CarriesMessagesAndDescriptors) {
  auto [a, b] = Pair();
  EXPECT_EQ(b.Receive(Duration()).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(a.Send(Registered{.card_bytes = 42}, Seconds(1), {0, 1}).ok());
  EXPECT_EQ(std::get<Registered>(*b.Receive(Seconds(1))).card_bytes, 42u);
  const std::vector<UniqueFd> fds = b.TakeFds();
  EXPECT_EQ(fds.size(), 2u);
  EXPECT_EQ(b.GetPeer()->pid, getpid());
}

TEST(ChannelTest, ReportsAPeerThatIsGoneOrDeaf) {
  auto [a, b] = Pair();
  Status status;
  while (status.ok()) status = a.Send(Answer{std::string(1 << 20, 'x')}, Milliseconds(1));
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  auto [c, d] = Pair();
  d.Close();
  EXPECT_EQ(c.Receive(Seconds(1)).error().code, ErrorCode::kUnavailable);
}

// A directory of the test's own.
class DirectoryTest : public ::testing::Test {
 protected:
  DirectoryTest() {
    std::string pattern = ::testing::TempDir() + "wire-XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~DirectoryTest() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
};

TEST_F(DirectoryTest, ADaemonOfSomebodyElseIsRefused) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  const std::string path = dir_ + "/socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  // What connect tells is who listened, as the kernel saw it then.
  ASSERT_EQ(listen(listener.get(), 1), 0);
  EXPECT_TRUE(ConnectDaemon(path).ok());
  ASSERT_EQ(seteuid(65534), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(ConnectDaemon(path).error().code, ErrorCode::kRefused);
}

TEST(ChannelTest, SaysWhereThereIsNoDaemon) {
  EXPECT_EQ(ConnectDaemon("/nonexistent/tandemd.sock").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ConnectDaemon(std::string(200, 'x')).error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace tandem::wire
