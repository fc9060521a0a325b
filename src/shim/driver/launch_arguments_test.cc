#include "src/shim/driver/launch_arguments.h"

#include <gtest/gtest.h>

#include <iterator>
#include <vector>

namespace tandem::shim {
namespace {

struct Pair {
  uint64_t first, second;
};

// A kernel of three parameters: an address, a number, and a structure with two addresses.
constexpr size_t kSizes[] = {8, 4, 16};

CUresult ParamInfo(size_t index, size_t* offset, size_t* size) {
  if (index >= std::size(kSizes)) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  *size = kSizes[index];
  return CUDA_SUCCESS;
}

class LaunchArgumentsTest : public testing::Test {
 protected:
  LaunchArgumentsTest() {
    real_.cuFuncGetParamInfo = [](CUfunction, size_t index, size_t* offset, size_t* size) {
      return ParamInfo(index, offset, size);
    };
  }
  std::vector<uint64_t> Words(void** parameters, void** extra = nullptr) {
    std::vector<uint64_t> words;
    EachArgumentWord(real_, nullptr, parameters, extra,
                     [&](uint64_t word) { words.push_back(word); });
    return words;
  }

  cuda::RealDriver real_;
  uint64_t address_ = 0x7000;
  uint32_t number_ = 5;
  Pair pair_{0x8000, 0x9000};
  void* parameters_[3] = {&address_, &number_, &pair_};
};

TEST_F(LaunchArgumentsTest, AreTheWordsOfAllParameters) {
  EXPECT_EQ(Words(parameters_), (std::vector<uint64_t>{0x7000, 0x8000, 0x9000}));
}

TEST_F(LaunchArgumentsTest, MayComeInOnePiece) {
  uint64_t piece[] = {0x7000, 5, 0x8000};
  size_t size = sizeof(piece);
  void* extra[] = {reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_POINTER_VALUE), piece,
                   reinterpret_cast<void*>(CU_LAUNCH_PARAM_BUFFER_SIZE_VALUE), &size, nullptr};
  EXPECT_EQ(Words(nullptr, extra), (std::vector<uint64_t>{0x7000, 5, 0x8000}));
  EXPECT_TRUE(Words(nullptr, nullptr).empty());
}

TEST_F(LaunchArgumentsTest, AreFoundByTheKernelOfALibraryToo) {
  real_.cuFuncGetParamInfo = [](CUfunction, size_t, size_t*, size_t*) -> CUresult {
    return CUDA_ERROR_INVALID_HANDLE;
  };
  EXPECT_TRUE(Words(parameters_).empty());
  real_.cuKernelGetParamInfo = [](CUkernel, size_t index, size_t* offset, size_t* size) {
    return ParamInfo(index, offset, size);
  };
  EXPECT_EQ(Words(parameters_).size(), 3u);
}

TEST_F(LaunchArgumentsTest, AreNotKnownWhereTheDriverCannotSay) {
  real_.cuFuncGetParamInfo = nullptr;
  EXPECT_TRUE(Words(parameters_).empty());
}

}  // namespace
}  // namespace tandem::shim
