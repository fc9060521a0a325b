// Leases at the service: the users who create them, and the programs that may use them.
#include <set>

#include "src/base/json.h"
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

class LeaseOrdersTest : public ServiceTest {
 protected:
  explicit LeaseOrdersTest(bool leases_only = false) : ServiceTest(Leasing(this, leases_only)) {
    Pass(kRunPatience);  // the programs of runs from before are there
  }

  static ServiceConfig Leasing(LeaseOrdersTest* test, bool leases_only) {
    ServiceConfig config = Config({}, {}, GiB(1), false, {}, nullptr);
    config.random_token = [token = uint64_t{12345}]() mutable { return ++token; };
    config.leases_only = leases_only;
    config.cgroups_of = [test](int pid) { return test->cgroups_[pid]; };
    config.has_cgroup = [test](const std::string& name) {
      return test->existing_.count(name) != 0;
    };
    config.note = [test](const std::string& line) { test->notes_ += line + "\n"; };
    return config;
  }
  static Json Request(const std::string& job = "7") {
    return {{"version", 1},
            {"job", job},
            {"uid", 1000},
            {"gpus", {0}},
            {"memory_request_bytes", MiB(40).count}};
  }
  // By root on connection 500.
  void Order(const char* what, const std::string& job, const Json& request, unsigned uid = 0) {
    Connect(500, 500, uid);
    Say(500, wire::Control{what, job, 0, request.is_null() ? "" : JsonText(request)});
  }
  uint64_t Create(const Json& request = Request()) {
    Order("lease", request["job"], request);
    return ParseJson(Heard<wire::Answer>(500).json)["token"];
  }
  std::string Refused(ConnectionId id) { return Heard<wire::Refused>(id).reason; }
  bool Has(ConnectionId id) { return Silent<wire::Refused>(id) && !Silent<wire::Registered>(id); }
  void Pass(Duration time) {
    now_ = now_ + time;
    said_ = service_.OnTick(now_);
  }

  std::map<int, std::string> cgroups_;
  std::set<std::string> existing_;
  std::string notes_;
};

TEST_F(LeaseOrdersTest, AProcessWithoutATokenBelongsToTheLeaseOfItsCgroup) {
  Json request = Request();
  request["cgroup"] = "/machine/libpod-7";
  Create(request);
  cgroups_[11] = "0::/machine/libpod-7/inner\n";
  cgroups_[12] = "0::/machine/libpod-70\n";
  cgroups_[13] = "0::/machine/libpod-7\n";
  Join(1, 11, 0);
  ASSERT_TRUE(Has(1));
  EXPECT_EQ(Bytes(Heard<wire::Registered>(1).limit_bytes), MiB(40));
  Join(2, 12, 0);
  ASSERT_TRUE(Has(2));
  Join(3, 13, 0, 1001);  // of another user
  ASSERT_TRUE(Has(3));
  const Json sessions = Ask("sessions")["sessions"];
  EXPECT_EQ(sessions[0]["lease"], "7");
  EXPECT_EQ(sessions[1]["lease"], nullptr);
  EXPECT_EQ(sessions[2]["lease"], nullptr);
  EXPECT_EQ(Bytes(sessions[0]["limit_bytes"].get<uint64_t>()), MiB(40));
}

TEST_F(LeaseOrdersTest, AJobsProcessHasItsLimitAndName) {
  Json request = Request();
  request["name"] = "train-7";
  request["project"] = "vision";
  request["class"] = "batch";
  const uint64_t token = Create(request);
  Join(1, 11, token);
  ASSERT_TRUE(Has(1));
  EXPECT_EQ(Bytes(Heard<wire::Registered>(1).limit_bytes), MiB(40));
  const Json session = Ask("sessions")["sessions"][0];
  EXPECT_EQ(session["name"], "train-7");
  EXPECT_EQ(session["lease"], "7");
  EXPECT_EQ(session["project"], "vision");
  EXPECT_EQ(session["class"], "batch");
  const Json leases = Ask("leases");
  EXPECT_EQ(leases["leases"][0]["sessions"], ParseJson("[1]"));
  EXPECT_EQ(leases["gpus"][0]["guaranteed_bytes"], MiB(40).count);
}

