#include "src/cli/containers/device_cgroup.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr CharDevice kFull = {1, 7};  // /dev/full
constexpr CharDevice kZero = {1, 5};  // /dev/zero

// ---- Finding the cgroups

const std::string kOwn(64, 'c');
const char* const kMountInfo =
    "30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
    "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "33 30 0:29 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "34 30 0:30 /inner /sys/fs/cgroup/part rw - cgroup cgroup rw,devices\n"
    "35 30 0:30 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n";

TEST(DeviceCgroupOfTest, FindsTheContainersOwn) {
  const DeviceCgroup cgroup =
      DeviceCgroupOf("4:cpu,cpuacct:/other\n2:devices:/pods/libpod-" + kOwn + "/sub\n0::/unified\n",
                     kMountInfo, kOwn);
  EXPECT_EQ(cgroup.version, 1);
  const std::string own = "/sys/fs/cgroup/devices/pods/libpod-" + kOwn;
  EXPECT_EQ(cgroup.folders, (std::vector<std::string>{own, own + "/sub"}));
}

TEST(DeviceCgroupOfTest, TakesVersion2WhereTheFirstHasNoSuchController) {
  const DeviceCgroup cgroup =
      DeviceCgroupOf("0::/machine.slice/libpod-" + kOwn + ".scope\n",
                     "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", kOwn);
  EXPECT_EQ(cgroup.version, 2);
  EXPECT_EQ(cgroup.folders,
            (std::vector<std::string>{"/sys/fs/cgroup/machine.slice/libpod-" + kOwn + ".scope"}));
}

TEST(DeviceCgroupOfTest, LeavesTheCgroupsOfOthersAlone) {
  EXPECT_TRUE(DeviceCgroupOf("2:devices:/user.slice\n0::/\n", kMountInfo, kOwn).folders.empty());
  EXPECT_TRUE(DeviceCgroupOf("", kMountInfo, kOwn).folders.empty());
  EXPECT_TRUE(DeviceCgroupOf("2:devices:/" + kOwn + "\n", "", kOwn).folders.empty());
  EXPECT_TRUE(
      DeviceCgroupOf("garbage\n2:devices\n::\n", "garbage - \n - \n", kOwn).folders.empty());
  EXPECT_TRUE(DeviceCgroupOf("2:devices:/user.slice\n", kMountInfo, "").folders.empty());
}

// ---- Allowing

int Bpf(bpf_cmd command, bpf_attr* attributes) {
  return static_cast<int>(syscall(SYS_bpf, command, attributes, sizeof(bpf_attr)));
}

