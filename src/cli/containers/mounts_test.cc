#include "src/cli/containers/mounts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "src/base/unique_fd.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

// A process with a mount namespace of its own, in which a file system in memory lies at `folder`.
class MountsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    const UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    process_ = fork();
    if (process_ == 0) {
      const bool made = unshare(CLONE_NEWNS) == 0 &&
                        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        mount("none", folder_.c_str(), "tmpfs", 0, nullptr) == 0;
      const char answer = made ? 'y' : 'n';
      if (write(writer.get(), &answer, 1) != 1) _exit(1);
      for (;;) pause();
    }
    writer.Reset();
    char answer = 'n';
    ASSERT_EQ(read(reader.get(), &answer, 1), 1);
    if (answer != 'y') GTEST_SKIP() << "needs root";
    inside_ = "/proc/" + std::to_string(process_) + "/root" + folder_;
  }

  void TearDown() override {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    rmdir(folder_.c_str());
  }

  std::string folder_ = "/tmp/tandem-mounts-XXXXXX", inside_;
  pid_t process_ = -1;
};

TEST_F(MountsTest, ADeviceNodeWorksThere) {
  const Status done = MountIn(process_, {{"/dev/full", folder_ + "/dev/full", true}});
  ASSERT_TRUE(done.ok()) << done.error().message;
  const UniqueFd device(open((inside_ + "/dev/full").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(static_cast<bool>(device)) << errno;
  EXPECT_EQ(write(device.get(), "x", 1), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_FALSE(fs::exists(folder_ + "/dev"));  // outside
}

TEST_F(MountsTest, AFailureLeavesNone) {
  const Status done = MountIn(process_, {{"/dev/full", folder_ + "/full", true},
                                         {"/dev/full", folder_ + "/full/below", true}});
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message.find("cannot make " + folder_ + "/full/below"), std::string::npos)
      << done.error().message;
  EXPECT_TRUE(fs::is_regular_file(inside_ + "/full"));
}

}  // namespace
}  // namespace tandem::cli
