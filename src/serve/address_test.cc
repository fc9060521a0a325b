#include "src/serve/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::serve {
namespace {

using ::testing::HasSubstr;

TEST(AddressTest, IsParsed) {
  for (const char* text : {"127.0.0.1:9870", "[::1]:9870", "localhost:0", "0.0.0.0:65535"}) {
    const auto address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(FormatAddress(*address), text);
  }
  for (const char* text : {"", ":", "9870", "host", "host:", ":80", "host:80x", "host:65536",
                           "host:-1", "::1:80", "[::1]", "[::1:80", "[]:80"}) {
    EXPECT_FALSE(ParseAddress(text).ok()) << text;
  }
}

TEST(AddressTest, OnlyNamesOfThisMachineAreItsOwn) {
  const Address listen{"127.0.0.1", 9870};
  for (const char* host :
       {"localhost", "LOCALHOST:9870", "127.0.0.1:1", "127.1.2.3", "[::1]:9870"}) {
    EXPECT_TRUE(IsOwnName(host, listen)) << host;
  }
  for (const char* host :
       {"", "evil.example", "evil.example:9870", "127.0.0.1.evil.example", "localhost.evil.example",
        "10.0.0.1", "[::2]", "[::1]x:1", "[", "[::1", "]", ":"}) {
    EXPECT_FALSE(IsOwnName(host, listen)) << host;
  }
  EXPECT_TRUE(IsOwnName("box:80", Address{"Box", 80}));
}

TEST(AddressTest, ListensAndSaysWhyNot) {
  const auto listener = Listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  EXPECT_TRUE(listener->loopback);
  EXPECT_NE(listener->address.port, 0);
  EXPECT_THAT(Listen(listener->address).error().message, HasSubstr("another program listens"));
  EXPECT_THAT(Listen({"192.0.2.1", 0}).error().message, HasSubstr("no address of this machine"));
  EXPECT_FALSE(Listen({"0.0.0.0", 0})->loopback);
}

}  // namespace
}  // namespace tandem::serve