// A program that refuses all devices, as the deepest part of a runtime's does.
UniqueFd LoadRefusal() {
  const bpf_insn instructions[] = {{BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0},
                                   {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  attributes.insn_cnt = 2;
  attributes.insns = reinterpret_cast<uintptr_t>(instructions);
  attributes.license = reinterpret_cast<uintptr_t>("GPL");
  return UniqueFd(Bpf(BPF_PROG_LOAD, &attributes));
}

bool Refuse(const std::string& folder, uint32_t flags) {
  const UniqueFd program = LoadRefusal();
  const UniqueFd cgroup(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  bpf_attr attributes{};
  attributes.target_fd = static_cast<uint32_t>(cgroup.get());
  attributes.attach_bpf_fd = static_cast<uint32_t>(program.get());
  attributes.attach_type = BPF_CGROUP_DEVICE;
  attributes.attach_flags = flags;
  return Bpf(BPF_PROG_ATTACH, &attributes) == 0;
}

// Which of the two devices a process of the cgroup may open, in letters.
std::string OpenedIn(const std::string& folder) {
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream(folder + "/cgroup.procs") << getpid();
    const int full = open("/dev/full", O_RDWR | O_CLOEXEC);
    const int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    _exit((full >= 0 ? 1 : 0) + (zero >= 0 ? 2 : 0));
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status)) return "?";
  return std::string((WEXITSTATUS(status) & 1) != 0 ? "f" : "") +
         ((WEXITSTATUS(status) & 2) != 0 ? "z" : "");
}

// A cgroup within one, below a mount of its own.
class DeviceGrantTest : public testing::Test {
 protected:
  void Prepare(const char* type, const char* options) {
    ASSERT_NE(mkdtemp(mount_.data()), nullptr);
    mounted_ = mount("none", mount_.c_str(), type, 0, options) == 0;
    if (!mounted_) GTEST_SKIP() << "needs root, and a kernel that mounts " << type;
    outer_ = mount_ + "/tandem-test-" + std::to_string(getpid());
    inner_ = outer_ + "/inner";
    std::error_code error;
    if (!fs::create_directory(outer_, error)) {
      GTEST_SKIP() << "no cgroup can be made here: " << error.message();
    }
  }

  void TearDown() override {
    for (const std::string& folder : {inner_, outer_}) {
      if (!folder.empty()) rmdir(folder.c_str());
    }
    if (mounted_) umount(mount_.c_str());
    rmdir(mount_.c_str());
  }

  // Before there is a cgroup within: version 1 then changes no list.
  void DenyAll() { std::ofstream(outer_ + "/devices.deny") << "a"; }
  void MakeInner() { ASSERT_TRUE(fs::create_directory(inner_)); }

  DeviceCgroup Cgroup(int version) const { return {version, {outer_, inner_}}; }

  // `Cgroup(version)` opens no device now.
  void ExpectAllowedUntilTakenBack(int version) {
    ASSERT_EQ(OpenedIn(inner_), "");
    {
      const Result<DeviceGrant> grant = DeviceGrant::Allow(Cgroup(version), {kFull});
      ASSERT_TRUE(grant.ok()) << grant.error().message;
      EXPECT_EQ(OpenedIn(inner_), "f");
    }
    EXPECT_EQ(OpenedIn(inner_), "");
    for (const CharDevice device : {kFull, kZero}) {
      Result<DeviceGrant> grant = DeviceGrant::Allow(Cgroup(version), {device});
      ASSERT_TRUE(grant.ok()) << grant.error().message;
      grant.value().Keep();
    }
    EXPECT_EQ(OpenedIn(inner_), "fz");
  }

  std::string mount_ = "/tmp/tandem-cgroup-XXXXXX";
  std::string outer_, inner_;
  bool mounted_ = false;
};

TEST_F(DeviceGrantTest, AddsToTheListOfVersion1) {
  Prepare("cgroup", "devices");
  if (IsSkipped() || HasFatalFailure()) return;
  DenyAll();
  MakeInner();
  ExpectAllowedUntilTakenBack(1);
}

TEST_F(DeviceGrantTest, TakesNothingThatWasAllowedBefore) {
  Prepare("cgroup", "devices");
  if (IsSkipped() || HasFatalFailure()) return;
  { ASSERT_TRUE(DeviceGrant::Allow({1, {outer_}}, {kFull}).ok()); }
  EXPECT_EQ(OpenedIn(outer_), "fz");
  DenyAll();
  std::ofstream(outer_ + "/devices.allow") << "c 1:7 rwm";
  MakeInner();
  { ASSERT_TRUE(DeviceGrant::Allow(Cgroup(1), {kFull}).ok()); }
  EXPECT_EQ(OpenedIn(inner_), "f");
}

TEST_F(DeviceGrantTest, ChangesTheProgramsOfVersion2) {
  Prepare("cgroup2", nullptr);
  if (IsSkipped() || HasFatalFailure()) return;
  if (!LoadRefusal()) GTEST_SKIP() << "the kernel takes no programs for devices";
  MakeInner();
  ASSERT_TRUE(Refuse(outer_, BPF_F_ALLOW_MULTI) && Refuse(inner_, BPF_F_ALLOW_MULTI) &&
              Refuse(inner_, BPF_F_ALLOW_MULTI));
  ExpectAllowedUntilTakenBack(2);
}

TEST_F(DeviceGrantTest, ChangesTheOneProgramOfACgroup) {
  Prepare("cgroup2", nullptr);
  if (IsSkipped() || HasFatalFailure()) return;
  if (!LoadRefusal()) GTEST_SKIP() << "the kernel takes no programs for devices";
  MakeInner();
  ASSERT_TRUE(Refuse(outer_, 0));
  ExpectAllowedUntilTakenBack(2);
}

TEST_F(DeviceGrantTest, AFailureLeavesNothing) {
  Prepare("cgroup", "devices");
  if (IsSkipped() || HasFatalFailure()) return;
  DenyAll();
  MakeInner();
  const Result<DeviceGrant> grant =
      DeviceGrant::Allow({1, {outer_, inner_, outer_ + "/absent"}}, {kFull});
  ASSERT_FALSE(grant.ok());
  EXPECT_NE(grant.error().message.find("absent/devices.allow: No such file"), std::string::npos)
      << grant.error().message;
  EXPECT_EQ(OpenedIn(inner_), "");
}

}  // namespace
}  // namespace tandem::cli
