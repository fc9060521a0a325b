// Of programs that a compiler makes: how they find their libraries.
#include <gtest/gtest.h>

#include "src/cli/doctor/library_paths.h"
#include "src/cli/doctor/machine_test.h"

namespace tandem::cli {
namespace {

class ProgramCheckTest : public DoctorTest {
 protected:
  // Links a program with these options.
  std::string Link(const std::string& name, const std::string& options) const {
    const std::string file = machine_.root + "/" + name;
    const std::string command =
        "echo 'int main() { return 0; }' | cc -x c - -o " + file + " " + options;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return file;
  }

  // The only finding about the program. Its libraries are outside the machine's root.
  Finding Check(const std::string& program) {
    Machine machine = machine_;
    machine.root.clear();
    machine.program = program;
    const Findings findings = CheckProgram(machine);
    EXPECT_EQ(findings.size(), 1u);
    return findings.front();
  }
};

TEST_F(ProgramCheckTest, PathsAreReadFromTheFile) {
  using Paths = std::vector<std::string>;
  const std::string both = Link("rpath", "-Wl,--disable-new-dtags,-rpath,/a:'$ORIGIN/lib'::/b");
  EXPECT_EQ(LibraryPathsOf(both).rpath,
            (Paths{"/a", std::filesystem::canonical(machine_.root).string() + "/lib", "/b"}));
  EXPECT_EQ(LibraryPathsOf(both).runpath, Paths());
  const std::string runpath = Link("runpath", "-Wl,--enable-new-dtags,-rpath,/a");
  EXPECT_EQ(LibraryPathsOf(runpath).runpath, Paths{"/a"});
  EXPECT_EQ(LibraryPathsOf(runpath).rpath, Paths());
  EXPECT_EQ(LibraryPathsOf(Link("plain", "")).rpath, Paths());
  Write("/text", "no program");
  EXPECT_EQ(LibraryPathsOf(machine_.root + "/text").rpath, Paths());
}

TEST_F(ProgramCheckTest, AProgramWithAPathToAnotherDriver) {
  Write("/lib/libcuda.so.1", "");
  const std::string before = Link("before", "-Wl,--disable-new-dtags,-rpath,'$ORIGIN/lib'");
  const std::string after = Link("after", "-Wl,--enable-new-dtags,-rpath,'$ORIGIN/lib'");
  ExpectFinding(Check(before), Severity::kProblem, "program_rpath", {"/lib,", "patchelf"});
  ExpectFinding(Check(after), Severity::kOk, "program_fine");
  UseCard();
  ExpectFinding(Check(before), Severity::kWarning, "program_libcuda", {"/lib,"});
  ExpectFinding(Check(after), Severity::kWarning, "program_libcuda", {"/lib,"});
  std::filesystem::remove(machine_.root + "/lib/libcuda.so.1");
  ExpectFinding(Check(after), Severity::kOk, "program_fine");
}

TEST_F(ProgramCheckTest, AScriptStandsForItsInterpreter) {
  Write("/lib/libcuda.so.1", "");
  const std::string program = Link("program", "-Wl,--disable-new-dtags,-rpath,'$ORIGIN/lib'");
  Write("/script", "#!" + program + "\n");
  std::filesystem::permissions(machine_.root + "/script", std::filesystem::perms::owner_all);
  ExpectFinding(Check(machine_.root + "/script"), Severity::kProblem, "program_rpath");
}

TEST_F(ProgramCheckTest, AProgramThatTakesNoShim) {
  ExpectFinding(Check(Link("static", "-static")), Severity::kProblem, "program_not_shareable",
                {"statically linked", "--unshared"});
  ExpectFinding(Check("/no/such/program"), Severity::kProblem, "program_missing",
                {"/no/such/program"});
  ExpectFinding(Check("sh"), Severity::kOk, "program_fine", {"/sh can be shared"});
}

}  // namespace
}  // namespace tandem::cli
