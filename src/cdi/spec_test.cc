#include "src/cdi/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/json.h"

namespace tandem::cdi {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

CdiHost Host() {
  CdiHost host;
  host.tandem = "/usr/bin/tandem";
  host.shim = "/usr/lib/tandem/libtandem.so";
  host.preload = "/usr/lib/tandem/ld.so.preload";
  host.runtime_dir = "/run/tandem";
  return host;
}

std::vector<std::string> Names(const nlohmann::json& spec) {
  std::vector<std::string> names;
  for (const auto& device : spec["devices"]) names.push_back(device["name"]);
  return names;
}

TEST(CdiSpecTest, EachGpuAndEachSizeIsADevice) {
  const nlohmann::json spec = CdiSpec(kCdiKind, Host(), {{0, GiB(2)}, {1, MiB(1500)}}, {});
  EXPECT_EQ(spec["cdiVersion"], "0.5.0");
  EXPECT_EQ(spec["kind"], "tandem.dev/gpu");
  EXPECT_THAT(Names(spec),
              ElementsAre("0", "0-1g", "0-2g", "1", "1-1g", "any", "any-1g", "any-2g", "none"));
}

TEST(CdiSpecTest, SizesCanBeChosen) {
  const nlohmann::json spec =
      CdiSpec("x.dev/gpu", Host(), {{0, GiB(4)}}, {MiB(1536), GiB(3), GiB(5)});
  EXPECT_THAT(Names(spec),
              ElementsAre("0", "0-1536m", "0-3g", "any", "any-1536m", "any-3g", "none"));
  const nlohmann::json& hooks = spec["devices"][1]["containerEdits"]["hooks"];
  EXPECT_EQ(hooks[0]["hookName"], "createRuntime");
  EXPECT_THAT(hooks[0]["args"].get<std::vector<std::string>>(),
              ElementsAre("tandem", "cdi", "hook", "--gpu", "0", "--memory", "1610612736B"));
  EXPECT_EQ(hooks[1]["hookName"], "poststop");
}

TEST(CdiSpecTest, OneDeviceHasTermsOfItsOwn) {
  const nlohmann::json spec =
      CdiSpecOf(kCdiKind, Host(), "small", {"--gpu", "any", "--compute-share", "30%"});
  EXPECT_THAT(Names(spec), ElementsAre("small"));
  const nlohmann::json& hooks = spec["devices"][0]["containerEdits"]["hooks"];
  EXPECT_THAT(hooks[0]["args"].get<std::vector<std::string>>(),
              ElementsAre("tandem", "cdi", "hook", "--gpu", "any", "--compute-share", "30%"));
  EXPECT_EQ(spec["containerEdits"], CdiSpec(kCdiKind, Host(), {}, {})["containerEdits"]);
}

TEST(CdiSpecTest, TheSoftwareGpuIsBroughtAlong) {
  CdiHost host = Host();
  host.software = true;
  host.soft_dir = "/usr/lib/tandem/soft";
  host.soft_state = "/var/soft";
  host.environment = {"TANDEM_SOFT_VRAM=1G", "TANDEM_SOFT_DIR=/var/soft", "HOME=/root"};
  const nlohmann::json edits = CdiSpec(kCdiKind, host, {}, {})["containerEdits"];
  const auto environment = edits["env"].get<std::vector<std::string>>();
  EXPECT_THAT(environment, Contains("TANDEM_SOFT_VRAM=1G"));
  EXPECT_THAT(environment, Contains("LD_LIBRARY_PATH=/opt/tandem/soft"));
  EXPECT_THAT(environment, Not(Contains("HOME=/root")));
  EXPECT_THAT(JsonText(edits["mounts"]), HasSubstr("/var/soft"));
  const auto cuda = CdiSpec(kCdiKind, Host(), {}, {})["containerEdits"];
  EXPECT_THAT(JsonText(cuda["env"]), Not(HasSubstr("LD_LIBRARY_PATH")));
  EXPECT_THAT(cuda["env"].get<std::vector<std::string>>(), Contains("TANDEM_GPU=cuda"));
}

}  // namespace
}  // namespace tandem::cdi
