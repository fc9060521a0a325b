#include "src/cli/top/controls.h"

#include <gmock/gmock.h>

#include "src/cli/top/top_test.h"

namespace tandem::cli::top {
namespace {

using ::testing::HasSubstr;

class ControlsTest : public TopTest {
 protected:
  ControlsTest() { TakeTwo(10); }

  Effect Press(int key) { return controls_.Press(key, model_); }
  void Type(const std::string& text) {
    for (const char c : text) EXPECT_FALSE(Press(c).order.has_value());
  }

  View view_;
  Controls controls_{&view_};
};

TEST_F(ControlsTest, AnOrderIsGivenAfterAYesAlone) {
  EXPECT_FALSE(Press('z').order.has_value());
  EXPECT_EQ(view_.prompt, "Suspend mnist (3)? y/n");
  EXPECT_FALSE(Press('x').order.has_value());
  EXPECT_FALSE(Press(kKeyEnter).order.has_value());
  const auto order = Press('y').order;
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->what, "suspend");
  EXPECT_EQ(order->target, "3");
  EXPECT_EQ(view_.prompt, "");
  Press('r');
  EXPECT_FALSE(Press('n').order.has_value());
  EXPECT_FALSE(Press('y').order.has_value());
  Press('r');
  EXPECT_FALSE(Press(kKeyEscape).order.has_value());
  EXPECT_FALSE(Press('y').order.has_value());
}

// The order is about the one that the question names.
TEST_F(ControlsTest, AnOrderKeepsItsSubjectThoughTheListChanges) {
  Press('z');
  Take(11, Json::array({Gpu(0)}), Json::array({Session(2, "other"), Session(3, "mnist")}));
  EXPECT_EQ(Press('y').order->target, "3");
}

TEST_F(ControlsTest, ALimitIsTypedThenConfirmed) {
  Press('l');
  Type("4");
  Press(kKeyErase);
  Type("2G");
  Press(kKeyEnter);
  EXPECT_EQ(view_.prompt, "Limit the run of mnist (3) to 2 GiB? y/n");
  const auto order = Press('y').order;
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->what, "limit");
  EXPECT_EQ(order->limit_bytes, uint64_t{2} << 30);
  Press('l');
  Type("all");
  Press(kKeyEnter);
  EXPECT_EQ(Press('y').order->limit_bytes, 0u);
}

TEST_F(ControlsTest, WhatIsNoLimitIsSaid) {
  for (const char* text : {"8", "q", "0"}) {
    Press('l');
    Type(text);
    Press(kKeyEnter);
    EXPECT_EQ(view_.prompt, "");
    EXPECT_NE(view_.message, "");
    EXPECT_FALSE(Press('y').order.has_value());
  }
}

TEST_F(ControlsTest, TheArrowsStayWithinTheList) {
  EXPECT_EQ(view_.selected, "");
  Press(kKeyDown);
  EXPECT_EQ(view_.selected, "session 4");
  Press('j');
  EXPECT_EQ(view_.selected, "session 4");
  Press('k');
  EXPECT_EQ(view_.selected, "session 3");
  Press(kKeyPageDown);
  EXPECT_EQ(view_.selected, "session 4");
}

TEST_F(ControlsTest, OneUsersSessionsAreChosenByName) {
  Press('u');
  Type("anna");
  EXPECT_THAT(view_.prompt, HasSubstr("anna_"));
  Press(kKeyEnter);
  EXPECT_EQ(view_.user, "anna");
  EXPECT_TRUE(Choose(model_, view_).empty());
  Press('z');
  EXPECT_EQ(view_.message, "no session is selected");
  Press('u');
  Press(kKeyEnter);
  EXPECT_EQ(Choose(model_, view_).size(), 2u);
}

TEST_F(ControlsTest, TheOtherKeysChangeTheView) {
  EXPECT_TRUE(Press('q').quit);
  Press('h');
  EXPECT_EQ(view_.page, Page::kHelp);
  Press('?');
  EXPECT_EQ(view_.page, Page::kSessions);
  Press(kKeyEnter);
  EXPECT_EQ(view_.page, Page::kDetails);
  Press(kKeyEscape);
  EXPECT_EQ(view_.page, Page::kSessions);
  Press('p');
  EXPECT_TRUE(view_.paused);
  Press('t');
  EXPECT_TRUE(view_.tree);
  for (size_t i = 0; i < kSortNames.size(); ++i) {
    EXPECT_EQ(view_.sort, static_cast<Sort>(i));
    Press('s');
  }
  EXPECT_EQ(view_.sort, Sort::kGpu);
}

TEST_F(ControlsTest, SortsByWhatIsLarger) {
  Press('s');
  Take(11, Json::array({Gpu(0)}), Json::array({Session(3, "a", 1), Session(4, "b", 1)}));
  Take(12, Json::array({Gpu(0)}), Json::array({Session(3, "a", 1), Session(4, "b", 2)}));
  EXPECT_EQ(Choose(model_, view_).front().target, "4");
}

}  // namespace
}  // namespace tandem::cli::top
