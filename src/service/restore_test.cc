// What a daemon leaves for the next one, and what that believes.
#include <algorithm>
#include <list>

#include "src/base/json.h"
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

// Outlives services, as the file does daemons.
struct Left {
  std::list<SavedSession> entries;
  std::atomic<uint64_t> last_session = 0;
};

class FakeSaved : public SavedSessions {
 public:
  FakeSaved(Left* left, bool complete) : left_(left), complete_(complete) {
    std::erase_if(left->entries, [](const SavedSession& entry) { return entry.id == 0; });
    for (SavedSession& entry : left->entries) found_.push_back(&entry);
  }
  std::vector<SavedSession*> found() override { return found_; }
  bool complete() const override { return complete_; }
  SavedSession* Add() override { return &left_->entries.emplace_back(); }
  std::atomic<uint64_t>& last_session() override { return left_->last_session; }

 private:
  Left* const left_;
  const bool complete_;
  std::vector<SavedSession*> found_;
};

// The budget is 100 MiB, less what others hold.
class RestoreTest : public ::testing::Test {
 protected:
  RestoreTest() { Start({}, false); }

  // The daemon is gone, and there is another one; `used` of the card are in use.
  void Start(Bytes used, bool complete = true) {
    service_.reset();
    pages_.clear();
    ServiceConfig config;
    config.started = now_;
    config.gpus = {GpuInfo{0, kGpu, "Card", true, MiB(134), used, MiB(8), MiB(2), 4}};
    config.random_token = [this] { return ++token_; };
    config.host_memory = GiB(1);
    config.saved = std::make_unique<FakeSaved>(&left_, complete);
    service_ =
        std::make_unique<Service>(std::move(config), std::make_unique<FakePageMaker>(pages_));
  }
  void Register(ConnectionId id, int pid, const wire::Register& m, bool predates = false) {
    service_->OnConnected(id, Client{pid, 1000, predates});
    Say(id, m);
  }
  static wire::Register Claim(Bytes allocated, Bytes resident, Bytes fixed = {}) {
    return {"0.1", 0, kGpu, "train", allocated.count, resident.count, 0, 0, fixed.count};
  }
  void Say(ConnectionId id, const wire::Message& message) {
    said_ = service_->OnMessage(id, message, now_);
  }
  // A session with that much, all of it on the card.
  void Hold(ConnectionId id, int pid, Bytes bytes) {
    Register(id, pid, Claim({}, {}));
    Say(id, wire::Reserve{1, bytes.count});
    Say(id, wire::Ready{bytes.count});
  }
  bool Registered(ConnectionId id) const {
    return std::any_of(said_.begin(), said_.end(), [&](const Outgoing& out) {
      return out.to == id && out.message && std::holds_alternative<wire::Registered>(*out.message);
    });
  }
  Json Ask(const char* what) {
    service_->OnConnected(999, Client{999, 0});
    Say(999, wire::Query{what});
    const Json answer = ParseJson(std::get<wire::Answer>(*said_.front().message).json);
    service_->OnDisconnected(999, now_);
    return answer;
  }
  Json Gpu() { return Ask("status")["gpus"][0]; }

  std::vector<FakePages*> pages_;
  uint64_t token_ = 70;
  Left left_;
  Instant now_{1000000000};
  std::unique_ptr<Service> service_;
  std::vector<Outgoing> said_;
};

TEST_F(RestoreTest, SessionsAreSaidToWaitForTheNewDaemonOnlyWhileItSettles) {
  Hold(1, 11, MiB(60));
  Start(MiB(60));
  EXPECT_EQ(Ask("sessions")["sessions"][0]["reason_code"], "daemon_restart");
  now_ = now_ + kSettling;
  said_ = service_->OnTick(now_);
  EXPECT_TRUE(Ask("sessions")["sessions"][0]["reason_code"].is_null());
}

TEST_F(RestoreTest, TheMemoryOfOneThatIsAwayIsItsOwn) {
  Hold(1, 11, MiB(60));
  Start(MiB(60));
  EXPECT_EQ(Gpu()["budget_bytes"], MiB(100).count);
  EXPECT_EQ(Gpu()["charged_bytes"], MiB(60).count);
  const Json session = Ask("sessions")["sessions"][0];
  EXPECT_EQ(session["id"], 1);
  EXPECT_EQ(session["program"], "train");
  EXPECT_EQ(session["pid"], 11);
}

TEST_F(RestoreTest, ItDiesBeforeItComesBackAndNothingIsLost) {
  Hold(1, 11, MiB(60));
  Start(MiB(60));
  service_->OnProcessGone(11, now_);
  EXPECT_EQ(Gpu()["budget_bytes"], MiB(100).count);
  EXPECT_EQ(Gpu()["charged_bytes"], 0);
  Start({});
  EXPECT_EQ(Ask("sessions")["sessions"], Json::array());
}

TEST_F(RestoreTest, OneThatStaysAwayKeepsItsMemoryFromOthers) {
  Hold(1, 11, MiB(60));
  Register(2, 12, Claim({}, {}));
  Start(MiB(60));
  now_ = now_ + Seconds(20);  // 1 is stopped
  service_->OnTick(now_);
  Register(3, 12, Claim({}, {}), true);
  Say(3, wire::Reserve{1, MiB(90).count});
  Say(3, wire::Ready{MiB(90).count});
  EXPECT_LE(Gpu()["charged_bytes"], (MiB(100) + MiB(2)).count);
  EXPECT_EQ(Ask("sessions")["sessions"][0]["credit_bytes"], MiB(10).count);  // was told to leave
  Register(4, 11, Claim(MiB(60), MiB(60)), true);
  EXPECT_TRUE(Registered(4));
  EXPECT_LE(Gpu()["charged_bytes"], (MiB(100) + MiB(2)).count);
}

