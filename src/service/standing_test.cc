// What a session is told to wait for, or went on without.
#include "src/base/json.h"
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

// Programs outside Tandem hold 30 MiB: the budget is 70 MiB.
class StandingTest : public ServiceTest {
 protected:
  StandingTest() : ServiceTest(MiB(30), {}, MiB(40)) { Pass(kSettling); }

  void Pass(Duration time) {
    now_ = now_ + time;
    said_ = service_.OnTick(now_);
  }
  // Asks for that much in all; whether it got it.
  bool Reserve(ConnectionId id, Bytes total) {
    Say(id, wire::Reserve{++sequence_, total.count});
    return Heard<wire::Reserved>(id).granted != 0;
  }
  Json Session(size_t index) { return Ask("sessions")["sessions"][index]; }
  std::string Reason(size_t index) { return JsonText(Session(index)["reason"]); }
  std::string Code(size_t index) { return JsonText(Session(index)["reason_code"]); }

  uint64_t sequence_ = 0;
};

TEST_F(StandingTest, ALimitThatRefusedIsNamedUntilThereIsRoom) {
  wire::RunBegin begin;
  begin.limit_bytes = MiB(20).count;
  begin.program = "train";
  Connect(7, 70);
  Say(7, begin);
  Join(1, 11, Heard<wire::RunStarted>(7).run);
  ASSERT_TRUE(Reserve(1, MiB(16)));
  EXPECT_EQ(Code(0), "null");
  EXPECT_FALSE(Reserve(1, MiB(24)));
  EXPECT_EQ(Code(0), "\"limit_refused\"");
  EXPECT_EQ(Reason(0), "\"8 MiB more were refused: its limit is 20 MiB\"");
  ASSERT_TRUE(Reserve(1, MiB(20)));
  EXPECT_EQ(Code(0), "null");
  Say(1, wire::FixedWanted{1, MiB(2).count});
  EXPECT_EQ(Code(0), "\"limit_refused\"");
  Say(1, wire::Reserve{++sequence_, MiB(4).count});  // it frees
  EXPECT_EQ(Code(0), "null");
}

TEST_F(StandingTest, MemoryThatProgramsOutsideHoldIsNamed) {
  Join(1, 11);
  EXPECT_FALSE(Reserve(1, MiB(80)));
  EXPECT_EQ(Code(0), "\"gpu_memory_refused\"");
  EXPECT_EQ(Reason(0),
            "\"80 MiB more were refused: programs can share 70 MiB of the GPU; programs outside "
            "Tandem hold 30 MiB of the GPU\"");
}

TEST_F(StandingTest, AHostWithoutMemoryIsNamed) {
  Join(1, 11);
  Join(2, 12);
  ASSERT_TRUE(Reserve(1, MiB(60)));
  EXPECT_FALSE(Reserve(2, MiB(60)));
  EXPECT_EQ(Code(1), "\"host_memory_refused\"");
  EXPECT_EQ(Reason(1), "\"60 MiB more were refused: the host has no memory left for them\"");
}

TEST_F(StandingTest, AWaitThatOnlyProgramsOutsideCanEndNamesThem) {
  Join(1, 11);
  Join(2, 12);
  Want(1, MiB(40));
  // 40 MiB that cannot be swapped would leave session 1 no room to run, but for the 30 MiB outside.
  Say(2, wire::FixedWanted{1, MiB(40).count});
  EXPECT_EQ(Session(1)["state"], "waiting");
  EXPECT_EQ(Code(1), "\"foreign_memory\"");
  EXPECT_EQ(Reason(1), "\"programs outside Tandem hold 30 MiB of the GPU\"");
}

TEST_F(StandingTest, AWaitThatASessionCanEndNamesNone) {
  Join(1, 11);
  Join(2, 12);
  Want(1, MiB(40));
  Say(1, wire::Running{1, 0});
  Want(2, MiB(32));
  EXPECT_EQ(Code(1), "\"turn\"");
}

}  // namespace
}  // namespace tandem::service
