#include "src/usage/usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace tandem::usage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(UsageTest, SizesHaveUnitsAndAnExample) {
  EXPECT_EQ(IsSize()(std::string("8G")), "");
  EXPECT_EQ(IsSize()(std::string("0")), "");
  EXPECT_THAT(IsSize()(std::string("8")), HasSubstr("'8' has no unit; write for example 8G"));
  EXPECT_THAT(IsSize()(std::string("lots")), HasSubstr("lots"));
  EXPECT_EQ(IsLimit()(std::string("1.5G")), "");
  EXPECT_THAT(IsLimit()(std::string("0")), HasSubstr("leaves the program no GPU memory"));
}

TEST(UsageTest, ARunsNameIsNoNumber) {
  EXPECT_EQ(IsRunName()(std::string("mnist")), "");
  EXPECT_EQ(IsRunName()(std::string("3rd")), "");
  EXPECT_EQ(IsRunName()(std::string("")), "");
  EXPECT_THAT(IsRunName()(std::string("17")), HasSubstr("as in run17"));
}

TEST(UsageTest, OneOfListsItsWordsAndSuggestsOne) {
  const CLI::Validator check =
      IsOneOf({"fair", "fcfs"}, [](const std::string& word) { return word == "hidden"; });
  EXPECT_EQ(check(std::string("fair")), "");
  EXPECT_EQ(check(std::string("hidden")), "");
  EXPECT_EQ(check(std::string("fcf")), "'fcf' is none of fair, fcfs; did you mean fcfs?");
  CLI::App app;
  std::string value;
  EXPECT_THAT(ValuesOf(*app.add_option("--policy", value)->type_name("NAME")->check(check)),
              ElementsAre("fair", "fcfs"));
  EXPECT_THAT(ValuesOf(*app.add_option("--other", value)), IsEmpty());
}

class UsageOfAppTest : public testing::Test {
 protected:
  UsageOfAppTest() {
    app_.add_option("--memory", memory_)->check(IsLimit())->envname("TANDEM_TEST_MEMORY");
    app_.add_flag("--watch");
  }
  std::optional<std::string> Unknown(const std::vector<std::string>& arguments) {
    return UnknownOption(app_, "tool", arguments);
  }
  // What is said on standard error; the status in `status_`.
  std::string Said(std::vector<std::string> reversed) {
    testing::internal::CaptureStderr();
    try {
      app_.parse(std::move(reversed));
    } catch (const CLI::ParseError& error) {
      status_ = Explain(app_, error);
    }
    return testing::internal::GetCapturedStderr();
  }

  CLI::App app_{"A tool", "tool"};
  std::string memory_;
  int status_ = 0;
};

TEST_F(UsageOfAppTest, AMistypedOptionGetsASuggestion) {
  EXPECT_THAT(Unknown({"--memry", "8G"}),
              Optional(std::string("tool has no option --memry; did you mean --memory?")));
  EXPECT_THAT(Unknown({"-memory=8G"}), Optional(HasSubstr("did you mean --memory?")));
  EXPECT_THAT(Unknown({"--everything"}), Optional(HasSubstr("`tool --help` lists")));
  EXPECT_EQ(Unknown({"--memory", "--memry", "--watch", "word", "-h"}), std::nullopt);
  EXPECT_EQ(Unknown({"--", "--memry"}), std::nullopt);
}

TEST_F(UsageOfAppTest, AMistakeIsOneLineAndStatusTwo) {
  EXPECT_EQ(Said({"8", "--memory"}),
            "tool: --memory: '8' has no unit; write for example 8G or 8M; `tool --help` says "
            "more\n");
  EXPECT_EQ(status_, 2);
  Said({"word"});
  EXPECT_EQ(status_, 2);
}

TEST_F(UsageOfAppTest, AMistakeInAVariableNamesIt) {
  setenv("TANDEM_TEST_MEMORY", "much", 1);
  EXPECT_THAT(Said({}), HasSubstr("(TANDEM_TEST_MEMORY is \"much\")"));
  unsetenv("TANDEM_TEST_MEMORY");
  EXPECT_EQ(status_, 2);
}

}  // namespace
}  // namespace tandem::usage