TEST_F(LeaseOrdersTest, ProcessesOfAJobShareItsLimit) {
  const uint64_t token = Create();
  Join(1, 11, token);
  Join(2, 12, token);
  Say(1, wire::Reserve{1, MiB(30).count});
  Say(2, wire::Reserve{1, MiB(20).count});
  EXPECT_EQ(Heard<wire::Reserved>(2).granted, 0);
  Say(2, wire::Reserve{2, MiB(10).count});
  EXPECT_EQ(Heard<wire::Reserved>(2).granted, 1);
}

TEST_F(LeaseOrdersTest, CallsOfASuspendedLeaseFailAfterTheTimeOfTheOrder) {
  const uint64_t token = Create();
  Join(1, 11, token);
  Say(500, wire::Control{"suspend", "job-7", 0, "10s"});
  Pass(Seconds(9));
  EXPECT_EQ(pages_[0]->decisions().refuses, 0u);
  Pass(Seconds(1));
  EXPECT_EQ(pages_[0]->decisions().refuses, 1u);
  EXPECT_FALSE(Silent<wire::Contended>(1));  // it is to look
  Join(2, 12, token);                        // a process that starts meanwhile
  EXPECT_EQ(pages_[1]->decisions().suspended, 1u);
  EXPECT_EQ(pages_[1]->decisions().refuses, 1u);
  Say(500, wire::Control{"resume", "job-7", 0, {}});
  EXPECT_EQ(pages_[0]->decisions().refuses, 0u);
  EXPECT_EQ(pages_[1]->decisions().refuses, 0u);
  Say(500, wire::Control{"suspend", "job-7", 0, {}});
  Pass(Seconds(1000));
  EXPECT_EQ(pages_[0]->decisions().refuses, 0u);
}

TEST_F(LeaseOrdersTest, TheNextDaemonGoesOnWithASuspension) {
  std::string kept;
  const auto leasing = [&] {
    ServiceConfig config = Leasing(this, false);
    config.keep_leases = [&kept](const std::string& text) -> Status {
      kept = text;
      return {};
    };
    config.kept_leases = kept;
    return config;
  };
  {
    Service first(leasing(), std::make_unique<FakePageMaker>(pages_));
    first.OnConnected(1, Client{500, 0, false});
    first.OnMessage(1, wire::Control{"lease", "7", 0, JsonText(Request())}, now_);
    first.OnMessage(1, wire::Control{"suspend", "job-7", 0, "10s"}, now_);
  }
  pages_.clear();
  Service next(leasing(), std::make_unique<FakePageMaker>(pages_));
  const uint64_t token = ParseJson(kept)["token"];
  next.OnTick(now_);
  next.OnConnected(1, Client{11, 1000, false});
  next.OnMessage(1, wire::Register{"0.1", token, kGpu, "train", 0, 0, 0}, now_);
  EXPECT_EQ(pages_.at(0)->decisions().suspended, 1u);
  EXPECT_EQ(pages_.at(0)->decisions().refuses, 0u);
  ASSERT_TRUE(next.wake().has_value());
  next.OnTick(now_ + Seconds(10));
  EXPECT_EQ(pages_.at(0)->decisions().refuses, 1u);
}

TEST_F(LeaseOrdersTest, ALeaseMovesToAnotherGpuWhileNoProgramUsesOne) {
  const uint64_t token = Create();
  const auto move = [&](const char* gpu, unsigned uid = 0) {
    Connect(500, 500, uid);
    Say(500, wire::Control{"move-lease", "7", 0, gpu});
  };
  move("1");
  EXPECT_EQ(Refused(500), "there is no gpu1");
  move("x");
  EXPECT_EQ(Refused(500), "\"x\" is no number of a GPU");
  move("0", 1000);
  EXPECT_EQ(Refusal(500), wire::RefusalCode::kNotYours);
  move("0");
  EXPECT_TRUE(Silent<wire::Refused>(500));
  Join(1, 11, token);
  move("1");
  EXPECT_EQ(Refused(500), "process 11 uses gpu0: take that away with `tandem detach` first");
  move("0");
  EXPECT_TRUE(Silent<wire::Refused>(500));
}

