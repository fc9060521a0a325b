// What the compiler's log says of texts that are refused, whichever call they come by; and which
// devices' code is taken.
#include <cstring>
#include <string>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

constexpr char kHead[] = PTX_HEAD;

// A buffer for the log of errors, and the options that ask for it.
class ErrorLog {
 public:
  explicit ErrorLog(size_t room = sizeof(text_)) : room_(room) { Renew(); }
  void Renew() {
    std::memset(text_, 0, sizeof(text_));
    values_[0] = text_;
    values_[1] = reinterpret_cast<void*>(room_);
  }
  unsigned int count() const { return 2; }
  CUjit_option* options() { return options_; }
  void** values() { return values_; }
  std::string text() const { return text_; }
  // What stands in the option's place afterwards; the slot's upper half is not the driver's.
  size_t length() const { return reinterpret_cast<uintptr_t>(values_[1]) & 0xffff'ffff; }

 private:
  size_t room_;
  char text_[4096];
  CUjit_option options_[2] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values_[2];
};

struct Refusal {
  const char* body;  // what follows the head
  const char *line, *instruction;
  bool by_software_alone;  // a card takes it
};

class JitLogTest : public DriverTest {
 protected:
  // By each call that compiles.
  void ExpectRefused(const Refusal& refusal, ErrorLog* log) {
    const std::string text = kHead + std::string(refusal.body);
    CUmodule module = nullptr;
    log->Renew();
    EXPECT_CU(CUDA_ERROR_INVALID_PTX, Cu().cuModuleLoadDataEx(&module, text.c_str(), log->count(),
                                                              log->options(), log->values()));
    ExpectLog(refusal, *log, "cuModuleLoadDataEx");
    if (Cu().cuLibraryLoadData != nullptr) {
      CUlibrary library = nullptr;
      log->Renew();
      EXPECT_CU(CUDA_ERROR_INVALID_PTX,
                Cu().cuLibraryLoadData(&library, text.c_str(), log->options(), log->values(),
                                       log->count(), nullptr, nullptr, 0));
      ExpectLog(refusal, *log, "cuLibraryLoadData");
    }
    CUlinkState state = nullptr;
    log->Renew();
    ASSERT_CU(Cu().cuLinkCreate_v2(log->count(), log->options(), log->values(), &state));
    std::string data = text;
    EXPECT_CU(CUDA_ERROR_INVALID_PTX,
              Cu().cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, data.data(), data.size() + 1, "text",
                                    0, nullptr, nullptr));
    ExpectLog(refusal, *log, "cuLinkAddData_v2");
    ASSERT_CU(Cu().cuLinkDestroy(state));
  }

  static void ExpectLog(const Refusal& refusal, const ErrorLog& log, const char* call) {
    SCOPED_TRACE(call);
    EXPECT_NE(log.text().find(refusal.line), std::string::npos) << log.text();
    EXPECT_NE(log.text().find(refusal.instruction), std::string::npos) << log.text();
    // A driver may count the end of the string.
    EXPECT_GE(log.length(), log.text().size());
    EXPECT_LE(log.length(), log.text().size() + 1);
  }
};

TEST_F(JitLogTest, NamesTheLineAndTheInstruction) {
  const Refusal kRefusals[] = {
      {".visible .entry k()\n{\n  frobnicate.u32 %r1, %r2;\n}\n", "line 6", "frobnicate", false},
      {".visible .entry k()\n{\n  .reg .b32 %r<3>;\n\n  add.q32 %r1, %r2, %r2;\n  ret;\n}\n",
       "line 8", "add", false},
      {".visible .entry k()\n{\n  .reg .b32 %r<3>;\n  // A comment.\n  /* And\n  one more. */\n"
       "  popc.u32 %r1, %r2; ret;\n}\n",
       "line 10", "popc", false},
      {".func unused()\n{\n  .reg .f32 %f<3>;\n  add.rn.sat.rz.f32 %f1, %f2, %f2;\n  ret;\n}\n"
       ".visible .entry k()\n{\n  ret;\n}\n",
       "line 7", "add", false},
      {".visible .entry k()\n{\n  .reg .f32 %f<8>; .reg .b64 %d;\n  mov.u64 %d, 0;\n"
       "  tex.cube.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d, {%f4, %f5, %f6, %f7}];\n  ret;\n}\n",
       "line 8", "tex", true},
      {".func self()\n{\n  call self;\n  ret;\n}\n.visible .entry k()\n{\n  call self;\n  "
       "ret;\n}\n",
       "line 6", "recursion", true},
      {".func odd();\n.func even()\n{\n  call odd;\n  ret;\n}\n.func odd()\n{\n  call even;\n"
       "  ret;\n}\n.visible .entry k()\n{\n  call even;\n  ret;\n}\n",
       "line 12", "recursion", true},
  };
  ErrorLog log;
  for (const Refusal& refusal : kRefusals) {
    SCOPED_TRACE(refusal.body);
    if (refusal.by_software_alone && !OnSoftwareGpu()) continue;
    ExpectRefused(refusal, &log);
  }
}

TEST_F(JitLogTest, SaysHowMuchOfItFits) {
  ErrorLog log(8);
  CUmodule module = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_PTX,
            Cu().cuModuleLoadDataEx(&module, (kHead + std::string("nonsense")).c_str(), log.count(),
                                    log.options(), log.values()));
  EXPECT_LE(log.text().size(), 7u);
  EXPECT_LE(log.length(), 8u);
  EXPECT_GE(log.length(), log.text().size());
}

// The software GPU has compute capability 8.6.
TEST_F(JitLogTest, TakesCodeForDevicesUpToItsOwn) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "cards differ in what they take";
  for (const char* target : {"sm_20", "sm_75", "sm_80", "sm_86"}) {
    SCOPED_TRACE(target);
    CUmodule module = nullptr;
    const std::string text = std::string(".version 7.8\n.target ") + target +
                             "\n.address_size 64\n.visible .entry k() { ret; }\n";
    ASSERT_CU(Cu().cuModuleLoadData(&module, text.c_str()));
    ASSERT_CU(Cu().cuModuleUnload(module));
  }
  for (const char* target : {"sm_87", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120f"}) {
    SCOPED_TRACE(target);
    const std::string text = std::string(".version 8.8\n.target ") + target +
                             "\n.address_size 64\n.visible .entry k() { ret; }\n";
    CUmodule module = nullptr;
    CUlibrary library = nullptr;
    ErrorLog log;
    EXPECT_CU(CUDA_ERROR_NO_BINARY_FOR_GPU, Cu().cuModuleLoadData(&module, text.c_str()));
    EXPECT_CU(
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        Cu().cuModuleLoadDataEx(&module, text.c_str(), log.count(), log.options(), log.values()));
    EXPECT_NE(log.text().find("newer device"), std::string::npos) << log.text();
    EXPECT_CU(
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        Cu().cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    EXPECT_EQ(module, nullptr);
    EXPECT_EQ(library, nullptr);
  }
}

}  // namespace
}  // namespace tandem::driver_test
