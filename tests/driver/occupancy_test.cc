// How many blocks fit on a multiprocessor, beside the rules of NVIDIA's occupancy calculator for
// compute capability 7 and later: what a warp's registers and a block's shared memory are rounded
// up to, and that a warp takes its registers from one of four partitions.
#include <algorithm>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

constexpr int kWarp = 32, kPartitions = 4, kWarpRegisterStep = 256;

int RoundUp(int value, int step) {
  return (value + step - 1) / step * step;
}

// A kernel that has `values` words in registers at once.
std::string Text(const std::string& name, int values, int threads, int shared) {
  std::string text = ".visible .entry " + name + "(.param .u64 p) .maxntid " +
                     std::to_string(threads) + ", 1, 1\n{\n  .reg .b64 %rd1;\n  .reg .b32 %r<" +
                     std::to_string(values + 1) + ">;\n";
  if (shared > 0) text += "  .shared .align 4 .b8 buffer[" + std::to_string(shared) + "];\n";
  text += "  ld.param.u64 %rd1, [p];\n";
  for (int i = 1; i <= values; ++i) {
    text += "  ld.volatile.global.u32 %r" + std::to_string(i) + ", [%rd1+" + std::to_string(4 * i) +
            "];\n";
  }
  for (int i = values; i > 0; --i) {
    text += "  st.volatile.global.u32 [%rd1+" + std::to_string(4 * i) + "], %r" +
            std::to_string(values + 1 - i) + ";\n";
  }
  if (shared > 0) text += "  st.volatile.shared.u32 [buffer], %r1;\n";
  return text + "  ret;\n}\n";
}

class OccupancyTest : public DriverTest {
 protected:
  struct Loaded {
    CUfunction function = nullptr;
    int registers = 0, shared = 0, most_threads = 0;
  };

  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 7) {
      GTEST_SKIP() << "an older device has other rules";
    }
    shared_step_ = Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 8 ? 256 : 128;
    opt_in_ = Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    reserved_ = Attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
    LoadKernels();
  }

  static int Attribute(CUdevice_attribute attribute) {
    int value = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuDeviceGetAttribute(&value, attribute, 0));
    return value;
  }

  void LoadKernels() {
    constexpr int kShapes[][2] = {{2, 1024},  {14, 1024}, {27, 1024}, {40, 1000}, {56, 1024},
                                  {61, 1024}, {75, 512},  {110, 500}, {150, 256}, {230, 32}};
    std::string text = PTX_HEAD;
    std::vector<std::string> names;
    for (const auto& [values, threads] : kShapes) {
      for (const int shared : {0, 1000, 20000}) {
        names.push_back("k" + std::to_string(values) + "_" + std::to_string(shared));
        text += Text(names.back(), values, threads, shared);
      }
    }
    ASSERT_CU(Cu().cuModuleLoadData(&module_, text.c_str()));
    for (const std::string& name : names) {
      Loaded kernel;
      ASSERT_CU(Cu().cuModuleGetFunction(&kernel.function, module_, name.c_str()));
      const auto ask = [&](int* value, CUfunction_attribute attribute) {
        EXPECT_CU(CUDA_SUCCESS, Cu().cuFuncGetAttribute(value, attribute, kernel.function));
      };
      ask(&kernel.registers, CU_FUNC_ATTRIBUTE_NUM_REGS);
      ask(&kernel.shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
      ask(&kernel.most_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
      EXPECT_CU(CUDA_SUCCESS, Cu().cuFuncSetAttribute(
                                  kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  opt_in_ - kernel.shared));
      kernels_.push_back(kernel);
    }
  }

  // By the calculator's rules.
  int Expected(const Loaded& kernel, int threads, int dynamic) const {
    const int warps = RoundUp(threads, kWarp) / kWarp;
    const int of_warp = RoundUp(kernel.registers * kWarp, kWarpRegisterStep);
    if (of_warp * RoundUp(warps, kPartitions) >
        Attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)) {
      return 0;
    }
    const int registers = Attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
    const int shared = RoundUp(kernel.shared + dynamic + reserved_, shared_step_);
    const int all_shared = Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    return std::min({Attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
                     Attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / kWarp / warps,
                     registers / kPartitions / of_warp * kPartitions / warps,
                     shared == 0 ? all_shared : all_shared / shared});
  }
  static std::string Spelled(const Loaded& kernel, int threads, int dynamic) {
    return std::to_string(kernel.registers) + " registers, " + std::to_string(threads) +
           " threads, " + std::to_string(kernel.shared) + " + " + std::to_string(dynamic) +
           " bytes";
  }

  std::vector<Loaded> kernels_;
  int shared_step_ = 0, opt_in_ = 0, reserved_ = 0;
};

