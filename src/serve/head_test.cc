#include "src/serve/head.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>

namespace tandem::serve {
namespace {

constexpr const char* kGet = "GET /metrics HTTP/1.1\r\n";

int Refused(const std::string& text) {
  return CheckHead(text).refused;
}

TEST(HeadTest, KeepsTheHeadersThatAreUsed) {
  const Head head =
      CheckHead(std::string(kGet) +
                "Host: localhost:9870\r\nRange: bytes=0-0,0-0\r\nACCEPT:\ttext/plain \r\n"
                "Accept-Encoding: br\r\nAuthorization: Bearer x\r\n\r\n");
  EXPECT_EQ(head.refused, 0);
  EXPECT_EQ(head.text, std::string(kGet) +
                           "host: localhost:9870\r\naccept: text/plain\r\n"
                           "authorization: Bearer x\r\n\r\n");
}

TEST(HeadTest, RefusesWhatTheLibraryNeedNotSee) {
  const std::string host = "Host: a\r\n";
  EXPECT_EQ(Refused(kGet + host + "\r\n"), 0);
  EXPECT_EQ(Refused(kGet + host + "Content-Length: 0\r\n\r\n"), 0);
  EXPECT_EQ(Refused(kGet + host + "Content-Length: 10\r\n\r\n"), 413);
  EXPECT_EQ(Refused(kGet + host + "Transfer-Encoding: chunked\r\n\r\n"), 413);
  EXPECT_EQ(Refused(kGet + host + host + "\r\n"), 400);
  EXPECT_EQ(Refused(std::string(kGet) + "\r\n"), 400);
  EXPECT_EQ(Refused(kGet + host + "no colon\r\n\r\n"), 400);
  EXPECT_EQ(Refused(kGet + host + "Name : value\r\n\r\n"), 400);
  EXPECT_EQ(Refused(kGet + host + " folded: value\r\n\r\n"), 400);
  EXPECT_EQ(Refused(kGet + host + "bare: new\nline\r\n\r\n"), 400);
  EXPECT_EQ(Refused("POST / HTTP/1.1\r\n" + host + "\r\n"), 405);
  EXPECT_EQ(Refused("GET / HTTP/2.0\r\n" + host + "\r\n"), 505);
  EXPECT_EQ(Refused("GET http://a/ HTTP/1.1\r\n" + host + "\r\n"), 400);
  EXPECT_EQ(Refused("GET /a b HTTP/1.1\r\n" + host + "\r\n"), 400);
  EXPECT_EQ(Refused("GET  HTTP/1.1\r\n" + host + "\r\n"), 400);
  EXPECT_EQ(Refused("GET\r\n" + host + "\r\n"), 400);
  EXPECT_EQ(Refused("GET /" + std::string(kLongestTarget, 'a') + " HTTP/1.1\r\n\r\n"), 414);
  EXPECT_EQ(Refused("\r\n\r\n"), 400);
}

TEST(HeadTest, AnyBytesAreRefusedOrBecomeAPlainHead) {
  const char* given = std::getenv("TANDEM_SEED");
  const unsigned seed =
      given != nullptr ? std::strtoul(given, nullptr, 10) : std::random_device()();
  std::cout << "TANDEM_SEED=" << seed << "\n";
  std::mt19937 random(seed);
  const std::string pieces[] = {"GET ",
                                "/",
                                " HTTP/1.1",
                                "\r\n",
                                "host:",
                                "a",
                                "\r\n\r\n",
                                "\n",
                                "\r",
                                ":",
                                " ",
                                std::string(1, '\0'),
                                "Content-Length: 3",
                                "\xff",
                                "accept: x"};
  for (int round = 0; round < 20000; ++round) {
    std::string text = random() % 2 == 0 ? kGet : "";
    for (unsigned i = random() % 12; i > 0; --i) text += pieces[random() % std::size(pieces)];
    text += "\r\n\r\n";
    const Head head = CheckHead(std::string_view(text).substr(0, EndOfHead(text)));
    if (head.refused != 0) {
      EXPECT_FALSE(head.reason.empty());
      continue;
    }
    EXPECT_EQ(EndOfHead(head.text), head.text.size());
    EXPECT_EQ(head.text.find('\0'), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem::serve
