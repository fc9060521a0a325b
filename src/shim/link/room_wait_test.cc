#include "src/shim/link/room_wait.h"

#include <gtest/gtest.h>

namespace tandem::shim {
namespace {

constexpr Instant kStart(1000000000);
constexpr Duration kBound = Seconds(60);

bool Says(const std::optional<std::string>& line, const char* words) {
  return line.has_value() && line->find(words) != std::string::npos;
}

TEST(RoomWaitTest, SaysOnceAfterASecondWhatItWaitsFor) {
  RoomWait wait("60 MiB that cannot be swapped", true, kStart);
  EXPECT_FALSE(wait.OnPending(kStart + Milliseconds(999), true, kBound).has_value());
  const auto line = wait.OnPending(kStart + Seconds(1), true, kBound);
  EXPECT_TRUE(Says(line, "room on the card for 60 MiB that cannot be swapped"));
  EXPECT_TRUE(Says(line, "`tandem ps`"));
  EXPECT_TRUE(Says(line, "for 60 s, this program is told that memory is out"));
  EXPECT_TRUE(Says(line, "a smaller size"));
  EXPECT_FALSE(wait.OnPending(kStart + Seconds(2), true, kBound).has_value());
}

TEST(RoomWaitTest, IsSilentWhileItDoesNotCount) {
  RoomWait wait("one more context", false, kStart);
  EXPECT_FALSE(wait.OnPending(kStart + Seconds(5), false, kBound).has_value());
  EXPECT_FALSE(wait.OnPending(kStart + Milliseconds(5900), true, kBound).has_value());
  const auto line = wait.OnPending(kStart + Seconds(6), true, Duration());
  EXPECT_TRUE(Says(line, "room on the card for one more context"));
  EXPECT_FALSE(Says(line, "memory is out"));  // by a daemon that does not say when
  EXPECT_FALSE(Says(line, "a smaller size"));
}

TEST(RoomWaitTest, SaysHowLongItWaitedInVain) {
  RoomWait wait("60 MiB that cannot be swapped", true, kStart);
  EXPECT_FALSE(wait.OnRefused(kStart + Milliseconds(1)).has_value());  // as the driver would
  EXPECT_TRUE(wait.OnPending(kStart + Seconds(1), true, kBound).has_value());
  const auto line = wait.OnRefused(kStart + Milliseconds(60010));
  EXPECT_TRUE(Says(line, "no room on the card for 60 MiB that cannot be swapped within 60 s"));
  EXPECT_TRUE(Says(line, "--fixed-wait"));
}

}  // namespace
}  // namespace tandem::shim
