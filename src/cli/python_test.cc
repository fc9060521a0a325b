#include "src/cli/python.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace tandem::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class PythonTest : public testing::Test {
 protected:
  PythonTest() {
    std::string name = testing::TempDir() + "pythonXXXXXX";
    root_ = mkdtemp(name.data());
    Write(root_ / "lib/tandem/python/tandem-command.py", 0644);
    Write(root_ / "venv/python3", 0755);
  }
  ~PythonTest() override { fs::remove_all(root_); }

  static void Write(const fs::path& file, mode_t mode) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "pass\n";
    chmod(file.c_str(), mode);
  }
  Result<Program> Command(const Environment& environment) const {
    return PythonCommand(root_ / "bin/tandem", {"notebook", "run", "--help"}, environment);
  }

  fs::path root_;
};

TEST_F(PythonTest, IsThatOfThePathAndIsToldWhereTandemIs) {
  const std::string path = "PATH=/nowhere:" + (root_ / "venv").string();
  const Result<Program> command = Command({path, "TANDEM_COMMAND=/old"});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ(command->file, root_ / "venv/python3");
  EXPECT_THAT(command->arguments,
              ElementsAre("python3", root_ / "lib/tandem/python/tandem-command.py", "notebook",
                          "run", "--help"));
  EXPECT_THAT(command->environment,
              ElementsAre(path, "TANDEM_COMMAND=" + (root_ / "bin/tandem").string()));
}

TEST_F(PythonTest, AnotherOneCanBeNamed) {
  Write(root_ / "other", 0755);
  const Result<Program> command = Command({"TANDEM_PYTHON=" + (root_ / "other").string()});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ(command->file, root_ / "other");
}

TEST_F(PythonTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(Command({"PATH=/nowhere"}).error().message, HasSubstr("install python3"));
  fs::remove_all(root_ / "lib");
  EXPECT_THAT(Command({}).error().message, HasSubstr("tandem-command.py is missing"));
}

TEST(PythonCommandTest, AllOtherCommandsAreTandemsOwn) {
  EXPECT_TRUE(IsPythonCommand({"jobs", "--json"}));
  EXPECT_FALSE(IsPythonCommand({"run", "jobs"}));
  EXPECT_FALSE(IsPythonCommand({}));
}

}  // namespace
}  // namespace tandem::cli
