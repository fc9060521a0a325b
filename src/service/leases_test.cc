#include "src/service/leases.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/wire/open_runs.h"

namespace tandem::service {
namespace {

constexpr const char* kRequest =
    R"({"version":1,"job":"7","uid":1000,"gpus":[0],"memory_request_bytes":8388608,)"
    R"("memory_limit_bytes":16777216,"class":"batch","project":"vision"})";

class LeasesTest : public ::testing::Test {
 protected:
  static LeaseTerms Terms(const std::string& job, Bytes request) {
    LeaseTerms terms;
    terms.job = terms.name = job;
    terms.uid = 1000;
    terms.gpus = {0};
    terms.request = request;
    terms.limit = request + MiB(1);
    return terms;
  }
  Result<const Lease*> Create(Leases* leases, const LeaseTerms& terms) {
    return leases->Create(
        terms, {{0, MiB(100)}, {1, MiB(50)}}, [this] { return ++token_; }, "2026-11-26T00:00:00Z");
  }
  Leases::Keep Keeper() {
    return [this](const std::string& text) -> Status {
      if (full_) return Error{ErrorCode::kFailed, "the disk is full"};
      kept_ = text;
      return {};
    };
  }

  uint64_t token_ = 0;
  std::string kept_;
  bool full_ = false;
};

TEST_F(LeasesTest, ARequestIsRead) {
  const Result<LeaseTerms> terms = ParseLeaseRequest(kRequest);
  ASSERT_TRUE(terms.ok()) << terms.error().message;
  EXPECT_EQ(terms->job, "7");
  EXPECT_EQ(terms->name, "job-7");
  EXPECT_EQ(terms->uid, 1000u);
  EXPECT_EQ(terms->gpus, std::vector<int>{0});
  EXPECT_EQ(terms->request, MiB(8));
  EXPECT_EQ(terms->limit, MiB(16));
  EXPECT_EQ(terms->of_class, core::Class::kBatch);
  EXPECT_EQ(terms->project, "vision");
}

TEST_F(LeasesTest, ALeaseMovesWhereItsRequestFits) {
  const std::map<int, Bytes> shared = {{0, MiB(100)}, {1, MiB(50)}};
  Leases leases(Keeper());
  ASSERT_TRUE(Create(&leases, Terms("1", MiB(40))).ok());
  ASSERT_TRUE(Create(&leases, Terms("2", MiB(60))).ok());
  EXPECT_TRUE(leases.Move("1", {1}, shared).ok());
  EXPECT_EQ(leases.Guaranteed(0), MiB(60));
  EXPECT_EQ(Leases({}, kept_).OfJob("1")->terms.gpus, std::vector{1});
  EXPECT_FALSE(leases.Move("2", {1}, shared).ok());
  EXPECT_FALSE(leases.Move("2", {2}, shared).ok());
  EXPECT_FALSE(leases.Move("3", {0}, shared).ok());
  full_ = true;
  EXPECT_FALSE(leases.Move("1", {0}, shared).ok());
  EXPECT_EQ(leases.OfJob("1")->terms.gpus, std::vector{1});
}

TEST_F(LeasesTest, ASuspensionIsKept) {
  Leases leases(Keeper());
  const uint64_t first = (*Create(&leases, Terms("1", MiB(1))))->token;
  const uint64_t second = (*Create(&leases, Terms("2", MiB(1))))->token;
  leases.SetSuspended(1000, first, Suspension{0, Instant() + Seconds(5)});
  leases.SetSuspended(1000, second, Suspension{1000, std::nullopt});
  leases.SetSuspended(1001, second, Suspension{1001, std::nullopt});  // not this user's
  Leases next(Keeper(), kept_);
  EXPECT_EQ(next.OfJob("1")->suspended, (Suspension{0, Instant() + Seconds(5)}));
  EXPECT_EQ(next.OfJob("2")->suspended, (Suspension{1000, std::nullopt}));
  EXPECT_TRUE(LeaseJson(*next.OfJob("2"))["suspended"]);
  next.SetSuspended(1000, first, std::nullopt);
  EXPECT_FALSE(Leases({}, kept_).OfJob("1")->suspended.has_value());
}

TEST_F(LeasesTest, ABadRequestIsRefusedInWords) {
  const auto refused = [](const char* key, nlohmann::json value) {
    nlohmann::json request = ParseJson(kRequest);
    if (value.is_null()) {
      request.erase(key);
    } else {
      request[key] = std::move(value);
    }
    const Result<LeaseTerms> terms = ParseLeaseRequest(JsonText(request));
    EXPECT_FALSE(terms.ok()) << request;
    return terms.ok() ? "" : terms.error().message;
  };
  EXPECT_NE(refused("version", 2).find("version 1"), std::string::npos);
  EXPECT_NE(refused("version", nullptr).find("version 1"), std::string::npos);
  EXPECT_NE(refused("job", nullptr).find("\"job\""), std::string::npos);
  EXPECT_NE(refused("uid", nullptr).find("\"uid\""), std::string::npos);
  EXPECT_NE(refused("uid", -1).find("\"uid\""), std::string::npos);
  EXPECT_NE(refused("uid", uint64_t{1} << 32).find("\"uid\""), std::string::npos);
  EXPECT_NE(refused("gpus", nlohmann::json::array()).find("\"gpus\""), std::string::npos);
  EXPECT_NE(refused("gpus", {"gpu0"}).find("\"gpus\""), std::string::npos);
  EXPECT_NE(refused("memory_limit_bytes", 1).find("less than the request"), std::string::npos);
  EXPECT_NE(refused("memory_request_bytes", "8G").find("whole number"), std::string::npos);
  EXPECT_NE(refused("class", "urgent").find("urgent"), std::string::npos);
  EXPECT_NE(refused("cgroup", "slurm/job_7").find("slash"), std::string::npos);
  EXPECT_NE(refused("job", std::string(513, 'x')).find("longer"), std::string::npos);
  for (const char* text : {"", "[]", "7", "{", "\"\xff\"", "{\"job\":\"\xc3\"}"}) {
    EXPECT_FALSE(ParseLeaseRequest(text).ok()) << text;
  }
}

TEST_F(LeasesTest, GuaranteesFitTheGpuAndLimitsNeedNot) {
  Leases leases;
  LeaseTerms large = Terms("a", MiB(60));
  large.limit = MiB(100);
  ASSERT_TRUE(Create(&leases, large).ok());
  large.job = "b";
  const auto refused = Create(&leases, large);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().message.find("40 MiB are left"), std::string::npos);
  large.request = MiB(40);
  EXPECT_TRUE(Create(&leases, large).ok());  // the limits are 200 MiB of 100
  EXPECT_EQ(leases.Guaranteed(0), MiB(100));
  EXPECT_EQ(leases.Guaranteed(1), Bytes());
  ASSERT_TRUE(leases.End("a").ok());
  EXPECT_EQ(leases.Guaranteed(0), MiB(40));
}

TEST_F(LeasesTest, AGuaranteeIsOnEachOfItsGpus) {
  Leases leases;
  LeaseTerms both = Terms("a", MiB(40));
  both.gpus = {0, 1};
  ASSERT_TRUE(Create(&leases, both).ok());
  EXPECT_EQ(leases.Guaranteed(0), MiB(40));
  EXPECT_EQ(leases.Guaranteed(1), MiB(40));
  both.job = "b";  // fits gpu0 only, so it is given neither
  EXPECT_FALSE(Create(&leases, both).ok());
  EXPECT_EQ(leases.Guaranteed(0), MiB(40));
  both.gpus = {2};
  EXPECT_NE(Create(&leases, both).error().message.find("no gpu2"), std::string::npos);
}

TEST_F(LeasesTest, TheSameLeaseAgainIsTheSame) {
  Leases leases;
  const auto first = Create(&leases, Terms("a", MiB(10)));
  const auto again = Create(&leases, Terms("a", MiB(10)));
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_FALSE(Create(&leases, Terms("a", MiB(11))).ok());
  EXPECT_TRUE(wire::IsLease((*first)->token));
}

TEST_F(LeasesTest, OnlyItsUserKnowsALeaseByItsToken) {
  Leases leases;
  const uint64_t token = (*Create(&leases, Terms("a", MiB(10))))->token;
  ASSERT_NE(leases.OfToken(1000, token), nullptr);
  EXPECT_EQ(leases.OfToken(1001, token), nullptr);
  EXPECT_EQ(leases.OfToken(1000, token + 1), nullptr);
}

TEST_F(LeasesTest, LeasesOutliveTheDaemon) {
  uint64_t token = 0;
  {
    Leases leases(Keeper());
    LeaseTerms terms = Terms("a\nb \"c\"", MiB(10));
    terms.cgroup = "/slurm/job_7";
    terms.share = "30%";
    token = (*Create(&leases, terms))->token;
    ASSERT_TRUE(Create(&leases, Terms("b", MiB(10))).ok());
    ASSERT_TRUE(Create(&leases, Terms("c", MiB(10))).ok());
    ASSERT_TRUE(leases.End("c").ok());
  }
  Leases next({}, kept_);
  EXPECT_EQ(next.lost(), 0u);
  ASSERT_EQ(next.all().size(), 2u);
  const Lease* const lease = next.OfToken(1000, token);
  ASSERT_NE(lease, nullptr);
  EXPECT_EQ(lease->terms.job, "a\nb \"c\"");
  EXPECT_EQ(lease->terms.cgroup, "/slurm/job_7");
  EXPECT_EQ(lease->terms.share, "30%");
  EXPECT_EQ(next.Guaranteed(0), MiB(20));
}

TEST_F(LeasesTest, DamagedLinesAreLeftOutAndCounted) {
  {
    Leases leases(Keeper());
    ASSERT_TRUE(Create(&leases, Terms("a", MiB(10))).ok());
  }
  const Leases next({}, "garbage\n" + kept_ + kept_ + "{\"version\":1}\n");
  EXPECT_EQ(next.all().size(), 1u);
  EXPECT_EQ(next.lost(), 3u);  // a job has one
}

TEST_F(LeasesTest, WithoutRandomNumbersThereIsNoSecondLease) {
  Leases leases;
  const auto same = [] { return uint64_t{5}; };
  ASSERT_TRUE(leases.Create(Terms("a", MiB(1)), {{0, MiB(9)}}, same, "").ok());
  EXPECT_FALSE(leases.Create(Terms("b", MiB(1)), {{0, MiB(9)}}, same, "").ok());
}

TEST_F(LeasesTest, ALeaseThatCannotBeKeptIsNotGiven) {
  Leases leases(Keeper());
  full_ = true;
  const auto lease = Create(&leases, Terms("a", MiB(10)));
  ASSERT_FALSE(lease.ok());
  EXPECT_NE(lease.error().message.find("the disk is full"), std::string::npos);
  EXPECT_TRUE(leases.all().empty());
}

TEST(CgroupTest, AProcessIsInItsCgroupAndAllAbove) {
  constexpr const char* kOne = "0::/system.slice/slurmd/job_7/step_0\n";
  EXPECT_TRUE(IsInCgroup(kOne, "/system.slice/slurmd/job_7"));
  EXPECT_TRUE(IsInCgroup(kOne, "/system.slice/slurmd/job_7/step_0"));
  EXPECT_TRUE(IsInCgroup(kOne, "/"));
  EXPECT_FALSE(IsInCgroup(kOne, "/system.slice/slurmd/job_77"));
  EXPECT_FALSE(IsInCgroup(kOne, "/system.slice/slurmd/job"));
  constexpr const char* kMany = "12:memory:/user\n4:cpu,cpuacct:/slurm/uid_0/job_7\n";
  EXPECT_TRUE(IsInCgroup(kMany, "/slurm/uid_0/job_7"));
  EXPECT_FALSE(IsInCgroup("", "/slurm"));
  EXPECT_FALSE(IsInCgroup("nonsense", "/slurm"));
}

}  // namespace
}  // namespace tandem::service
