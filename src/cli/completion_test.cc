#include "src/cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "src/usage/usage.h"

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CompletionTest : public testing::Test {
 protected:
  CompletionTest() {
    CLI::App* run = app_.add_subcommand("run", "Run it");
    run->add_option("--memory", memory_);
    run->add_option("--class", class_)->check(usage::IsOneOf({"batch", "interactive"}));
    run->add_flag("--unshared");
    app_.add_subcommand("suspend", "Stop it")
        ->add_option("target", target_)
        ->type_name("SESSION|RUN");
    CLI::App* policy = app_.add_subcommand("policy", "Choose a rule");
    policy->add_option("target", target_)->type_name("GPU");
    policy->add_option("policy", class_)->check(usage::IsOneOf({"fair", "fcfs"}));
    app_.add_subcommand("hidden", "For shells")->group("");
    app_.add_subcommand("ps", "The user's own")->add_flag("--json");
  }

  // What bash offers for the last of `words`, which stand as in "tandem run".
  std::string Offered(const std::string& words) const {
    const std::string file = testing::TempDir() + "completion-" + std::to_string(getpid());
    std::ofstream(file) << CompletionScript("bash", app_)
                        << "tandem() { echo \"film $2\"; }\nCOMP_WORDS=(tandem " << words
                        << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_tandem\n"
                        << "printf '%s\\n' \"${COMPREPLY[@]}\"\n";
    FILE* bash = popen(("bash " + file + " 2>&1").c_str(), "r");
    std::string text = "\n";
    std::array<char, 4096> part;
    for (size_t n; (n = fread(part.data(), 1, part.size(), bash)) > 0;) text.append(part.data(), n);
    EXPECT_EQ(pclose(bash), 0);
    unlink(file.c_str());
    return text;
  }

  CLI::App app_;
  std::string memory_, class_, target_;
};

TEST_F(CompletionTest, KnowsCommandsAndOptions) {
  for (const std::string& shell : CompletionShells()) {
    EXPECT_THAT(CompletionScript(shell, app_), HasSubstr("ps")) << shell;
    EXPECT_THAT(CompletionScript(shell, app_), HasSubstr("json")) << shell;
  }
}

TEST_F(CompletionTest, QuotesForFish) {
  EXPECT_THAT(CompletionScript("fish", app_), HasSubstr(R"(-d 'The user\'s own')"));
}

TEST_F(CompletionTest, BashOffersCommandsAndTheirOptions) {
  EXPECT_THAT(Offered("p"), HasSubstr("\nps\n"));
  EXPECT_THAT(Offered("ps --"), HasSubstr("\n--json\n"));
  EXPECT_THAT(Offered("run --memory 8G --un"), HasSubstr("\n--unshared\n"));
}

TEST_F(CompletionTest, BashOffersTheValuesOfOptions) {
  EXPECT_EQ(Offered("run --class b"), "\nbatch\n");
  EXPECT_EQ(Offered("run --class ''"), "\nbatch\ninteractive\n");
  EXPECT_EQ(Offered("run --memory ''"), "\n\n") << "a size is typed";
  EXPECT_THAT(Offered("run --class batch --un"), HasSubstr("\n--unshared\n"));
}

TEST_F(CompletionTest, BashOffersNamesOfWhatRuns) {
  EXPECT_EQ(Offered("suspend f"), "\nfilm\n");
  EXPECT_THAT(Offered("suspend ''"), HasSubstr("\nsessions\n")) << "by `tandem names sessions`";
  EXPECT_THAT(Offered("policy ''"), HasSubstr("\ngpus\n"));
  EXPECT_EQ(Offered("policy film f"), "\nfair\nfcfs\n");
}

TEST_F(CompletionTest, HiddenCommandsStayHidden) {
  for (const std::string& shell : CompletionShells()) {
    EXPECT_THAT(CompletionScript(shell, app_), Not(HasSubstr("hidden"))) << shell;
  }
}

TEST_F(CompletionTest, FishOffersValuesNamesAndPrograms) {
  const std::string script = CompletionScript("fish", app_);
  EXPECT_THAT(script, HasSubstr("from run' -l class -x -a 'batch interactive'\n"));
  EXPECT_THAT(script, HasSubstr("from run' -l memory -r\n"));
  EXPECT_THAT(script, HasSubstr("from suspend' -f -a '(tandem names sessions)'\n"));
  EXPECT_THAT(script, HasSubstr("from run' -x -a '(__fish_complete_subcommand)'\n"));
}

TEST_F(CompletionTest, BashOffersProgramsOnlyWhereOneStands) {
  EXPECT_THAT(Offered("run --memory 8G -- unali"), HasSubstr("\nunalias\n"));
  EXPECT_THAT(Offered("run unali"), HasSubstr("\nunalias\n"));
  EXPECT_THAT(Offered("run --memory 8G unali"), HasSubstr("\nunalias\n"));
  EXPECT_THAT(Offered("run -- ls unali"), Not(HasSubstr("unalias")));
  EXPECT_THAT(Offered("run ls /etc/pass"), HasSubstr("\n/etc/passwd\n"));
  EXPECT_THAT(Offered("run -- ls --memory /etc/pass"), HasSubstr("\n/etc/passwd\n"));
}

}  // namespace
}  // namespace tandem::cli
