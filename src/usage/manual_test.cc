#include "src/usage/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/usage/usage.h"

namespace tandem::usage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ManualPage, HasEveryCommandAndOptionThatIsNotHidden) {
  std::string value;
  CLI::App app{"Shares a GPU.\nWithout configuration.", "share"};
  CLI::App* run = app.add_subcommand("run", "Run it");
  run->add_option("--class", value, "How urgent it is")
      ->type_name("CLASS")
      ->check(IsOneOf({"batch", "interactive"}))
      ->envname("SHARE_CLASS");
  run->add_option("--seconds", value, "How long")->type_name("N")->default_str("60");
  run->add_option("program", value, "The program")->type_name("PROGRAM")->required();
  bool secret = false;
  run->add_flag("--secret", secret, "Not shown")->group("");
  run->footer("Example:\n  share run -- a\\b\n.hidden");
  app.add_subcommand("names", "Also not shown")->group("");
  const std::string page = ManualPage(app, 1, "1.2");
  EXPECT_THAT(page, testing::StartsWith(".TH SHARE 1 \"\" \"tandem 1.2\"\n"));
  EXPECT_THAT(page, HasSubstr("share \\- Shares a GPU.\n"));
  EXPECT_THAT(page, HasSubstr(".B share run\n[options] \\fIPROGRAM\\fR\n"));
  EXPECT_THAT(page,
              HasSubstr("\\fB\\-\\-class\\fR \\fICLASS\\fR\nHow urgent it is\n.br\n"
                        "Values: batch, interactive.\n.br\nVariable: \\fBSHARE_CLASS\\fR.\n"));
  EXPECT_THAT(page, HasSubstr("How long\n.br\nDefault: 60.\n"));
  EXPECT_THAT(page, HasSubstr("  share run \\-\\- a\\eb\n\\&.hidden\n"));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
  EXPECT_THAT(page, Not(HasSubstr("names")));
}

}  // namespace
}  // namespace tandem::usage
