#include "src/base/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace tandem {
namespace {

namespace fs = std::filesystem;

// A machine's /proc and /sys, as files of our own.
class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() {
    std::string path = (fs::temp_directory_path() / "tandem-host-XXXXXX").string();
    root_ = mkdtemp(path.data());
  }
  ~HostMemoryTest() override { fs::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    const fs::path file = root_ + name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  Bytes Available() const { return AvailableHostMemory(root_); }

  std::string root_;
};

TEST_F(HostMemoryTest, WithoutControlGroupsItIsWhatTheKernelSays) {
  EXPECT_EQ(Available(), Bytes(std::numeric_limits<uint64_t>::max()));
  Write("/proc/meminfo", "MemTotal:  8192 kB\nMemFree: 1 kB\nMemAvailable:    4096 kB\n");
  EXPECT_EQ(Available(), MiB(4));
}

TEST_F(HostMemoryTest, TheTotalIsRamAndSwap) {
  EXPECT_EQ(TotalHostMemory(root_), Bytes(std::numeric_limits<uint64_t>::max()));
  Write("/proc/meminfo", "MemTotal:  8192 kB\nMemAvailable: 1 kB\nSwapTotal:    4096 kB\n");
  EXPECT_EQ(TotalHostMemory(root_), MiB(12));
}

TEST_F(HostMemoryTest, AFileSaysItWhileItIsThere) {
  Write("/proc/meminfo", "MemAvailable:    4096 kB\n");
  const std::string file = root_ + "/available";
  EXPECT_EQ(AvailableHostMemory(root_, file), MiB(4));
  Write("/available", "0\n");
  EXPECT_EQ(AvailableHostMemory(root_, file), Bytes());
  Write("/available", "12345");
  EXPECT_EQ(AvailableHostMemory(root_, file), Bytes(12345));
  fs::remove(file);
  EXPECT_EQ(AvailableHostMemory(root_, file), MiB(4));
}

TEST_F(HostMemoryTest, TheTightestOfAllGroupsAroundItCounts) {
  Write("/proc/meminfo", "MemAvailable: 1048576 kB\n");
  Write("/proc/self/cgroup", "0::/user.slice/job\n");
  Write("/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  Write("/sys/fs/cgroup/user.slice/job/memory.current", "1048576\n");
  EXPECT_EQ(Available(), GiB(1));
  Write("/sys/fs/cgroup/user.slice/memory.max", "104857600\n");
  Write("/sys/fs/cgroup/user.slice/memory.current", "62914560\n");
  EXPECT_EQ(Available(), MiB(40));
  Write("/sys/fs/cgroup/user.slice/memory.stat", "anon 52428800\ninactive_file 10485760\n");
  EXPECT_EQ(Available(), MiB(50));
  Write("/sys/fs/cgroup/user.slice/job/memory.max", "1048576\n");
  EXPECT_EQ(Available(), Bytes());
}

TEST_F(HostMemoryTest, TheLowestLimitOfTheGroupsIsTheirs) {
  EXPECT_EQ(ControlGroupLimit(root_), std::nullopt);
  Write("/proc/self/cgroup", "5:memory:/old\n0::/user.slice/job\n");
  Write("/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  EXPECT_EQ(ControlGroupLimit(root_), std::nullopt);
  Write("/sys/fs/cgroup/user.slice/memory.max", "104857600\n");
  EXPECT_EQ(ControlGroupLimit(root_), MiB(100));
  Write("/sys/fs/cgroup/memory/old/memory.limit_in_bytes", "8388608\n");
  EXPECT_EQ(ControlGroupLimit(root_), MiB(8));
}

TEST_F(HostMemoryTest, GroupsOfTheFirstVersionCount) {
  Write("/proc/meminfo", "MemAvailable: 1048576 kB\n");
  Write("/proc/self/cgroup", "9:cpu,memory:/job\n3:cpuset:/\n0::/\n");
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4096\n");
  EXPECT_EQ(Available(), GiB(1));
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "8388608\n");
  Write("/sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 4096\n");
  EXPECT_EQ(Available(), MiB(8));
}

// As in a container: the group's name is another's view, and its files are at the top.
TEST_F(HostMemoryTest, AGroupThatCannotBeSeenLeavesTheOneAtTheTop) {
  Write("/proc/meminfo", "MemAvailable: 1048576 kB\n");
  Write("/proc/self/cgroup", "0::/../elsewhere\n");
  Write("/sys/fs/cgroup/memory.max", "2097152\n");
  Write("/sys/fs/cgroup/memory.current", "1048576\n");
  EXPECT_EQ(Available(), MiB(1));
}

}  // namespace
}  // namespace tandem
