#include "integrations/kubernetes/annotations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "integrations/kubernetes/extender.h"
#include "src/base/json.h"

namespace tandem::kubernetes {
namespace {

using nlohmann::json;
using testing::HasSubstr;

AnnotationRules Rules() {
  AnnotationRules rules;
  rules.gpu = GiB(80);
  return rules;
}

json Annotated(const json& annotations) {
  return {{"metadata", {{"annotations", annotations}}},
          {"spec", {{"containers", {{{"name", "a"}}, {{"name", "b"}}}}}}};
}

// The pod as Kubernetes makes it of the patch.
json Patched(const json& pod) {
  const Result<json> patch = PatchOf(pod, Rules());
  return patch.ok() ? pod.patch(*patch) : json(patch.error().message);
}

std::string UnitsOf(const json& pod, size_t container) {
  return pod["spec"]["containers"][container]["resources"]["limits"].value(kMemoryResource, "");
}

std::string Refusal(const json& annotations) {
  const Result<json> patch = PatchOf(Annotated(annotations), Rules());
  return patch.ok() ? "" : patch.error().message;
}

TEST(KubernetesAnnotationsTest, MemoryIsInMebibytesAndRoundedUp) {
  EXPECT_EQ(UnitsOf(Patched(Annotated({{"gpu-memory", "4096"}})), 0), "4");
  EXPECT_EQ(UnitsOf(Patched(Annotated({{"gpu-memory", "4097"}})), 0), "5");
  EXPECT_EQ(UnitsOf(Patched(Annotated({{"gpu-memory", "1"}})), 0), "1");
}

TEST(KubernetesAnnotationsTest, AFractionIsOfOneGpu) {
  EXPECT_EQ(UnitsOf(Patched(Annotated({{"gpu-fraction", "0.5"}})), 0), "40");
  EXPECT_EQ(UnitsOf(Patched(Annotated({{"gpu-fraction", "1"}})), 0), "80");
}

TEST(KubernetesAnnotationsTest, AnotherContainerMayHaveIt) {
  const json pod =
      Patched(Annotated({{"gpu-fraction", "0.5"}, {"gpu-fraction-container-name", "b"}}));
  EXPECT_EQ(UnitsOf(pod, 1), "40");
  EXPECT_FALSE(pod["spec"]["containers"][0].contains("resources"));
}

TEST(KubernetesAnnotationsTest, OtherLimitsAreKept) {
  json pod = Annotated({{"gpu-memory", "2048"}});
  pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2";
  EXPECT_EQ(Patched(pod)["spec"]["containers"][0]["resources"]["limits"]["cpu"], "2");
  EXPECT_EQ(UnitsOf(Patched(pod), 0), "2");
  pod = Annotated({{"gpu-memory", "2048"}});
  pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1";
  EXPECT_EQ(Patched(pod)["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
  EXPECT_EQ(UnitsOf(Patched(pod), 0), "2");
}

TEST(KubernetesAnnotationsTest, APodThatNamesKaisSchedulerGetsThisOne) {
  json pod = Annotated({{"gpu-memory", "2048"}});
  pod["spec"]["schedulerName"] = "kai-scheduler";
  EXPECT_EQ(Patched(pod)["spec"]["schedulerName"], "default-scheduler");
  pod["spec"]["schedulerName"] = "other";
  EXPECT_EQ(Patched(pod)["spec"]["schedulerName"], "other");
}

TEST(KubernetesAnnotationsTest, OtherPodsStayAsTheyAre) {
  json pod = Annotated({{"owner", "me"}});
  pod["spec"]["schedulerName"] = "kai-scheduler";
  EXPECT_EQ(Patched(pod), pod);
  pod = Annotated({{"gpu-memory", "2048"}});
  pod["spec"]["containers"][1]["resources"]["limits"][kMemoryResource] = "7";
  EXPECT_EQ(Patched(pod), pod);
  EXPECT_EQ(Patched(json::object()), json::object());
}

TEST(KubernetesAnnotationsTest, MistakesAreSaidInWords) {
  for (const char* const memory : {"4Gi", "-1", "0", "x", "nan", "1e30"}) {
    EXPECT_THAT(Refusal({{"gpu-memory", memory}}), HasSubstr("give MiB, such as")) << memory;
  }
  for (const char* const part : {"0", "1.5", "-1", "half", "nan"}) {
    EXPECT_THAT(Refusal({{"gpu-fraction", part}}), HasSubstr("give a part of a GPU")) << part;
  }
  EXPECT_THAT(Refusal({{"gpu-fraction", "0.5"}, {"gpu-memory", "1"}}), HasSubstr("give one of"));
  EXPECT_THAT(Refusal({{"gpu-fraction", "0.5"}, {"gpu-fraction-container-name", "c"}}),
              HasSubstr("no container has that name"));
  EXPECT_THAT(Refusal({{"gpu-fraction", "0.5"}, {"gpu-fraction-num-devices", "2"}}),
              HasSubstr("memory of one GPU"));
  EXPECT_THAT(PatchOf(Annotated({{"gpu-fraction", "0.5"}}), {}).error().message,
              HasSubstr("gpu-fraction is not set up here"));
}

TEST(KubernetesAnnotationsTest, TheAnswerIsThatOfAWebhook) {
  const json review = {
      {"request", {{"uid", "7"}, {"object", Annotated({{"gpu-memory", "1024"}})}}}};
  const Result<json> answer = AnswerTo(review, Rules());
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ((*answer)["kind"], "AdmissionReview");
  EXPECT_EQ((*answer)["response"]["uid"], "7");
  EXPECT_EQ((*answer)["response"]["allowed"], true);
  EXPECT_EQ((*answer)["response"]["patch"].size(), 1u);

  const json wrong = {{"request", {{"uid", "8"}, {"object", Annotated({{"gpu-memory", "x"}})}}}};
  EXPECT_EQ((*AnswerTo(wrong, Rules()))["response"]["allowed"], false);
  const json other = {{"request", {{"uid", "9"}, {"object", Annotated({})}}}};
  EXPECT_FALSE((*AnswerTo(other, Rules()))["response"].contains("patch"));
  for (const char* const text : {"null", "{}", "[]", R"({"request": 3})"}) {
    EXPECT_FALSE(AnswerTo(ParseJson(text), Rules()).ok()) << text;
  }
}

}  // namespace
}  // namespace tandem::kubernetes
