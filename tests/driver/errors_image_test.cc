// What is refused, and how: code that a device cannot run, by each call that takes some.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

const Answers kTooNew = {CUDA_ERROR_UNSUPPORTED_PTX_VERSION};
const Answers kOtherCard = {CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_PTX};
const Answers kNoProgram = {CUDA_ERROR_INVALID_PTX, CUDA_ERROR_INVALID_IMAGE,
                            CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_BINARY_FOR_GPU,
                            CUDA_ERROR_INVALID_SOURCE};
// Machine code of no machine, which ends where its head does.
const Answers kNoMachine = {CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_IMAGE,
                            CUDA_ERROR_INVALID_SOURCE, CUDA_ERROR_INVALID_VALUE};
const Answers kNoImage = {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_SOURCE,
                          CUDA_ERROR_INVALID_VALUE};

class ErrorsImageTest : public ErrorsTest {
 protected:
  void TearDown() override {
    if (!path_.empty()) std::remove(path_.c_str());
    ErrorsTest::TearDown();
  }
  // The text in a file.
  const char* File(const char* text) {
    path_ = testing::TempDir() + "/tandem_image_" + std::to_string(getpid());
    std::ofstream(path_) << text;
    return path_.c_str();
  }

  CUmodule module_ = nullptr;
  CUlibrary library_ = nullptr;

 private:
  std::string path_;
};

constexpr char kFromTheFuture[] = ".version 99.0\n.target sm_50\n.address_size 64\n";
constexpr char kForAnother[] = ".version 6.3\n.target sm_999\n.address_size 64\n";
constexpr char kElf[64] =
    "\x7f"
    "ELF\x02\x01\x01";
constexpr char kNonsense[] = PTX_HEAD "this is no program\n";

TEST_F(ErrorsImageTest, OfALanguageThatIsTooNew) {
  const char* file = File(kFromTheFuture);
  REFUSES(kTooNew, cuModuleLoad, &module_, file);
  REFUSES(kTooNew, cuModuleLoadData, &module_, kFromTheFuture);
  REFUSES(kTooNew, cuModuleLoadDataEx, &module_, kFromTheFuture, 0, nullptr, nullptr);
  REFUSES(kTooNew, cuModuleLoadFatBinary, &module_, kFromTheFuture);
  REFUSES(kTooNew, cuLibraryLoadData, &library_, kFromTheFuture, nullptr, nullptr, 0, nullptr,
          nullptr, 0);
  REFUSES(kTooNew, cuLibraryLoadFromFile, &library_, file, nullptr, nullptr, 0, nullptr, nullptr,
          0);
}

TEST_F(ErrorsImageTest, ForAnotherCard) {
  const char* file = File(kForAnother);
  REFUSES(kOtherCard, cuModuleLoad, &module_, file);
  REFUSES(kOtherCard, cuModuleLoadData, &module_, kForAnother);
  REFUSES(kOtherCard, cuModuleLoadDataEx, &module_, kForAnother, 0, nullptr, nullptr);
  REFUSES(kOtherCard, cuModuleLoadFatBinary, &module_, kForAnother);
  REFUSES(kOtherCard, cuLibraryLoadData, &library_, kForAnother, nullptr, nullptr, 0, nullptr,
          nullptr, 0);
  REFUSES(kOtherCard, cuLibraryLoadFromFile, &library_, file, nullptr, nullptr, 0, nullptr, nullptr,
          0);
}

TEST_F(ErrorsImageTest, ThatIsNoProgram) {
  const char* file = File(kNonsense);
  REFUSES(kNoProgram, cuModuleLoad, &module_, file);
  REFUSES(kNoProgram, cuModuleLoadData, &module_, kNonsense);
  REFUSES(kNoProgram, cuModuleLoadDataEx, &module_, kNonsense, 0, nullptr, nullptr);
  REFUSES(kNoProgram, cuModuleLoadFatBinary, &module_, kNonsense);
  REFUSES(kNoProgram, cuLibraryLoadData, &library_, kNonsense, nullptr, nullptr, 0, nullptr,
          nullptr, 0);
  REFUSES(kNoProgram, cuLibraryLoadFromFile, &library_, file, nullptr, nullptr, 0, nullptr, nullptr,
          0);
}

TEST_F(ErrorsImageTest, ForTheLinker) {
  CUlinkState state = nullptr;
  TAKES(cuLinkCreate_v2, 0, nullptr, nullptr, &state);
  const auto text = [](const char* given) { return const_cast<char*>(given); };
  REFUSES(kTooNew, cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, text(kFromTheFuture),
          sizeof(kFromTheFuture), "a", 0, nullptr, nullptr);
  REFUSES(kTooNew, cuLinkAddFile_v2, state, CU_JIT_INPUT_PTX, File(kFromTheFuture), 0, nullptr,
          nullptr);
  REFUSES(kNoMachine, cuLinkAddData_v2, state, CU_JIT_INPUT_CUBIN, text(kElf), sizeof(kElf), "a", 0,
          nullptr, nullptr);
  REFUSES(kNoMachine, cuLinkAddFile_v2, state, CU_JIT_INPUT_CUBIN, File(kElf), 0, nullptr, nullptr);
  REFUSES(kNoImage, cuLinkAddData_v2, state, CU_JIT_INPUT_FATBINARY, text(kNonsense),
          sizeof(kNonsense), "a", 0, nullptr, nullptr);
  REFUSES(kNoImage, cuLinkAddFile_v2, state, CU_JIT_INPUT_FATBINARY, File(kNonsense), 0, nullptr,
          nullptr);
  REFUSES(kNoProgram, cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, text(kNonsense), sizeof(kNonsense),
          "a", 0, nullptr, nullptr);
  REFUSES(kNoProgram, cuLinkAddFile_v2, state, CU_JIT_INPUT_PTX, File(kNonsense), 0, nullptr,
          nullptr);
  REFUSES(kNullHandle, cuLinkAddFile_v2, nullptr, CU_JIT_INPUT_PTX, File(kKernels), 0, nullptr,
          nullptr);
  TAKES(cuLinkDestroy, state);
}

}  // namespace
}  // namespace tandem::driver_test