TEST_F(OccupancyTest, FollowsTheCalculator) {
  for (const Loaded& kernel : kernels_) {
    for (const int threads : {1, 32, 33, 64, 96, 128, 160, 256, 288, 384, 500, 512, 768, 1024}) {
      if (threads > kernel.most_threads) continue;
      for (const int dynamic :
           {0, 1, 24, 100, 1024, 4096, 11'000, 27'000, opt_in_ - kernel.shared}) {
        int blocks = -1;
        ASSERT_CU(Cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, kernel.function, threads, static_cast<size_t>(dynamic)));
        EXPECT_EQ(blocks, Expected(kernel, threads, dynamic)) << Spelled(kernel, threads, dynamic);
      }
    }
  }
}

// Whatever a kernel says of its largest block: one of them fits, and can be launched.
TEST_F(OccupancyTest, TheLargestBlockFits) {
  CUdeviceptr memory = Allocate(4096);
  for (const Loaded& kernel : kernels_) {
    EXPECT_GE(Expected(kernel, kernel.most_threads, 0), 1)
        << Spelled(kernel, kernel.most_threads, 0);
    const auto threads = static_cast<unsigned int>(kernel.most_threads);
    EXPECT_CU(CUDA_SUCCESS, Launch(kernel.function, 1, threads, nullptr, {&memory}));
    EXPECT_NE(Launch(kernel.function, 1, threads + 1, nullptr, {&memory}), CUDA_SUCCESS);
  }
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSynchronize());
}

TEST_F(OccupancyTest, SuggestsTheBestBlock) {
  for (const Loaded& kernel : kernels_) {
    for (const int limit : {0, 31, 100, 352}) {
      const int most = limit == 0 ? kernel.most_threads : std::min(limit, kernel.most_threads);
      int best = 0, best_blocks = 0;
      for (int size = RoundUp(most, kWarp); size > 0; size -= kWarp) {
        const int threads = std::min(size, most), blocks = Expected(kernel, threads, 1024);
        if (blocks * threads <= best * best_blocks) continue;
        best = threads;
        best_blocks = blocks;
      }
      int grid = 0, block = 0;
      ASSERT_CU(Cu().cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel.function, nullptr, 1024,
                                                      limit));
      EXPECT_EQ(block, best) << Spelled(kernel, most, 1024);
      EXPECT_EQ(grid, best_blocks * Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT))
          << Spelled(kernel, most, 1024);
    }
  }
}

TEST_F(OccupancyTest, SaysHowMuchSharedMemoryIsLeft) {
  if (Cu().cuOccupancyAvailableDynamicSMemPerBlock == nullptr) GTEST_SKIP() << "an older driver";
  for (const Loaded& kernel : kernels_) {
    for (const int threads : {32, 96, 256}) {
      if (threads > kernel.most_threads) continue;
      for (int blocks = 1; blocks <= Expected(kernel, threads, 0); ++blocks) {
        size_t bytes = 0;
        ASSERT_CU(
            Cu().cuOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel.function, blocks, threads));
        const int dynamic = static_cast<int>(bytes);
        // A card (H200, CUDA 13.0) leaves out what it reserves for each block.
        if (!OnSoftwareGpu()) continue;
        EXPECT_GE(Expected(kernel, threads, dynamic), blocks) << Spelled(kernel, threads, dynamic);
        if (kernel.shared + dynamic >= opt_in_) continue;
        EXPECT_LT(Expected(kernel, threads, dynamic + 1), blocks)
            << Spelled(kernel, threads, dynamic);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::driver_test
