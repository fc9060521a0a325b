// Messages of older versions as bytes, as programs that are still running send and expect them.
#include <gtest/gtest.h>

#include "src/wire/codec.h"

namespace tandem::wire {
namespace {

struct Recorded {
  Message message;
  const char* hex;
};

std::vector<std::byte> BytesOf(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// What programs, and the `tandem` of then, say.
std::vector<Recorded> SaidInVersion2() {
  return {{Register{"0.1", 7, "GPU-1", "train", 10, 20, 1},
           "544e444d020001002f0000000300302e31070000000000000005004750552d310500747261696e0a0000000"
           "0000000140000000000000001000000"},
          {Reserve{3, 1 << 20}, "544e444d020002001000000003000000000000000000100000000000"},
          {ContextWanted{}, "544e444d0200030000000000"},
          {ContextGone{}, "544e444d0200040000000000"},
          {Ready{5}, "544e444d02000500080000000500000000000000"},
          {Running{2, 9}, "544e444d020006001000000002000000000000000900000000000000"},
          {Idle{2}, "544e444d02000700080000000200000000000000"},
          {Active{3}, "544e444d02000800080000000300000000000000"},
          {Released{4}, "544e444d02000900080000000400000000000000"},
          {Busy{5}, "544e444d02000a00080000000500000000000000"},
          {Evicted{4, 2}, "544e444d02000b001000000004000000000000000200000000000000"},
          {RunBegin{"0.1", "demo", "ffmpeg", 1 << 30, 77},
           "544e444d02004000230000000300302e31040064656d6f060066666d70656700000040000000004d0000000"
           "0000000"},
          {Query{"status"}, "544e444d02004200080000000600737461747573"}};
}

// What they are told: they refuse a message that is a byte longer or shorter.
std::vector<Recorded> ToldInVersion2() {
  return {{Registered{1, 2, 3},
           "544e444d0200200018000000010000000000000002000000000000000300000000000000"},
          {Reserved{3, 1}, "544e444d0200210009000000030000000000000001"},
          {ContextReserved{1}, "544e444d020022000100000001"},
          {Grant{2, 100, 10000},
           "544e444d0200230018000000020000000000000064000000000000001027000000000000"},
          {Credit{200}, "544e444d0200240008000000c800000000000000"},
          {Revoke{2, 5}, "544e444d020025001000000002000000000000000500000000000000"},
          {Evict{50}, "544e444d02002600080000003200000000000000"},
          {RunStarted{7, 8}, "544e444d020041001000000007000000000000000800000000000000"},
          {Answer{"{}"}, "544e444d02004300020000007b7d"},
          {Refused{2, 4, "no"}, "544e444d02007f00080000000200040002006e6f"}};
}

TEST(RecordedTest, VersionTwoIsUnderstood) {
  for (const Recorded& said : SaidInVersion2()) {
    FrameReader reader;
    reader.Append(BytesOf(said.hex));
    const Result<Message> message = reader.Next();
    ASSERT_TRUE(message.ok()) << said.hex << ": " << message.error().message;
    EXPECT_EQ(Encode(*message), Encode(said.message)) << said.hex;
    EXPECT_EQ(reader.version(), 2);
  }
}

TEST(RecordedTest, VersionTwoIsAnsweredInItsOwnWords) {
  for (const Recorded& told : ToldInVersion2()) {
    EXPECT_EQ(Encode(told.message, 2), BytesOf(told.hex)) << told.hex;
  }
}

TEST(RecordedTest, OnlyWhatAnOlderVersionLacksMayBeLeftOut) {
  for (const Recorded& said : SaidInVersion2()) {
    const std::vector<std::byte> whole = BytesOf(said.hex);
    for (size_t length = kHeaderBytes; length < whole.size(); ++length) {
      std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
      cut[8] = static_cast<std::byte>(length - kHeaderBytes);
      FrameReader reader;
      reader.Append(cut);
      EXPECT_EQ(reader.Next().error().code, ErrorCode::kInvalid) << said.hex << " at " << length;
    }
  }
}

TEST(RecordedTest, WhatANewerSideAddsIsIgnored) {
  for (const Recorded& said : SaidInVersion2()) {
    const std::vector<std::byte> known = Encode(said.message);
    std::vector<std::byte> longer = known;
    longer[8] = static_cast<std::byte>(std::to_integer<int>(longer[8]) + 3);  // of its length
    longer.resize(longer.size() + 3, std::byte{0xff});
    FrameReader reader;
    reader.Append(longer);
    reader.Append(known);
    for (int i = 0; i < 2; ++i) {
      const Result<Message> message = reader.Next();
      ASSERT_TRUE(message.ok()) << said.hex << ": " << message.error().message;
      EXPECT_EQ(Encode(*message), known) << said.hex;
    }
  }
}

TEST(RecordedTest, WhatAVersionDoesNotHaveIsKnown) {
  for (const Recorded& told : ToldInVersion2()) EXPECT_LE(told.message.SinceVersion(), 2);
  EXPECT_EQ(Message(RunChanged{}).SinceVersion(), 3);
  EXPECT_EQ(Message(RunShown{}).SinceVersion(), 3);
  EXPECT_EQ(Message(Fetched{}).SinceVersion(), 4);
  EXPECT_EQ(Message(Contended{}).SinceVersion(), 6);
  EXPECT_EQ(Message(Restored{}).SinceVersion(), 10);
  EXPECT_EQ(Message(Waiting{}).SinceVersion(), 11);
  EXPECT_EQ(Message(Move{}).SinceVersion(), 13);
}

TEST(RecordedTest, ARefusalIsSignedWithTheVersionOfWhoReadsIt) {
  FrameReader reader;
  reader.Append(Encode(Refused{kVersion, 4, "no"}, kOldestVersion));
  EXPECT_EQ(std::get<Refused>(*reader.Next()).version, kOldestVersion);
  // But a refusal of the version itself keeps the version of the side that refuses.
  reader.Append(Encode(Refused{kVersion, 1, "no"}));
  EXPECT_EQ(std::get<Refused>(*reader.Next()).version, kVersion);
}

}  // namespace
}  // namespace tandem::wire