TEST_F(LeaseOrdersTest, OnlyCallsOfLeasesFail) {
  Join(1, 11, 0);
  Order("suspend", "1", {});
  Say(500, wire::Control{"suspend", "1", 0, "10s"});
  EXPECT_EQ(Refused(500), "only calls of a lease's programs, such as a container's, can fail");
  Create();
  Say(500, wire::Control{"suspend", "job-7", 0, "soon"});
  EXPECT_NE(Refused(500).find("soon"), std::string::npos);
}

TEST_F(LeaseOrdersTest, OthersCannotUseIt) {
  const uint64_t token = Create();
  Join(1, 11, token, 1001);
  EXPECT_NE(Refused(1).find("another user's"), std::string::npos);
  EXPECT_TRUE(Closed(1));
  Join(2, 12, token + 1);
  EXPECT_NE(Refused(2).find("has ended"), std::string::npos);
}

TEST_F(LeaseOrdersTest, OnlyProcessesOfTheJobsCgroupUseIt) {
  Json request = Request();
  request["cgroup"] = "/slurm/job_7";
  const uint64_t token = Create(request);
  cgroups_[11] = "0::/user.slice\n";
  cgroups_[12] = "0::/slurm/job_7/step_0\n";
  Join(1, 11, token);
  EXPECT_NE(Refused(1).find("outside of the job's cgroup"), std::string::npos);
  Join(2, 12, token);
  EXPECT_TRUE(Has(2));
}

TEST_F(LeaseOrdersTest, OnlyRootAndTheOwnerCreateAndEndLeases) {
  Order("lease", "7", Request(), 1000);
  EXPECT_EQ(Refusal(500), wire::RefusalCode::kNotYours);
  Create();
  Order("end-lease", "7", {}, 1000);
  EXPECT_EQ(Refusal(500), wire::RefusalCode::kNotYours);
}

TEST_F(LeaseOrdersTest, OthersDoNotSeeTheToken) {
  Create();
  Connect(5, 50, 1001);
  Say(5, wire::Query{"leases"});
  EXPECT_TRUE(ParseJson(Heard<wire::Answer>(5).json)["leases"][0]["token"].is_null());
  Connect(6, 60, 1000);
  Say(6, wire::Query{"leases"});
  EXPECT_TRUE(ParseJson(Heard<wire::Answer>(6).json)["leases"][0]["token"].is_number());
}

TEST_F(LeaseOrdersTest, AUserCannotLiftTheLimitOfTheLease) {
  Join(1, 11, Create());
  Connect(5, 50, 1000);
  Say(5, wire::Control{"limit", "job-7", MiB(100).count, ""});
  EXPECT_EQ(Refusal(5), wire::RefusalCode::kNotYours);
  Say(5, wire::Control{"suspend", "job-7", 0, ""});  // that is the user's to say
  EXPECT_TRUE(Silent<wire::Refused>(5));
}

TEST_F(LeaseOrdersTest, ALeaseIsNoRunToOpen) {
  const uint64_t token = Create();
  Connect(5, 50, 1000);
  wire::RunBegin begin;
  begin.run = token;
  begin.limit_bytes = MiB(90).count;
  Say(5, begin);
  EXPECT_EQ(Refusal(5), wire::RefusalCode::kProtocol);
}

TEST_F(LeaseOrdersTest, RefusedRequestsSayWhy) {
  Create();
  Json request = Request("8");
  request["memory_request_bytes"] = MiB(70).count;
  Order("lease", "8", request);
  EXPECT_EQ(Refused(500),
            "cannot guarantee 70 MiB on gpu0: leases have 40 MiB of 100 MiB, 60 MiB are left");
  request["memory_request_bytes"] = MiB(10).count;
  request["memory_limit_bytes"] = MiB(101).count;
  Order("lease", "8", request);
  EXPECT_EQ(Refusal(500), wire::RefusalCode::kLimitTooLarge);
  request["oversubscribe"] = true;
  Order("lease", "8", request);
  EXPECT_TRUE(Silent<wire::Refused>(500));
  request = Request("9");
  request["compute_share"] = "much";
  Order("lease", "9", request);
  EXPECT_NE(Refused(500).find("no share"), std::string::npos);
  request = Request("9");
  request["gpus"] = {3};
  Order("lease", "9", request);
  EXPECT_EQ(Refused(500), "there is no gpu3");
  Order("end-lease", "10", {});
  EXPECT_EQ(Refused(500), "job 10 has no lease");
}

