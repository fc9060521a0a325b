#include "softgpu/driver/linker.h"

#include <gtest/gtest.h>

#include "softgpu/ptx/program.h"

namespace tandem::soft {
namespace {

// The program that several texts are together.
std::shared_ptr<const ptx::Program> Joined(const std::vector<std::string>& texts,
                                           uint32_t max_registers = 0) {
  const std::string whole = JoinPtx(texts, max_registers);
  const auto program = ptx::Compile(whole);
  EXPECT_TRUE(program.ok()) << program.error().message << whole;
  return program.ok() ? *program : std::make_shared<ptx::Program>();
}

constexpr char kHead[] = ".version 6.0\n.target sm_50\n.address_size 64\n";

TEST(Linker, TakesTheLargestCommonVariable) {
  const std::string small = ".common .global .align 4 .b8 box[8];",
                    large = ".common .global .align 4 .b8 box[64]; // box[256]\n",
                    filled = ".common .global .align 4 .b8 box[16] = {1, 2, 3};",
                    strong = ".visible .global .align 4 .b8 box[4];";
  const auto bytes = [](const std::vector<std::string>& variables) {
    std::vector<std::string> texts;
    for (const std::string& variable : variables) texts.push_back(kHead + variable);
    const auto program = Joined(texts);
    const ptx::Variable* box = program->FindVariable("box");
    return box == nullptr ? 0 : box->size;
  };
  EXPECT_EQ(bytes({small, large, small}), 64u);
  EXPECT_EQ(bytes({large, small, large}), 64u);
  EXPECT_EQ(bytes({large, filled, small}), 16u);
  EXPECT_EQ(bytes({filled, large}), 16u);
  EXPECT_EQ(bytes({large, strong}), 4u);
}

TEST(Linker, AHeaderMayStandOnTheLineOfWhatFollows) {
  const auto program =
      Joined({".version 6.0 .target sm_50 .address_size 64 .visible .entry k(){ret;}",
              ".version 7.1\n.target sm_80, debug .file 1 \"a .visible b\"\n"
              "@@DWARF .byte 1\n.address_size 64 .visible .entry l(){ret;}",
              "/* .entry x */ .version 6.0 // .target sm_99\n.target sm_50\n.address_size 64\n"
              ".visible .entry m(){ret;}"});
  for (const char* name : {"k", "l", "m"}) EXPECT_NE(program->FindKernel(name), nullptr) << name;
}

TEST(Linker, AKernelsPragmaIsNotItsEnd) {
  const std::string text = std::string(kHead) + ".weak .entry k() .pragma \"a={\";\n{ ret; }";
  EXPECT_NE(Joined({text, text}, 16)->FindKernel("k"), nullptr);
}

TEST(Linker, CommentsSayNothing) {
  const auto program =
      Joined({std::string(kHead) + R"(
.func f(.param .b32 a) // a = count
{ ret; }
.global .u32 own /* box */;
.func g() /* .extern .weak { */ { ret; }
.visible .entry k() /* .maxnreg 7 */ // {
.maxntid 32, 1, 1
{ call f, (1); call g; ret; })",
              std::string(kHead) + ".global .u32 own; .visible .entry l() { ret; }"},
             16);
  EXPECT_NE(program->FindKernel("l"), nullptr);
  EXPECT_EQ(program->variables().size(), 2u);
  // A declaration has no body that a limit could come before.
  const std::string whole = JoinPtx({std::string(kHead) + ".visible .entry k() /* a=b */ ;"}, 16);
  EXPECT_EQ(whole.find(".maxnreg"), std::string::npos);
  EXPECT_NE(JoinPtx({std::string(kHead) + ".visible .entry k() { ret; }"}, 16).find(".maxnreg 16"),
            std::string::npos);
}

TEST(Linker, KnowsTheDeviceRuntimeByItsArchive) {
  const std::string kernel = R"(
.version 6.0
.target sm_60
.address_size 64
.extern .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.visible .entry together()
{
  .reg .b64 %d;
  {
    .param .b32 scope;
    .param .b64 handle;
    st.param.b32 [scope], 1;
    call (handle), cudaCGGetIntrinsicHandle, (scope);
    ld.param.b64 %d, [handle];
  }
  {
    .param .b64 handle;
    .param .b32 flags;
    .param .b32 result;
    st.param.b64 [handle], %d;
    st.param.b32 [flags], 0;
    call (result), cudaCGSynchronize, (handle, flags);
  }
  ret;
}
)";
  const std::string archive = "!<arch>\n//        24 `\ncuda_device_runtime.o/\n\n";
  const std::string other = "!<arch>\nother.o/        0 `\n";
  Linker linker(0, nullptr, nullptr);
  EXPECT_EQ(linker.Add(CU_JIT_INPUT_LIBRARY, other.data(), other.size(), "other"),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(linker.Add(CU_JIT_INPUT_LIBRARY, archive.data(), archive.size(), "runtime"),
            CUDA_SUCCESS);
  EXPECT_EQ(linker.Add(CU_JIT_INPUT_PTX, kernel.data(), kernel.size(), "kernel"), CUDA_SUCCESS);
  void* image = nullptr;
  EXPECT_EQ(linker.Complete(&image, nullptr), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tandem::soft
