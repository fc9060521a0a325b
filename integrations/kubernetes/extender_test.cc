#include "integrations/kubernetes/extender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "src/base/json.h"

namespace tandem::kubernetes {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const Extender::Time kNow{};

json Pod(const std::vector<int>& units, const std::string& uid = "u") {
  json pod = {{"metadata", {{"name", "p"}, {"uid", uid}}},
              {"spec", {{"containers", json::array()}}}};
  for (const int each : units) {
    json container = {{"name", "c"}};
    if (each != 0) container["resources"]["limits"][kMemoryResource] = std::to_string(each);
    pod["spec"]["containers"].push_back(container);
  }
  return pod;
}

json Node(const std::string& name, const std::string& room) {
  json node = {{"metadata", {{"name", name}, {"labels", json::object()}}}};
  if (!room.empty()) node["metadata"]["labels"][kRoomLabel] = room;
  return node;
}

json Arguments(const json& pod, const std::vector<json>& nodes) {
  return {{"pod", pod}, {"nodes", {{"items", nodes}}}, {"nodenames", nullptr}};
}

std::vector<std::string> Passed(const Result<json>& answer) {
  std::vector<std::string> names;
  if (!answer.ok()) return {answer.error().message};
  for (const json& node : (*answer)["nodes"]["items"]) names.push_back(node["metadata"]["name"]);
  return names;
}

class ExtenderTest : public testing::Test {
 protected:
  std::vector<std::string> bound_;
  Status bind_answer_;
  Extender extender_{Placement::kBestFit,
                     [this](const Binding& binding) {
                       bound_.push_back(binding.space + "/" + binding.pod + " on " + binding.node);
                       return bind_answer_;
                     },
                     std::chrono::milliseconds(0)};
};

TEST_F(ExtenderTest, NodesWithAGpuThatHasRoomPass) {
  const Result<json> answer = extender_.Filter(
      Arguments(Pod({7}), {Node("split", "4-4"), Node("whole", "8"), Node("bare", "")}), kNow);
  EXPECT_THAT(Passed(answer), testing::ElementsAre("whole"));
  EXPECT_EQ((*answer)["failedNodes"]["split"],
            "tandem: no GPU has 7 of tandem.dev/gpu-memory free");
  EXPECT_THAT((*answer)["failedNodes"]["bare"].get<std::string>(),
              HasSubstr("is tandem-device-plugin running there"));
}

TEST_F(ExtenderTest, NamesMayBeThoseOfGo) {
  const json arguments = {{"Pod", Pod({7})}, {"Nodes", {{"items", {Node("n", "8")}}}}};
  EXPECT_THAT(Passed(extender_.Filter(arguments, kNow)), testing::ElementsAre("n"));
}

TEST_F(ExtenderTest, EachContainerAndEachInitContainerNeedsRoom) {
  json pod = Pod({3, 0, 3});
  EXPECT_THAT(Passed(extender_.Filter(Arguments(pod, {Node("a", "5"), Node("b", "3-3")}), kNow)),
              testing::ElementsAre("b"));
  pod["spec"]["initContainers"] = Pod({4})["spec"]["containers"];
  EXPECT_THAT(Passed(extender_.Filter(Arguments(pod, {Node("b", "3-3"), Node("c", "6")}), kNow)),
              testing::ElementsAre("c"));
}

TEST_F(ExtenderTest, TheBestFitHasTheBestScore) {
  const Result<json> scores = extender_.Prioritize(
      Arguments(Pod({3}), {Node("loose", "9"), Node("tight", "9-3"), Node("none", "1")}), kNow);
  ASSERT_TRUE(scores.ok());
  EXPECT_EQ(*scores,
            ParseJson(R"([{"host": "loose", "score": 0}, {"host": "tight", "score": 10}])"));
}

TEST_F(ExtenderTest, APodThatIsBoundHasItsRoomAtOnce) {
  const std::vector<json> nodes = {Node("n", "8")};
  EXPECT_EQ(Passed(extender_.Filter(Arguments(Pod({5}, "1"), nodes), kNow)).size(), 1u);
  const Result<json> bound = extender_.Bind(
      {{"PodName", "p"}, {"PodNamespace", "s"}, {"PodUID", "1"}, {"Node", "n"}}, kNow);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ((*bound)["error"], "");
  EXPECT_THAT(bound_, testing::ElementsAre("s/p on n"));
  EXPECT_TRUE(Passed(extender_.Filter(Arguments(Pod({5}, "2"), nodes), kNow)).empty());
  EXPECT_EQ(Passed(extender_.Filter(Arguments(Pod({3}, "3"), nodes), kNow)).size(), 1u);
}

TEST_F(ExtenderTest, WhatTheApiServerRefusesIsNotOutstanding) {
  const std::vector<json> nodes = {Node("n", "8")};
  bind_answer_ = Error{ErrorCode::kRefused, "pod p is gone"};
  EXPECT_EQ(Passed(extender_.Filter(Arguments(Pod({5}, "1"), nodes), kNow)).size(), 1u);
  const Result<json> bound =
      extender_.Bind({{"podName", "p"}, {"podUID", "1"}, {"node", "n"}}, kNow);
  EXPECT_EQ((*bound)["error"], "tandem: pod p is gone");
  EXPECT_EQ(Passed(extender_.Filter(Arguments(Pod({5}, "2"), nodes), kNow)).size(), 1u);
}

TEST_F(ExtenderTest, TheNextPodWaitsUntilTheLastOneIsBound) {
  Extender patient(
      Placement::kBestFit, [](const Binding&) { return Status(); }, std::chrono::hours(1));
  const std::vector<json> nodes = {Node("n", "8")};
  EXPECT_EQ(Passed(patient.Filter(Arguments(Pod({5}, "1"), nodes), kNow)).size(), 1u);
  std::thread next(
      [&] { EXPECT_TRUE(Passed(patient.Filter(Arguments(Pod({5}, "2"), nodes), kNow)).empty()); });
  EXPECT_TRUE(patient.Bind({{"podName", "p"}, {"podUID", "1"}, {"node", "n"}}, kNow).ok());
  next.join();
}

TEST_F(ExtenderTest, OtherRequestsAreErrors) {
  for (const char* const text : {"null", "[]", "{}", R"({"pod": 1})", R"({"pod": {}, "nodes": {}})",
                                 R"({"pod": {}, "nodenames": ["n"]})"}) {
    EXPECT_FALSE(extender_.Filter(ParseJson(text), kNow).ok()) << text;
    EXPECT_FALSE(extender_.Prioritize(ParseJson(text), kNow).ok()) << text;
    EXPECT_FALSE(extender_.Bind(ParseJson(text), kNow).ok()) << text;
  }
}

TEST_F(ExtenderTest, StrangePodsAndNodesAreNoTrouble) {
  const json strange = ParseJson(
      R"({"pod": {"spec": {"containers": [1, {"resources": {"limits": {"tandem.dev/gpu-memory": "x"}}}]}},
          "nodes": {"items": [3, {"metadata": {"labels": {"tandem.dev/gpu-memory-free": "x"}}}]}})");
  const Result<json> answer = extender_.Filter(strange, kNow);
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE((*answer)["nodes"]["items"].empty());
}

}  // namespace
}  // namespace tandem::kubernetes
