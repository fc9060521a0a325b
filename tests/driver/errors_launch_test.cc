// What is refused, and how: kernels, by each call that launches one, for what the device lacks and
// after one that failed.
#include "softgpu/ptx/module_head.h"
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

class ErrorsLaunchTest : public ErrorsTest {
 protected:
  CUlaunchConfig config_ = {1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, 0};
};

TEST_F(ErrorsLaunchTest, MoreThreadsThanTheKernelIsFor) {
  const char* const text = PTX_HEAD ".visible .entry few() .maxntid 32, 1, 1 { ret; }\n";
  // The reference has more than one that may be meant.
  const Answers too_many = {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_INVALID_VALUE};
  CUmodule module = nullptr;
  CUfunction few = nullptr;
  TAKES(cuModuleLoadData, &module, text);
  TAKES(cuModuleGetFunction, &few, module, "few");
  config_.blockDimX = 33;
  REFUSES(too_many, cuLaunchKernel, few, 1, 1, 1, 33, 1, 1, 0, nullptr, nullptr, nullptr);
  REFUSES(too_many, cuLaunchKernelEx, &config_, few, nullptr, nullptr);
  REFUSES(too_many, cuLaunchCooperativeKernel, few, 1, 1, 1, 33, 1, 1, 0, nullptr, nullptr);
  TAKES(cuFuncSetBlockShape, few, 33, 1, 1);
  REFUSES(too_many, cuLaunch, few);
  REFUSES(too_many, cuLaunchGrid, few, 1, 1);
  REFUSES(too_many, cuLaunchGridAsync, few, 1, 1, nullptr);
}

TEST_F(ErrorsLaunchTest, MoreBlocksThatWaitForEachOtherThanFit) {
  const Answers too_large = {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_INVALID_VALUE};
  CUdeviceptr out = Allocate(4);
  uint32_t value = 1;
  void* parameters[] = {&out, &value};
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  config_.gridDimX = 1 << 20;
  config_.attrs = &attribute;
  config_.numAttrs = 1;
  const CUfunction store = Kernel("store");
  REFUSES(too_large, cuLaunchKernelEx, &config_, store, parameters, nullptr);
  REFUSES(too_large, cuLaunchCooperativeKernel, store, 1 << 20, 1, 1, 1, 1, 1, 0, nullptr,
          parameters);
}

TEST_F(ErrorsLaunchTest, AfterOneThatFailed) {
  const Answers failed = {CUDA_ERROR_LAUNCH_FAILED};
  CUdeviceptr out = Allocate(4);
  uint32_t value = 1;
  void* parameters[] = {&out, &value};
  const CUfunction store = Kernel("store");
  ASSERT_CU(Launch(Kernel("trap"), 1, 1, nullptr, {}));
  REFUSES(failed, cuCtxSynchronize);
  REFUSES(failed, cuLaunchKernel, store, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  REFUSES(failed, cuLaunchKernelEx, &config_, store, parameters, nullptr);
  REFUSES(failed, cuLaunchCooperativeKernel, store, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters);
  REFUSES(failed, cuLaunch, store);
  REFUSES(failed, cuLaunchGrid, store, 1, 1);
  REFUSES(failed, cuLaunchGridAsync, store, 1, 1, nullptr);
}

}  // namespace
}  // namespace tandem::driver_test
