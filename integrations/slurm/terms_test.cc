#include "integrations/slurm/terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SlurmTermsTest, AMemoryIsASizeAndPerhapsALimit) {
  EXPECT_EQ(*ParseMemory("20G"), (Memory{GiB(20), GiB(20)}));
  EXPECT_EQ(*ParseMemory("20G:40G"), (Memory{GiB(20), GiB(40)}));
  EXPECT_EQ(*ParseMemory("512M"), (Memory{MiB(512), MiB(512)}));
}

TEST(SlurmTermsTest, AMemoryWithoutSenseIsRefusedInWords) {
  for (const char* text : {"", "20", "x", "0", "20G:", ":20G", "20G:x", "20G:30G:40G", "-1G"}) {
    const Result<Memory> memory = ParseMemory(text);
    ASSERT_FALSE(memory.ok()) << text;
    EXPECT_THAT(memory.error().message, HasSubstr("give a size such as 20G")) << text;
  }
  EXPECT_THAT(ParseMemory("20G:10G").error().message, HasSubstr("the limit is below the size"));
}

TEST(SlurmTermsTest, ClassesAndSharesAreChecked) {
  EXPECT_TRUE(CheckClass("batch").ok());
  EXPECT_THAT(CheckClass("bach").error().message, HasSubstr("production, interactive, batch"));
  for (const char* share : {"2", "0.5", "30%", "100%"})
    EXPECT_TRUE(CheckShare(share).ok()) << share;
  for (const char* share : {"", "%", "0", "1001", "-1", "101%", "inf", "2x", "nan"}) {
    EXPECT_FALSE(CheckShare(share).ok()) << share;
  }
}

TEST(SlurmTermsTest, TheAdministratorsLineIsRead) {
  const Result<Settings> settings =
      ParseSettings({"oversubscribe=1.5", "tandem=/opt/tandem", "env.TANDEM_RUNTIME_DIR=/run/%n=x",
                     "class.debug=interactive", "share.main=2", "account-class.lab=batch",
                     "account-share.lab=5", "qos-class.high=production", "qos-share.high=3"});
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_EQ(settings->oversubscribe, 1.5);
  EXPECT_EQ(settings->tandem, "/opt/tandem");
  EXPECT_THAT(settings->environment, ElementsAre(std::pair("TANDEM_RUNTIME_DIR", "/run/%n=x")));
  EXPECT_EQ(settings->of_partitions.classes.at("debug"), "interactive");
  EXPECT_EQ(settings->of_partitions.shares.at("main"), "2");
  EXPECT_EQ(settings->of_accounts.classes.at("lab"), "batch");
  EXPECT_EQ(settings->of_accounts.shares.at("lab"), "5");
  EXPECT_EQ(settings->of_qos.classes.at("high"), "production");
  EXPECT_EQ(settings->of_qos.shares.at("high"), "3");
  EXPECT_TRUE(settings->UsesQos());
  for (const char* wrong :
       {"x", "oversubscribe=0.5", "oversubscribe=inf", "class.main=high", "share.main=none",
        "env.=1", "qos-class.high=x", "qos-share.high=0", ""}) {
    EXPECT_FALSE(ParseSettings({wrong}).ok()) << wrong;
  }
}

TEST(SlurmTermsTest, ValuesArePutIn) {
  EXPECT_EQ(Filled("/run/%n/%n", {{'n', "n1"}}), "/run/n1/n1");
  EXPECT_EQ(Filled("/run/%u%%n%", {{'n', "n1"}}), "/run/%u%n1%");
  EXPECT_EQ(Filled("", {{'n', "n1"}}), "");
}

TEST(SlurmTermsTest, ALeaseIsForTheJobsCgroup) {
  const Result<Settings> settings = ParseSettings({"cgroup=/slurm_%n/uid_%u/job_%j"});
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  Job job{"17", "1000", "0", "main", "", {GiB(2), GiB(2)}, "", ""};
  job.node = "n1";
  EXPECT_THAT(LeaseWords(job, *settings),
              testing::IsSupersetOf({"--cgroup", "/slurm_n1/uid_1000/job_17"}));
  EXPECT_THAT(ParseSettings({"cgroup=/slurm"}).error().message, HasSubstr("such as /slurm/uid_%u"));
}

TEST(SlurmTermsTest, WhatSlurmOversubscribesIsNotGuaranteed) {
  Settings settings;
  settings.oversubscribe = 2;
  settings.of_partitions.classes["main"] = "batch";
  settings.of_partitions.shares["main"] = "3";
  Job job{"17", "1000", "0,1", "main", "vision", {GiB(2), GiB(4)}, "", ""};
  EXPECT_THAT(LeaseWords(job, settings),
              ElementsAre("lease", "create", "--job", "17", "--user", "1000", "--memory-request",
                          "1073741824B", "--memory-limit", "4294967296B", "--gpu", "0", "--gpu",
                          "1", "--class", "batch", "--compute-share", "3", "--project", "vision"));
  job.of_class = "opportunistic";
  job.share = "50%";
  job.partition = "other";
  job.account = "";
  job.gpus = "1";
  EXPECT_THAT(LeaseWords(job, settings),
              ElementsAre("lease", "create", "--job", "17", "--user", "1000", "--memory-request",
                          "1073741824B", "--memory-limit", "4294967296B", "--gpu", "1", "--class",
                          "opportunistic", "--compute-share", "50%"));
}

TEST(SlurmTermsTest, AQosComesBeforeTheAccountAndThatBeforeThePartition) {
  Settings settings;
  EXPECT_FALSE(settings.UsesQos());
  settings.of_partitions.classes["main"] = "batch";
  settings.of_partitions.shares["main"] = "1";
  settings.of_qos.classes["high"] = "production";
  Job job{"17", "1000", "0", "main", "", {GiB(2), GiB(2)}, "", "", "high"};
  EXPECT_THAT(LeaseWords(job, settings), testing::IsSupersetOf({"production", "1"}));
  job.qos = "normal";
  EXPECT_THAT(LeaseWords(job, settings), testing::IsSupersetOf({"batch", "1"}));
  settings.of_qos.shares["normal"] = "4";
  EXPECT_THAT(LeaseWords(job, settings), testing::IsSupersetOf({"batch", "4"}));
  settings.of_accounts.classes["vision"] = "opportunistic";
  settings.of_accounts.shares["vision"] = "2";
  EXPECT_THAT(LeaseWords(job, settings), testing::IsSupersetOf({"batch", "4"}));
  job.account = "vision";
  EXPECT_THAT(LeaseWords(job, settings), testing::IsSupersetOf({"opportunistic", "4"}));
  job.of_class = "interactive";
  job.share = "0.5";
  EXPECT_THAT(LeaseWords(job, settings), testing::IsSupersetOf({"interactive", "0.5"}));
}

TEST(SlurmTermsTest, ALibraryIsPreloadedOnce) {
  EXPECT_EQ(PutFirst("/a", ""), "/a");
  EXPECT_EQ(PutFirst("/a", "/b:/c"), "/a:/b:/c");
  EXPECT_EQ(PutFirst("/a", "/b:/a"), "/a:/b");
}

}  // namespace
}  // namespace tandem::slurm