TEST_F(RestoreTest, SettlingEndsWhenAllAreBack) {
  Hold(1, 11, MiB(10));
  Hold(2, 12, MiB(10));
  Start(MiB(20));
  Register(3, 11, Claim(MiB(10), MiB(10)), true);
  Say(3, wire::Reserve{2, MiB(11).count});
  EXPECT_TRUE(said_.empty());  // 12 may still come
  Register(4, 12, Claim(MiB(10), MiB(10)), true);
  EXPECT_TRUE(Registered(4));
  EXPECT_EQ(said_.size(), 2u);  // and 3 has its answer
  EXPECT_FALSE(service_->wake().has_value());
}

TEST_F(RestoreTest, ACardThatOthersUseDelaysNothing) {
  Start(MiB(30));
  Register(1, 11, Claim({}, {}));
  EXPECT_TRUE(Registered(1));
  EXPECT_EQ(Gpu()["budget_bytes"], MiB(70).count);
}

TEST_F(RestoreTest, NoMoreIsBelievedThanWasGranted) {
  Hold(1, 11, MiB(20));
  Start(MiB(80));  // 60 MiB are other programs'
  Register(2, 11, Claim(MiB(20), MiB(90), Bytes(uint64_t{1} << 40)), true);
  EXPECT_EQ(Gpu()["budget_bytes"], MiB(40).count);
  EXPECT_EQ(Gpu()["charged_bytes"], MiB(20).count);
  // One that was there, and had nothing of this daemon's.
  wire::Register liar = Claim(Bytes(uint64_t{1} << 50), MiB(90), MiB(90));
  liar.oversubscribes = wire::Register::kDoes;
  liar.run = 9;
  now_ = now_ + Seconds(25);
  service_->OnTick(now_);
  Register(3, 13, liar, true);
  EXPECT_TRUE(Registered(3));
  EXPECT_EQ(Gpu()["charged_bytes"], MiB(20).count);
  EXPECT_EQ(Ask("sessions")["sessions"][1]["allocated_bytes"], 0);
  service_->OnProcessGone(13, now_);
  EXPECT_EQ(Gpu()["budget_bytes"], MiB(40).count);
}

TEST_F(RestoreTest, WhereNothingWasLeftClaimsAreBoundedByTheCard) {
  left_.entries.clear();
  Start(MiB(50), false);
  Register(1, 11, Claim(MiB(40), MiB(40), Bytes(uint64_t{1} << 40)), true);
  Register(2, 12, Claim(MiB(90), MiB(90), MiB(90)), true);
  const Json sessions = Ask("sessions")["sessions"];
  EXPECT_EQ(sessions[0]["credit_bytes"], MiB(40).count);
  EXPECT_EQ(sessions[0]["fixed_bytes"], MiB(10).count);
  EXPECT_EQ(sessions[1]["fixed_bytes"], 0);
  EXPECT_EQ(Gpu()["budget_bytes"], MiB(100).count);
}

TEST_F(RestoreTest, NumbersGoOn) {
  Hold(1, 11, MiB(1));
  Hold(2, 12, MiB(1));
  service_->OnProcessGone(12, now_);
  Start(MiB(1));
  Register(3, 13, Claim({}, {}));
  Register(4, 11, Claim(MiB(1), MiB(1)), true);
  EXPECT_TRUE(Registered(3));
  const Json sessions = Ask("sessions")["sessions"];
  EXPECT_EQ(sessions[0]["id"], 1);
  EXPECT_EQ(sessions[0]["pid"], 11);
  EXPECT_EQ(sessions[1]["id"], 3);
}

TEST_F(RestoreTest, ALimitByRootStaysRoots) {
  Hold(1, 11, MiB(10));
  service_->OnConnected(5, Client{5, 0});
  Say(5, wire::Control{"limit", "1", MiB(20).count});
  Start(MiB(10));
  Register(2, 11, Claim(MiB(10), MiB(10)), true);
  service_->OnConnected(6, Client{6, 1000});
  Say(6, wire::Control{"limit", "1", MiB(90).count});
  ASSERT_TRUE(said_.front().message.has_value());
  EXPECT_TRUE(std::holds_alternative<wire::Refused>(*said_.front().message));
  const Json session = Ask("sessions")["sessions"][0];
  EXPECT_EQ(session["limit_bytes"], MiB(20).count);
  EXPECT_EQ(session["limited_by_uid"], 0);
}

TEST_F(RestoreTest, ASuspendedOneStaysSuspended) {
  Hold(1, 11, MiB(60));
  service_->OnConnected(5, Client{5, 0});
  Say(5, wire::Control{"suspend", "1", 0});
  Start(MiB(60));
  Json session = Ask("sessions")["sessions"][0];
  EXPECT_EQ(session["suspended"], true);
  EXPECT_EQ(session["suspended_by_uid"], 0);
  Register(2, 11, Claim(MiB(60), MiB(60)), true);  // and says that it is not
  session = Ask("sessions")["sessions"][0];
  EXPECT_EQ(session["suspended"], true);
  EXPECT_EQ(session["suspended_by_uid"], 0);
}

}  // namespace
}  // namespace tandem::service
