#include "src/softgpu/linker.h"

#include <gtest/gtest.h>

namespace tandem::soft {
namespace {

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
