#include "integrations/common/command.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tandem::integrations {
namespace {

Command Shell() {
  return {"/bin/sh", {"NAME=value"}};
}

TEST(CommandTest, ItsOutputComesBack) {
  EXPECT_EQ(*Output(Shell(), {"-c", "echo $NAME; echo two"}), "value\ntwo\n");
}

TEST(CommandTest, MoreThanAPipeHoldsComesBack) {
  const Result<std::string> text = Output(Shell(), {"-c", "head -c 300000 /dev/zero | tr '\\0' x"});
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, std::string(300000, 'x'));
}

TEST(CommandTest, AFailureHasItsLastWords) {
  const Result<std::string> failed =
      Output(Shell(), {"-c", "echo out; echo noise >&2; echo 'tandem: no daemon' >&2; exit 3"});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kRefused);
  EXPECT_EQ(failed.error().message, "no daemon");
  EXPECT_EQ(Output(Shell(), {"-c", "kill -9 $$"}).error().message, "it failed without a word");
}

TEST(CommandTest, WhatIsNotThereIsSaid) {
  const Result<std::string> failed = Output({"/no/such/tandem", {}}, {});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(failed.error().message, "/no/such/tandem: No such file or directory");
}

TEST(CommandTest, WhatIsStartedAmongTasksHasTheirGroupAndNoFiles) {
  const std::string seen = testing::TempDir() + "tandem_among_" + std::to_string(getpid());
  const int open_here = dup(0);
  ASSERT_TRUE(StartAmong(Shell(),
                         {"-c", "ps -o pgid= -p $$ >" + seen + "; ls /proc/$$/fd >>" + seen},
                         getpid(), getuid(), getgid())
                  .ok());
  int status = 0;
  while (wait(&status) < 0) {
  }
  close(open_here);
  EXPECT_EQ(status, 0);
  std::ifstream file(seen);
  int group = 0;
  file >> group;
  EXPECT_EQ(group, getpgid(0));
  for (int fd = 0; file >> fd;) EXPECT_LE(fd, 10);  // the shell's own copy of what it redirects
  std::filesystem::remove(seen);
}

}  // namespace
}  // namespace tandem::integrations
