#include "tests/soak/device.h"
#include "softgpu/ptx/module_head.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace soak {
namespace {

using tandem::MonotonicNow;

constexpr unsigned int kThreads = 128;
// For what should not fail for long. The daemon may refuse a context after a minute only.
constexpr tandem::Duration kPatience = tandem::Seconds(150);

constexpr char kPtx[] = PTX_HEAD R"(

.visible .entry add(.param .u64 out, .param .u32 value, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  ld.param.u32 %r2, [count];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra END;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r7, [%rd3];
  add.u32 %r7, %r7, %r1;
  st.global.u32 [%rd3], %r7;
END:
  ret;
}

.visible .entry pattern(.param .u64 out, .param .u32 seed, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<10>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [seed];
  ld.param.u32 %r2, [count];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra END;
  xor.b32 %r7, %r6, %r1;
  mul.lo.u32 %r7, %r7, 2654435761;
  shr.u32 %r8, %r7, 15;
  xor.b32 %r9, %r7, %r8;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r9;
END:
  ret;
}
)";

[[noreturn]] void Fail(const char* call, const std::string& why) {
  std::fprintf(stderr, "soak_worker: %s: %s\n", call, why.c_str());
  std::_Exit(2);
}

}  // namespace

void Check(const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) return;
  if (result == CUDA_ERROR_LAUNCH_FAILED || result == CUDA_ERROR_ECC_UNCORRECTABLE) {
    throw ContextBroken();
  }
  const char* const name = tandem::cuda::ErrorName(result);
  Fail(call, name != nullptr ? name : std::to_string(result));
}

Device::Device(int ordinal) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) Fail("dlopen", dlerror());
  driver_ = tandem::cuda::LoadRealDriver(
      library, [](void* handle, const char* symbol) { return dlsym(handle, symbol); });
  Check("cuInit", driver_.cuInit(0));
  Check("cuDeviceGet", driver_.cuDeviceGet(&device_, ordinal));
  Start();
}

void Device::Start() {
  const tandem::Instant begin = MonotonicNow();
  while (!Open(&own_)) {
    if (!Pause(begin)) Fail("cuCtxCreate", "no memory for a context");
  }
  for (int i = 0; i < kStreams; ++i) {
    // Both kinds; the legacy default stream, which waits for the first, is what copies may use.
    const unsigned int kind = i % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    streams_.push_back(nullptr);
    Do("cuStreamCreate", [&] { return driver_.cuStreamCreate(&streams_.back(), kind); });
  }
  Do("cuEventCreate", [&] { return driver_.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING); });
}

Device::~Device() {
  driver_.cuCtxDestroy_v2(own_.context);  // and all that is in it
}

void Device::StartAgain() {
  ++broken_;
  driver_.cuCtxDestroy_v2(own_.context);  // may say again what it met
  streams_.clear();
  Start();
}

bool Device::Pause(tandem::Instant begin) {
  ++again_;
  usleep(1000);
  return MonotonicNow() - begin < kPatience;
}

// False if there is no memory for it; then the context is destroyed again.
bool Device::Open(Context* made) {
  const auto out_of_memory = [](const char* call, CUresult result) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return true;
    Check(call, result);
    return false;
  };
  if (out_of_memory("cuCtxCreate", driver_.cuCtxCreate_v2(&made->context, 0, device_))) {
    return false;
  }
  if (out_of_memory("cuModuleLoadData", driver_.cuModuleLoadData(&made->module, kPtx))) {
    Check("cuCtxDestroy", driver_.cuCtxDestroy_v2(made->context));
    return false;
  }
  Check("cuModuleGetFunction", driver_.cuModuleGetFunction(&made->add, made->module, "add"));
  Check("cuModuleGetFunction",
        driver_.cuModuleGetFunction(&made->pattern, made->module, "pattern"));
  return true;
}

CUresult Device::Launch(CUfunction kernel, CUdeviceptr out, uint32_t value, uint64_t count,
                        CUstream stream) {
  uint32_t words = static_cast<uint32_t>(count);
  void* parameters[] = {&out, &value, &words};
  return driver_.cuLaunchKernel(kernel, (words + kThreads - 1) / kThreads, 1, 1, kThreads, 1, 1, 0,
                                stream, parameters, nullptr);
}

CUresult Device::LaunchAdd(CUdeviceptr out, uint32_t value, uint64_t count, int stream_index) {
  return Launch(current_->add, out, value, count, stream(stream_index));
}

void Device::Add(CUdeviceptr out, uint32_t value, uint64_t count, int stream_index) {
  Do("cuLaunchKernel", [&] { return LaunchAdd(out, value, count, stream_index); });
}

void Device::Pattern(CUdeviceptr out, uint32_t seed, uint64_t count, int stream_index) {
  const CUstream where = current_ == &own_ ? stream(stream_index) : nullptr;
  Do("cuLaunchKernel", [&] { return Launch(current_->pattern, out, seed, count, where); });
}

void Device::Order(int first, int later) {
  if (first == later) return;
  Do("cuEventRecord", [&] { return driver_.cuEventRecord(event_, stream(first)); });
  Do("cuStreamWaitEvent", [&] { return driver_.cuStreamWaitEvent(stream(later), event_, 0); });
}

void Device::Wait(int index) {
  Do("cuStreamSynchronize", [&] { return driver_.cuStreamSynchronize(stream(index)); });
}

bool Device::InAnotherContext(const std::function<void()>& work) {
  Context other;
  const bool made = Open(&other);
  if (made) {
    current_ = &other;
    try {
      work();
      Check("cuCtxDestroy", driver_.cuCtxDestroy_v2(other.context));
    } catch (const ContextBroken&) {
      ++broken_;
      driver_.cuCtxDestroy_v2(other.context);
    }
    current_ = &own_;
  }
  Check("cuCtxSetCurrent", driver_.cuCtxSetCurrent(own_.context));
  return made;
}

}  // namespace soak
