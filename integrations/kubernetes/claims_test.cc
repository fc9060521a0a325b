#include "integrations/kubernetes/claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/json.h"

namespace tandem::kubernetes {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json ClaimOf(const std::vector<json>& results) {
  return {{"status", {{"allocation", {{"devices", {{"results", results}}}}}}}};
}

json ResultOf(const std::string& device, const std::string& memory, const std::string& share = "") {
  json result = {{"request", "r"}, {"driver", "tandem.dev"}, {"pool", "n"}, {"device", device}};
  if (!memory.empty()) result["consumedCapacity"]["memory"] = memory;
  if (!share.empty()) result["consumedCapacity"]["share"] = share;
  return result;
}

TEST(KubernetesClaimsTest, QuantitiesAreThoseOfKubernetes) {
  EXPECT_EQ(*BytesOfQuantity("20Gi"), GiB(20));
  EXPECT_EQ(*BytesOfQuantity("1.5Gi"), MiB(1536));
  EXPECT_EQ(*BytesOfQuantity("2G"), Bytes(2'000'000'000));
  EXPECT_EQ(*BytesOfQuantity("21474836480"), GiB(20));
  EXPECT_EQ(*BytesOfQuantity("512Ki"), KiB(512));
  for (const char* const text :
       {"", "Gi", "-1Gi", "20GB", "20 Gi", "x", "1e99", "nan", "inf", "99999999Ti"}) {
    EXPECT_FALSE(BytesOfQuantity(text).ok()) << text;
  }
}

TEST(KubernetesClaimsTest, ASliceHasTheMemoryOfEachGpu) {
  const json slice = SliceOf("n1", {{0, {MiB(54), MiB(100)}}, {2, {MiB(5), MiB(10)}}}, MiB(10), 7);
  EXPECT_EQ(slice["metadata"]["name"], "tandem-n1");
  EXPECT_EQ(slice["spec"]["driver"], "tandem.dev");
  EXPECT_EQ(slice["spec"]["nodeName"], "n1");
  EXPECT_EQ(slice["spec"]["pool"]["generation"], 7);
  ASSERT_EQ(slice["spec"]["devices"].size(), 1u);  // 5 MiB are less than a unit
  const json& gpu = slice["spec"]["devices"][0];
  EXPECT_EQ(gpu["name"], "gpu0");
  EXPECT_EQ(gpu["allowMultipleAllocations"], true);
  EXPECT_EQ(gpu["capacity"]["memory"]["value"], "100Mi");
  EXPECT_EQ(
      gpu["capacity"]["memory"]["requestPolicy"],
      ParseJson(
          R"({"default": "50Mi", "validRange": {"min": "10Mi", "max": "50Mi", "step": "10Mi"}})"));
  EXPECT_EQ(gpu["capacity"]["share"], ParseJson(R"({"value": "100", "requestPolicy":
                {"default": "0", "validRange": {"min": "0", "max": "100", "step": "1"}}})"));
}

TEST(KubernetesClaimsTest, AClaimHasACdiDeviceOfItsMemory) {
  const Result<std::vector<Allocated>> devices =
      DevicesOf(ClaimOf({ResultOf("gpu0", "20Gi"), ResultOf("gpu3", "")}), GiB(1));
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[0].cdi, "0-20g");
  EXPECT_EQ((*devices)[0].request, "r");
  EXPECT_EQ((*devices)[0].pool, "n");
  EXPECT_EQ((*devices)[1].cdi, "3");
  EXPECT_EQ((*DevicesOf(ClaimOf({ResultOf("gpu0", "25M")}), MiB(10)))[0].cdi, "0-30m");
}

TEST(KubernetesClaimsTest, AClaimWithAShareOfTheTimeHasADeviceOfItsOwn) {
  const auto device = [](const std::string& memory, const std::string& share) {
    return DevicesOf(ClaimOf({ResultOf("gpu1", memory, share)}), GiB(1))->front();
  };
  EXPECT_EQ(device("20Gi", "30").cdi, "1-20g-share30");
  EXPECT_EQ(device("20Gi", "30").share, 30);
  EXPECT_EQ(device("20Gi", "30").memory, GiB(20));
  EXPECT_EQ(device("", "100").cdi, "1-share100");
  EXPECT_EQ(device("", "100").memory, Bytes());
  EXPECT_EQ(device("20Gi", "0").cdi, "1-20g");
  for (const char* const share : {"101", "1k", "-1", "x"}) {
    const auto devices = DevicesOf(ClaimOf({ResultOf("gpu1", "20Gi", share)}), GiB(1));
    EXPECT_EQ(devices.error().message, "tandem: '" + std::string(share) +
                                           "' is no share of a GPU's time: 0 to 100 per cent");
  }
}

TEST(KubernetesClaimsTest, DevicesOfOtherDriversAreNotOurs) {
  json other = ResultOf("nic0", "");
  other["driver"] = "example.com";
  EXPECT_EQ(DevicesOf(ClaimOf({other, ResultOf("gpu1", "1Gi")}), GiB(1))->size(), 1u);
  EXPECT_THAT(DevicesOf(ClaimOf({other}), GiB(1)).error().message, HasSubstr("has no device"));
}

TEST(KubernetesClaimsTest, StrangeClaimsAreErrors) {
  for (const char* const text : {"null", "{}", "[]", R"({"status": {"allocation": null}})"}) {
    EXPECT_FALSE(DevicesOf(ParseJson(text), GiB(1)).ok()) << text;
  }
  for (const char* const device : {"gpu", "gpux", "0", "gpu-1", "gpu1x"}) {
    EXPECT_THAT(DevicesOf(ClaimOf({ResultOf(device, "1Gi")}), GiB(1)).error().message,
                HasSubstr("there is no device"));
  }
  EXPECT_FALSE(DevicesOf(ClaimOf({ResultOf("gpu0", "x")}), GiB(1)).ok());
  EXPECT_FALSE(DevicesOf(ClaimOf({ResultOf("gpu0", "0")}), GiB(1)).ok());
  EXPECT_FALSE(DevicesOf(ClaimOf({json(3)}), GiB(1)).ok());
  json strange = ResultOf("gpu0", "");
  strange["consumedCapacity"] = ParseJson(R"({"memory": 3, "share": [30]})");
  EXPECT_EQ(DevicesOf(ClaimOf({strange}), GiB(1))->front().cdi, "0");
}

}  // namespace
}  // namespace tandem::kubernetes