TEST_F(LeaseOrdersTest, SessionsOutliveTheLeaseAndNoneJoin) {
  const uint64_t token = Create();
  Join(1, 11, token);
  Order("end-lease", "7", {});
  EXPECT_EQ(ParseJson(Heard<wire::Answer>(500).json)["sessions"], ParseJson("[1]"));
  Say(1, wire::Reserve{1, MiB(30).count});
  EXPECT_EQ(Heard<wire::Reserved>(1).granted, 1);
  Say(1, wire::Reserve{2, MiB(50).count});
  EXPECT_EQ(Heard<wire::Reserved>(1).granted, 0);  // its limit stays
  Join(3, 13, token);
  EXPECT_NE(Refused(3).find("has ended"), std::string::npos);
  said_ = service_.OnProcessGone(11, now_);
  Join(2, 12, token);
  EXPECT_NE(Refused(2).find("has ended"), std::string::npos);
}

TEST_F(LeaseOrdersTest, ALeaseEndsWithItsCgroup) {
  Json request = Request();
  request["cgroup"] = "/slurm/job_7";
  Create(request);
  Pass(Seconds(60));  // the job has not begun
  EXPECT_EQ(Ask("leases")["leases"].size(), 1u);
  existing_.insert("/slurm/job_7");
  Pass(Seconds(5));
  EXPECT_EQ(Ask("leases")["leases"].size(), 1u);
  existing_.clear();
  Pass(Seconds(5));
  EXPECT_EQ(Ask("leases")["leases"].size(), 0u);
  EXPECT_NE(notes_.find("the lease of job \"7\" ends: its cgroup is gone"), std::string::npos);
}

TEST_F(LeaseOrdersTest, ALeaseWhoseJobEndsAtOnceEndsToo) {
  Json request = Request();
  request["cgroup"] = "/slurm/job_7";
  existing_ = {"/slurm/job_7"};
  Create(request);
  existing_.clear();
  Pass(Seconds(5));
  EXPECT_EQ(Ask("leases")["leases"].size(), 0u);
}

TEST_F(LeaseOrdersTest, ALeaseWhoseJobNeverComesEnds) {
  Json request = Request();
  request["cgroup"] = "/slurm/job_7";
  Create(request);
  Pass(Seconds(601));
  EXPECT_EQ(Ask("leases")["leases"].size(), 0u);
}

TEST_F(LeaseOrdersTest, AUsersDaemonHasLeasesOfThatUserOnly) {
  ServiceConfig config = Leasing(this, false);
  config.uid = 1000;
  Service service(std::move(config), std::make_unique<FakePageMaker>(pages_));
  service.OnConnected(1, Client{500, 1000, false});
  Json request = Request();
  request["uid"] = 0;  // as in a container of the user's
  said_ = service.OnMessage(1, wire::Control{"lease", "7", 0, JsonText(request)}, now_);
  EXPECT_EQ(ParseJson(Heard<wire::Answer>(1).json)["uid"], 1000);
}

class LeasesOnlyTest : public LeaseOrdersTest {
 protected:
  LeasesOnlyTest() : LeaseOrdersTest(true) {}
};

TEST_F(LeasesOnlyTest, ProgramsWithoutALeaseAreRefused) {
  Join(1, 11);
  EXPECT_NE(Refused(1).find("start the program as a job"), std::string::npos);
  Join(2, 12, Create());
  EXPECT_TRUE(Has(2));
  Join(3, 13, 0, 0);  // root
  EXPECT_TRUE(Has(3));
}

}  // namespace
}  // namespace tandem::service
