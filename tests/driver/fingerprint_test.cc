// The kernel by which the shim sees what was modified (src/shim/swap/fingerprint.ptx), against the
// same on the host.
#include <algorithm>
#include <cstring>
#include <vector>

#include "src/shim/swap/fingerprint.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

using shim::Fingerprint;
using shim::FingerprintSums;

constexpr size_t kInputs = 8;
struct Input {
  uint64_t address, units, blocks, unused;
};
constexpr size_t kSums = kInputs * sizeof(Input);
constexpr size_t kSumsOfChunk = shim::kFingerprintBlocks * sizeof(FingerprintSums);

class FingerprintTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(shim::MakeFingerprintKey(&key_));
    ASSERT_CU(Cu().cuModuleLoadData(&kernels_, shim::kFingerprintKernel));
    ASSERT_CU(Cu().cuModuleGetFunction(&kernel_, kernels_, "tandem_fingerprint"));
    batch_ = Allocate(kSums + kInputs * kSumsOfChunk);
  }

  // One launch for all.
  void Launch(const std::vector<Input>& inputs) {
    unsigned int blocks = 0;
    for (const Input& input : inputs) {
      blocks = std::max(blocks, static_cast<unsigned int>(input.blocks));
    }
    ASSERT_CU(Cu().cuMemcpyHtoD_v2(batch_, inputs.data(), inputs.size() * sizeof(Input)));
    void* parameters[] = {&batch_, &key_};
    ASSERT_CU(Cu().cuLaunchKernel(kernel_, blocks, static_cast<unsigned int>(inputs.size()), 1,
                                  shim::kFingerprintThreads, 1, 1, 0, nullptr, parameters,
                                  nullptr));
  }

  Fingerprint Result(size_t chunk, uint64_t blocks) {
    const auto bytes = Read(batch_ + kSums + chunk * kSumsOfChunk, kSumsOfChunk);
    std::vector<FingerprintSums> sums(blocks);
    std::memcpy(sums.data(), bytes.data(), blocks * sizeof(FingerprintSums));
    return Combine(key_, sums);
  }

  Fingerprint Expected(const std::vector<uint8_t>& bytes) const {
    std::vector<uint32_t> words(bytes.size() / 4);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    std::vector<FingerprintSums> sums;
    for (uint64_t block = 0; block < shim::FingerprintBlocks(bytes.size()); ++block) {
      sums.push_back(SumsOfBlock(key_, words.data(), bytes.size(), block));
    }
    return Combine(key_, sums);
  }

  shim::FingerprintKey key_;
  CUmodule kernels_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUdeviceptr batch_ = 0;
};

TEST_F(FingerprintTest, IsTheSameAsOnTheHost) {
  std::vector<Input> inputs;
  std::vector<std::vector<uint8_t>> contents;
  for (const size_t pages : {1, 3, 8}) {
    contents.push_back(Pattern(pages * kPage, static_cast<uint32_t>(pages)));
    const CUdeviceptr chunk = Allocate(pages * kPage);
    Write(chunk, contents.back());
    inputs.push_back(
        {chunk, pages * kPage / shim::kFingerprintUnit, shim::FingerprintBlocks(pages * kPage), 0});
  }
  contents.emplace_back(2 * kPage, 0xff);  // the largest sums
  const CUdeviceptr ones = Allocate(2 * kPage);
  Write(ones, contents.back());
  inputs.push_back(
      {ones, 2 * kPage / shim::kFingerprintUnit, shim::FingerprintBlocks(2 * kPage), 0});
  Launch(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(Result(i, inputs[i].blocks), Expected(contents[i])) << i;
  }
}

TEST_F(FingerprintTest, EveryBitCounts) {
  const CUdeviceptr chunk = Allocate(kPage);
  ASSERT_CU(Cu().cuMemsetD8_v2(chunk, 0, kPage));
  const std::vector<Input> inputs = {
      {chunk, kPage / shim::kFingerprintUnit, shim::FingerprintBlocks(kPage), 0}};
  Launch(inputs);
  const Fingerprint before = Result(0, inputs[0].blocks);
  for (const size_t at : {size_t{0}, size_t{4}, kPage / 2 + 20, kPage - 1}) {
    ASSERT_CU(Cu().cuMemsetD8_v2(chunk + at, 0x10, 1));
    Launch(inputs);
    EXPECT_NE(Result(0, inputs[0].blocks), before) << at;
    ASSERT_CU(Cu().cuMemsetD8_v2(chunk + at, 0, 1));
  }
}

}  // namespace
}  // namespace tandem::driver_test
