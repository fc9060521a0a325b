#include "src/cli/containers/container.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

class ContainerTest : public testing::Test {
 protected:
  ContainerTest() : bundle_(testing::TempDir() + "bundle-" + std::to_string(getpid())) {
    fs::create_directories(bundle_ / "rootfs/lib");
  }
  ~ContainerTest() override { fs::remove_all(bundle_); }

  Result<Container> Read(const std::string& config) {
    std::ofstream(bundle_ / "config.json") << config;
    return ReadContainer(R"({"id": "0123456789abcdef", "pid": 0, "bundle": ")" + bundle_.string() +
                         "\"}");
  }

  fs::path bundle_;
};

TEST_F(ContainerTest, ItsUserIsTheHosts) {
  const char* const config = R"({
    "hostname": "train", "root": {"path": "rootfs"}, "process": {"user": {"uid": 5}},
    "linux": {"uidMappings": [{"containerID": 0, "hostID": 1000, "size": 1},
                              {"containerID": 1, "hostID": 100000, "size": 65536}]}})";
  const Result<Container> container = Read(config);
  ASSERT_TRUE(container.ok()) << container.error().message;
  EXPECT_EQ(container->id, "0123456789abcdef");
  EXPECT_EQ(container->name, "train");
  EXPECT_EQ(container->uid, 100004u);
  EXPECT_EQ(container->root, bundle_ / "rootfs");
  EXPECT_EQ(container->cgroup, "");
}

TEST_F(ContainerTest, WithoutAConfigurationItHasItsId) {
  const Result<Container> container = Read("nonsense");
  ASSERT_TRUE(container.ok());
  EXPECT_EQ(container->name, "0123456789ab");
  EXPECT_FALSE(ReadContainer("{}").ok());
  EXPECT_FALSE(ReadContainer("").ok());
}

TEST_F(ContainerTest, MuslIsSaid) {
  const Result<Container> container = Read(R"({"root": {"path": "rootfs"}})");
  EXPECT_TRUE(CheckLibc(*container, "").ok());
  std::ofstream(bundle_ / "rootfs/lib/ld-musl-x86_64.so.1") << "";
  const Status checked = CheckLibc(*container, "");
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, testing::HasSubstr("musl"));
}

TEST_F(ContainerTest, AnOlderGlibcIsSaid) {
  const Result<Container> container = Read(R"({"root": {"path": "rootfs"}})");
  const std::string shim = bundle_ / "libtandem.so";
  std::ofstream(shim) << "x GLIBC_2.4 GLIBC_2.35 GLIBC_2.9";
  EXPECT_EQ(HighestGlibc(shim), 35);
  fs::create_directories(bundle_ / "rootfs/usr/lib64");
  std::ofstream(bundle_ / "rootfs/usr/lib64/libc.so.6") << "GLIBC_2.2.5 GLIBC_2.34";
  const Status checked = CheckLibc(*container, shim);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, testing::HasSubstr("has glibc 2.34"));
  std::ofstream(bundle_ / "rootfs/usr/lib64/libc.so.6") << "GLIBC_2.2.5 GLIBC_2.35";
  EXPECT_TRUE(CheckLibc(*container, shim).ok());
  EXPECT_EQ(HighestGlibc("/no/such/file"), 0);
}

TEST(OwnCgroupTest, ItIsTheFirstThatIsNotEverybodys) {
  EXPECT_EQ(OwnCgroup("0::/machine/libpod-1\n"), "/machine/libpod-1");
  EXPECT_EQ(OwnCgroup("9:name=systemd:/\n4:memory:/a:b\n0::/\n"), "/a:b");
  EXPECT_EQ(OwnCgroup("0::/\n"), "");
  EXPECT_EQ(OwnCgroup(""), "");
}

}  // namespace
}  // namespace tandem::cli
