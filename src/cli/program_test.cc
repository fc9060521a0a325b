#include "src/cli/program.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

namespace fs = std::filesystem;

class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    std::string name = testing::TempDir() + "programXXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~ProgramTest() override { fs::remove_all(dir_); }

  std::string Write(const std::string& name, const std::string& content, mode_t mode = 0755) {
    const std::string file = dir_ + "/" + name;
    std::ofstream(file) << content;
    chmod(file.c_str(), mode);
    return file;
  }

  // A 64-bit ELF header with one segment.
  static std::string Elf(uint32_t segment_type, unsigned char elf_class = ELFCLASS64) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = elf_class;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    Elf64_Phdr segment{};
    segment.p_type = segment_type;
    std::string bytes(sizeof header + sizeof segment, 0);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &segment, sizeof segment);
    return bytes;
  }

  std::optional<std::string> Why(const std::string& file) const {
    return WhyNotShareable(file, dir_, getuid());
  }

  std::string dir_;
};

TEST_F(ProgramTest, FindsTheFirstOneInPathThatCanBeExecuted) {
  Write("tool", "", 0644);
  fs::create_directory(dir_ + "/sub");
  const std::string tool = Write("sub/tool", "");
  EXPECT_EQ(*FindProgram("tool", dir_ + ":" + dir_ + "/sub"), tool);
  EXPECT_EQ(*FindProgram(tool, ""), tool);
}

TEST_F(ProgramTest, TellsMissingFromNotExecutable) {
  const std::string file = Write("file", "", 0644);
  EXPECT_EQ(FindProgram("file", dir_).error().code, ErrorCode::kRefused);
  EXPECT_EQ(FindProgram(file, "").error().code, ErrorCode::kRefused);
  EXPECT_EQ(FindProgram(dir_, "").error().code, ErrorCode::kRefused);
  EXPECT_EQ(FindProgram("other", dir_).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(FindProgram(dir_ + "/other", "").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(FindProgram("", dir_).error().code, ErrorCode::kNotFound);
}

TEST_F(ProgramTest, DynamicProgramsCanBeShared) {
  EXPECT_EQ(Why("/proc/self/exe"), std::nullopt);
  EXPECT_EQ(Why(Write("dynamic", Elf(PT_INTERP))), std::nullopt);
}

TEST_F(ProgramTest, StaticAndForeignOnesCannot) {
  EXPECT_THAT(Why(Write("static", Elf(PT_LOAD))), Optional(HasSubstr("statically linked")));
  EXPECT_THAT(Why(Write("small", Elf(PT_INTERP, ELFCLASS32))), Optional(HasSubstr("32-bit")));
}

TEST_F(ProgramTest, SetUidOnesCannot) {
  EXPECT_THAT(Why(Write("su", Elf(PT_INTERP), 04755)), Optional(HasSubstr("set-uid")));
  EXPECT_THAT(Why(Write("wall", Elf(PT_INTERP), 02755)), Optional(HasSubstr("set-gid")));
  EXPECT_EQ(Why(Write("lock", Elf(PT_INTERP), 02745)), std::nullopt);
}

TEST_F(ProgramTest, AScriptStandsForItsInterpreter) {
  const std::string interpreter = Write("lisp", Elf(PT_LOAD));
  EXPECT_THAT(Why(Write("script", "#! " + interpreter + " -x\ncode")),
              Optional(HasSubstr("lisp is statically linked")));
  EXPECT_THAT(Why(Write("by-env", "#!/usr/bin/env -S A=b lisp -x\n")),
              Optional(HasSubstr("lisp is statically linked")));
  EXPECT_EQ(Why(Write("shell", "#!/bin/sh\n")), std::nullopt);
  EXPECT_EQ(Why(Write("bare", "echo no first line\n")), std::nullopt);
}

TEST_F(ProgramTest, SurvivesNonsense) {
  EXPECT_EQ(Why(Write("loop", "#!" + dir_ + "/loop\n")), std::nullopt);
  EXPECT_EQ(Why(Write("empty", "")), std::nullopt);
  EXPECT_EQ(Why(Write("gone", "#!/nonexistent/interpreter\n")), std::nullopt);
  EXPECT_EQ(Why(Write("cut", std::string(ELFMAG, SELFMAG))), std::nullopt);
  EXPECT_NE(Why(Write("half", Elf(PT_INTERP).substr(0, sizeof(Elf64_Ehdr) + 8))), std::nullopt);
}

}  // namespace
}  // namespace tandem::cli
