#include "src/serve/sampler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tandem::serve {
namespace {

constexpr Duration kPatience = Seconds(100), kForever = Seconds(1000000);

TEST(SamplerTest, ManyClientsShareOneQuestion) {
  std::atomic<int> questions = 0;
  Sampler sampler(
      [&] {
        ++questions;
        return Snapshot();
      },
      kForever);
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 20; ++i) {
    clients.emplace_back([&] { answered += sampler.Latest(kPatience) != nullptr ? 1 : 0; });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 20);
  EXPECT_EQ(questions, 1);
}

TEST(SamplerTest, AsksNothingUnasked) {
  std::atomic<int> questions = 0;
  {
    Sampler sampler(
        [&] {
          ++questions;
          return Snapshot();
        },
        Duration());
    EXPECT_EQ(sampler.Next(0, kPatience)->number, 1U);
    EXPECT_EQ(sampler.Next(1, kPatience)->number, 2U);
  }
  EXPECT_EQ(questions, 2);
}

TEST(SamplerTest, KeepsTheInterval) {
  Sampler sampler([] { return Snapshot(); }, Milliseconds(20));
  const auto first = sampler.Next(0, kPatience);
  const auto second = sampler.Next(first->number, kPatience);
  EXPECT_GE(second->at, first->at + Milliseconds(20));
}

TEST(SamplerTest, PatienceAndStopEndWaits) {
  Sampler sampler([] { return Snapshot(); }, kForever);
  ASSERT_NE(sampler.Latest(kPatience), nullptr);
  EXPECT_EQ(sampler.Next(1, Milliseconds(1)), nullptr);
  std::thread waits([&] { EXPECT_EQ(sampler.Next(1, kForever), nullptr); });
  std::thread sleeps([&] { EXPECT_FALSE(sampler.Sleep(kForever)); });
  sampler.Stop();
  waits.join();
  sleeps.join();
}

}  // namespace
}  // namespace tandem::serve
