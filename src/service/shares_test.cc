// Shares of the time: whose, who may give them, and what outlives what.
#include "src/base/json.h"
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

class SharesTest : public ServiceTest {
 protected:
  static constexpr ConnectionId kPerson = 900;

  void Order(const std::string& whose, const std::string& share, unsigned uid = 1000) {
    Connect(kPerson, 999, uid);
    Say(kPerson, wire::Control{"share", whose, 0, share});
  }
  Json Answer() { return ParseJson(Heard<wire::Answer>(kPerson).json); }
  Json Session(size_t index) { return Ask("sessions")["sessions"].at(index); }
};

TEST_F(SharesTest, OfASessionItsUserSays) {
  Join(1, 11);
  EXPECT_EQ(Session(0)["share"], "1");
  Order("1", "2.5");
  EXPECT_EQ(Answer()["changed"],
            ParseJson(R"([{"user":"1000","session":1,"share":"2.5","before":"1"}])"));
  EXPECT_EQ(Session(0)["share"], "2.5");
  Order("1", "30%");
  EXPECT_EQ(Session(0)["share"], "30%");
  EXPECT_EQ(Session(0)["user_share"], "1");
  Order("1", "3", 1234);
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kNotYours);
  EXPECT_EQ(Session(0)["share"], "30%");
}

TEST_F(SharesTest, OfAUserOnlyRootAndTheDaemonsUserSay) {
  Join(1, 11);
  Order("user:1000", "2");
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kNotYours);
  Order("user:1000", "2", 0);
  EXPECT_EQ(Answer()["changed"][0]["user"], "1000");
  EXPECT_EQ(Session(0)["user_share"], "2");
}

TEST_F(SharesTest, AUserIsANumber) {
  Join(1, 11);
  for (const char* wrong : {"user:", "user:anna", "user:\xff", "user:1000x", "user:-1"}) {
    Order(wrong, "2", 0);
    EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kUnknownTarget) << wrong;
  }
  Order("user:01000", "2", 0);
  EXPECT_EQ(Session(0)["user_share"], "2");
}

TEST_F(SharesTest, WhereTheyDoNotCountTheAnswerSaysSo) {
  Join(1, 11);
  Order("1", "2");
  EXPECT_EQ(Answer()["gpus_without_shares"], Json::array({0}));
  Connect(kPerson, 999, 0);
  Say(kPerson, wire::Control{"policy", "all", 0, "fair"});
  Order("1", "2");
  EXPECT_EQ(Answer()["gpus_without_shares"], Json::array());
}

TEST_F(SharesTest, OfARunHoldsForWhatItStartsLater) {
  Connect(800, 800);
  Say(800, wire::RunBegin{"0.1", "mine", "python3", 0, 0, 0});
  const uint64_t run = Heard<wire::RunStarted>(800).run;
  Order("mine", "4");
  EXPECT_EQ(Answer()["changed"], Json::array());
  Join(1, 11, run);
  EXPECT_EQ(Session(0)["share"], "4");
}

TEST_F(SharesTest, ASessionThatComesBackKeepsIts) {
  Join(1, 11);
  Order("1", "4");
  service_.OnDisconnected(1, now_);
  Join(2, 11);
  EXPECT_EQ(Session(0)["share"], "4");
}

TEST_F(SharesTest, WhatIsNoneIsRefused) {
  Join(1, 11);
  for (const char* wrong : {"", "0", "-1", "101%", "0%", "%", "2x", "nan", "inf", "1e9", "1e-9",
                            "1e-300%", "1e-322%", "0.05%"}) {
    Order("1", wrong);
    EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kUnknownTarget) << wrong;
  }
  EXPECT_EQ(Session(0)["share"], "1");
}

}  // namespace
}  // namespace tandem::service
