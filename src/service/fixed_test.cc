// Memory that cannot be swapped: what sessions are told of it.
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

TEST_F(ServiceTest, WaitersAreToldWhoNeedsTheRoomForWhatCannotBeSwapped) {
  Join(1, 11);
  Join(2, 12);
  EXPECT_EQ(pages_.at(1)->decisions_.fixed_wait_ms.load(), 60000u);
  Say(1, wire::Reserve{1, MiB(90).count});
  Say(2, wire::FixedWanted{1, MiB(20).count});
  EXPECT_EQ(
      Ask("sessions")["sessions"][1]["reason"],
      "no room for 20 MiB that cannot be swapped; session 1 needs 90 MiB of the card to run at "
      "all");
  Say(1, wire::Reserve{2, MiB(80).count});
  EXPECT_EQ(Heard<wire::FixedReserved>(2).granted, 1);
}

TEST_F(ServiceTest, OneThatIsResumedIsToldWhatKeepsItOut) {
  Join(1, 11);
  Join(2, 12);
  Want(1, MiB(90));
  Say(1, wire::Released{1});
  Connect(7, 77);
  Say(7, wire::Control{"suspend", "1", 0});
  Say(1, wire::Evicted{0, 0});
  Say(2, wire::FixedWanted{1, MiB(20).count});
  EXPECT_EQ(Heard<wire::FixedReserved>(2).granted, 1);
  Say(1, wire::Ready{MiB(90).count});
  Connect(8, 77);
  Say(8, wire::Control{"resume", "1", 0});
  EXPECT_EQ(Ask("sessions")["sessions"][0]["reason"], "others keep 20 MiB that cannot be swapped");
}

TEST_F(ServiceTest, AllAreToldWhatFitsBesideFixedMemoryInCaseTheDaemonGoes) {
  Join(1, 11);
  Join(2, 12);
  EXPECT_EQ(Bytes(pages_.at(0)->decisions_.most_allocated_bytes.load()), MiB(100));
  Say(2, wire::FixedWanted{1, MiB(20).count});
  EXPECT_EQ(Bytes(pages_.at(0)->decisions_.most_allocated_bytes.load()), MiB(80));
  EXPECT_EQ(Bytes(pages_.at(1)->decisions_.most_allocated_bytes.load()), MiB(80));
  Say(2, wire::FixedGone{MiB(20).count});
  EXPECT_EQ(Bytes(pages_.at(0)->decisions_.most_allocated_bytes.load()), MiB(100));
}

}  // namespace
}  // namespace tandem::service
