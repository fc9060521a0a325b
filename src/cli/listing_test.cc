#include "src/cli/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PickSessions, KeepsThoseThatTheOrderConcerns) {
  const std::string all = R"({"sessions":[{"id":1,"state":"suspended"},{"id":2,"state":"running"},
                                          {"id":3,"state":"suspended"}]})";
  const auto picked = PickSessions(all, R"({"sessions":[3,1,9]})");
  ASSERT_TRUE(picked.ok());
  EXPECT_EQ(*picked, R"({"sessions":[{"id":1,"state":"suspended"},{"id":3,"state":"suspended"}]})");
  EXPECT_TRUE(AllSuspended(*picked));
  EXPECT_FALSE(AllSuspended(all));
  EXPECT_FALSE(NoSessions(*picked));
  EXPECT_TRUE(NoSessions(PickSessions(all, R"({"sessions":[]})").value()));
  for (const char* odd : {"", "[]", "{\"sessions\""}) {
    EXPECT_FALSE(PickSessions(odd, "{}").ok()) << odd;
    EXPECT_FALSE(PickSessions(all, odd).ok()) << odd;
    EXPECT_FALSE(AllSuspended(odd)) << odd;
  }
}

TEST(StayingText, SaysWhatSuspendedSessionsLeaveOnTheCard) {
  EXPECT_EQ(StayingText(R"({"sessions":[{"fixed_bytes":20971520},{},{"fixed_bytes":1048576}]})"),
            "21 MiB cannot leave the card, beside contexts: arrays, managed and shared memory and "
            "the like.\n");
  for (const char* json : {R"({"sessions":[{"fixed_bytes":0},{"fixed_bytes":"x"}]})", "{}", ""}) {
    EXPECT_EQ(StayingText(json), "") << json;
  }
}

TEST(Listings, TakeWhateverJsonComes) {
  for (const auto show : {SessionsTable, StatusText, HandoversTable}) {
    EXPECT_FALSE(show("", Screen()).ok());
    EXPECT_FALSE(show("[1]", Screen()).ok());
    EXPECT_FALSE(show("{\"sessions\"", Screen()).ok());
    for (const char* json :
         {"{}", R"({"sessions":7,"gpus":{},"handovers":null})",
          R"({"sessions":[null,[],{"id":{},"resident_bytes":-1,"waited_s":1e300}],
              "gpus":["x",{"mode":3,"holders":[{}]},{"mode":"turns","quantum_s":"a"}],
              "handovers":[5,{"from":5,"took_s":"x"}]})"}) {
      EXPECT_TRUE(show(json, Screen()).ok()) << json;
    }
  }
}

TEST(StatusText, SaysWhoHoldsTheCard) {
  const auto text = StatusText(R"({"version":"0.1.0","pid":9,"uptime_s":3700,"socket":"/s",
      "gpus":[{"index":0,"name":"Soft","software":true,"card_bytes":268435456,"holders":[1,2],
               "waiting":[],"suspended":[7,8],"mode":"turns","quantum_s":0.25,"switch_cost_s":0.0124}]})",
                               Screen());
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("up 1 h 01 min"));
  EXPECT_THAT(*text, HasSubstr("suspended   7, 8"));
  EXPECT_THAT(*text, HasSubstr("(software)"));
  EXPECT_THAT(*text, HasSubstr("holding it  1, 2"));
  EXPECT_THAT(*text, HasSubstr("waiting     nobody"));
  EXPECT_THAT(*text, HasSubstr("250 ms"));
  EXPECT_THAT(*text, Not(HasSubstr("TANDEM_SEED")));
}

TEST(StatusText, SaysWhatIsPromisedOfTheHost) {
  const auto text =
      StatusText(R"({"host_limit_bytes":8388608,"host_promised_bytes":2097152})", Screen());
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("2 MiB of 8 MiB promised"));
}

TEST(StatusText, SaysThatThereIsChaos) {
  const auto text = StatusText(R"({"chaos_seed":"77"})", Screen());
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("TANDEM_SEED=77"));
}

TEST(CompactJson, IsOneAsciiLine) {
  const auto json = CompactJson("{\n\"name\": \"gr\u00fcn\\u001b\"\n}");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(*json, "{\"name\":\"gr\\u00fcn\\u001b\"}");
}

}  // namespace
}  // namespace tandem::cli
