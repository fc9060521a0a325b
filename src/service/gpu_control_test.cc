// Orders about GPUs: which are meant, who may give them.
#include "src/base/json.h"
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

class GpuControlTest : public ServiceTest {
 protected:
  static constexpr ConnectionId kPerson = 900;

  // The policy that the only GPU shall go by.
  void Order(const std::string& gpu, const std::string& policy, unsigned uid = 0) {
    Connect(kPerson, 999, uid);
    Say(kPerson, wire::Control{"policy", gpu, 0, policy});
  }
  Json Changed() { return ParseJson(Heard<wire::Answer>(kPerson).json)["gpus"]; }
  std::string Policy() { return Ask("status")["gpus"][0]["policy"]; }
};

TEST_F(GpuControlTest, APolicyIsSetAndTheAnswerSaysWhereAndWhatItWasBefore) {
  EXPECT_EQ(Policy(), "interactive");
  Order("gpu0", "fcfs");
  EXPECT_EQ(Changed(), ParseJson(R"([{"index":0,"policy":"fcfs","before":"interactive"}])"));
  EXPECT_EQ(Policy(), "fcfs");
  for (const char* name : {"0", "all", kGpu}) {
    Order(name, "round-robin");
    EXPECT_EQ(Changed()[0]["policy"], "round-robin") << name;
  }
}

TEST_F(GpuControlTest, ItHoldsForThoseWhoWaitAlready) {
  Join(1, 11);
  Join(2, 12);
  Order("gpu0", "fcfs");
  Say(1, wire::Reserve{1, MiB(60).count});
  Say(1, wire::Ready{MiB(60).count});
  const uint64_t epoch = Heard<wire::Grant>(1).epoch;
  Say(1, wire::Running{epoch, 0});
  Want(2, MiB(60));
  now_ = now_ + Seconds(1000);
  said_ = service_.OnTick(now_);
  EXPECT_TRUE(Silent<wire::Revoke>(1));
  Order("gpu0", "round-robin");
  EXPECT_EQ(Heard<wire::Revoke>(1).epoch, epoch);
}

TEST_F(GpuControlTest, OnlyRootAndTheDaemonsOwnUserMay) {
  Order("gpu0", "fcfs", 1234);
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kNotYours);
  EXPECT_EQ(Policy(), "interactive");
}

TEST_F(GpuControlTest, WhatThereIsNotIsRefusedWithWhatThereIs) {
  Order("gpu7", "fcfs");
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kUnknownTarget);
  EXPECT_NE(Heard<wire::Refused>(kPerson).reason.find("gpu0"), std::string::npos);
  Order("gpu0", "fastest\n");
  EXPECT_EQ(Refusal(kPerson), wire::RefusalCode::kUnknownTarget);
  EXPECT_NE(Heard<wire::Refused>(kPerson).reason.find("interactive"), std::string::npos);
  EXPECT_EQ(Policy(), "interactive");
}

}  // namespace
}  // namespace tandem::service
