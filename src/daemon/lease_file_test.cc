#include "src/daemon/lease_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tandem::daemon {
namespace {

class LeaseFileTest : public ::testing::Test {
 protected:
  LeaseFileTest() {
    std::string pattern = ::testing::TempDir() + "/leasesXXXXXX";
    dir_ = mkdtemp(pattern.data());
    KeepLeases(dir_ + "/tandemd.sock", &config_);
  }
  ~LeaseFileTest() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
  service::ServiceConfig config_;
};

TEST_F(LeaseFileTest, TheNextDaemonFindsWhatWasKept) {
  EXPECT_EQ(config_.kept_leases, "");
  ASSERT_TRUE(config_.keep_leases("one\n").ok());
  ASSERT_TRUE(config_.keep_leases("one\ntwo\n").ok());
  service::ServiceConfig next;
  KeepLeases(dir_ + "/tandemd.sock", &next);
  EXPECT_EQ(next.kept_leases, "one\ntwo\n");
  struct stat status {};
  ASSERT_EQ(stat((dir_ + "/tandemd.leases").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);  // it has the tokens
}

TEST_F(LeaseFileTest, WhatCannotBeWrittenLeavesTheFormer) {
  ASSERT_TRUE(config_.keep_leases("one\n").ok());
  std::filesystem::create_directory(dir_ + "/tandemd.leases.new");
  const Status kept = config_.keep_leases("two\n");
  ASSERT_FALSE(kept.ok());
  EXPECT_NE(kept.error().message.find("cannot write"), std::string::npos);
  service::ServiceConfig next;
  KeepLeases(dir_ + "/tandemd.sock", &next);
  EXPECT_EQ(next.kept_leases, "one\n");
}

TEST_F(LeaseFileTest, CgroupsAreAsTheKernelHasThem) {
  const std::string own = config_.cgroups_of(getpid());
  EXPECT_NE(own.find(":/"), std::string::npos);
  EXPECT_TRUE(service::IsInCgroup(own, "/"));
  EXPECT_EQ(config_.cgroups_of(0), "");
  EXPECT_FALSE(config_.has_cgroup("/tandem-no-such-cgroup"));
}

}  // namespace
}  // namespace tandem::daemon
