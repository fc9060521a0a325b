// What kernels have of the system: printing, assertions, a heap and clocks.
#include <algorithm>
#include <sstream>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

std::string Text(const std::string& name, const std::string& text) {
  std::string bytes;
  for (const char c : text) bytes += std::to_string(static_cast<int>(c)) + ", ";
  return ".global .align 1 .b8 " + name + "[" + std::to_string(text.size() + 1) + "] = {" + bytes +
         "0};\n";
}

// say(out, number): prints the number and its thread and three values more, and writes what vprintf
// returns. check(limit): asserts that the thread is below the limit. watch(out): writes %clock64,
// %clock, %clock64 and %globaltimer, twice, the second time once the timer has moved on.
std::string SystemKernels() {
  return PTX_HEAD R"(
.extern .func (.param .b32 count) vprintf(.param .b64 format, .param .b64 values);
.extern .func __assertfail(.param .b64 message, .param .b64 file, .param .b32 line,
                           .param .b64 function, .param .b64 char_bytes);
)" + Text("format", "%d.%d %s %.3f %llx 100%%\n") +
         Text("word", "word") + Text("message", "x < 3") + Text("file", "a.cu") +
         Text("function", "void k()") + R"(
.visible .entry say(.param .u64 out, .param .u32 number)
{
  .local .align 8 .b8 values[32];
  .reg .b32 %r<3>; .reg .b64 %d<5>; .reg .f64 %f;
  ld.param.u32 %r0, [number]; st.local.u32 [values], %r0;
  mov.u32 %r1, %tid.x; st.local.u32 [values+4], %r1;
  mov.u64 %d0, word; cvta.global.u64 %d0, %d0; st.local.u64 [values+8], %d0;
  mov.f64 %f, 0dC002000000000000; st.local.f64 [values+16], %f;
  mov.u64 %d0, 0xfedcba9876543210; st.local.u64 [values+24], %d0;
  mov.u64 %d1, format; cvta.global.u64 %d1, %d1;
  mov.u64 %d2, values; cvta.local.u64 %d2, %d2;
  {
    .param .b64 param0; st.param.b64 [param0+0], %d1;
    .param .b64 param1; st.param.b64 [param1+0], %d2;
    .param .b32 retval0;
    call.uni (retval0), vprintf, (param0, param1);
    ld.param.b32 %r2, [retval0+0];
  }
  ld.param.u64 %d3, [out]; cvta.to.global.u64 %d3, %d3;
  mul.wide.u32 %d4, %r1, 4; add.u64 %d3, %d3, %d4;
  st.global.u32 [%d3], %r2;
  ret;
}
.visible .entry check(.param .u32 limit)
{
  .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d<4>;
  ld.param.u32 %r0, [limit]; mov.u32 %r1, %tid.x;
  setp.lt.u32 %p, %r1, %r0;
  @%p bra FINE;
  mov.u64 %d0, message; cvta.global.u64 %d0, %d0;
  mov.u64 %d1, file; cvta.global.u64 %d1, %d1;
  mov.u32 %r2, 12;
  mov.u64 %d2, function; cvta.global.u64 %d2, %d2;
  mov.u64 %d3, 1;
  {
    .param .b64 param0; st.param.b64 [param0+0], %d0;
    .param .b64 param1; st.param.b64 [param1+0], %d1;
    .param .b32 param2; st.param.b32 [param2+0], %r2;
    .param .b64 param3; st.param.b64 [param3+0], %d2;
    .param .b64 param4; st.param.b64 [param4+0], %d3;
    call.uni __assertfail, (param0, param1, param2, param3, param4);
  }
FINE:
  ret;
}
.visible .entry watch(.param .u64 out)
{
  .reg .pred %p, %q; .reg .b32 %r<3>; .reg .b64 %d<6>;
  ld.param.u64 %d0, [out]; cvta.to.global.u64 %d0, %d0;
  mov.u64 %d1, %clock64; mov.u32 %r0, %clock; mov.u64 %d2, %clock64; mov.u64 %d3, %globaltimer;
  cvt.u64.u32 %d4, %r0;
  st.global.u64 [%d0], %d1; st.global.u64 [%d0+8], %d4;
  st.global.u64 [%d0+16], %d2; st.global.u64 [%d0+24], %d3;
  mov.u32 %r1, 0;
WAIT:  // at most a million times, should the timer stand still
  add.u32 %r1, %r1, 1; setp.lt.u32 %q, %r1, 1000000;
  mov.u64 %d5, %globaltimer;
  setp.eq.and.u64 %p, %d5, %d3, %q;
  @%p bra WAIT;
  mov.u64 %d1, %clock64; mov.u32 %r0, %clock; mov.u64 %d2, %clock64;
  cvt.u64.u32 %d4, %r0;
  st.global.u64 [%d0+32], %d1; st.global.u64 [%d0+40], %d4;
  st.global.u64 [%d0+48], %d2; st.global.u64 [%d0+56], %d5;
  ret;
}
)";
}

// take(out): writes where it has memory from the heap, with 40 in it, and what it gets where it
// asks for more than there is. give(out): adds 2 to what lies there, writes the sum and gives the
// memory back.
const char kHeapKernels[] = PTX_HEAD R"(
.extern .func (.param .b64 pointer) malloc(.param .b64 bytes);
.extern .func free(.param .b64 pointer);
.visible .entry take(.param .u64 out)
{
  .reg .b32 %r; .reg .b64 %d<4>;
  ld.param.u64 %d0, [out]; cvta.to.global.u64 %d0, %d0;
  mov.u64 %d1, 16; mov.u64 %d2, 0x10000000000;
  {
    .param .b64 param0; st.param.b64 [param0+0], %d1; .param .b64 retval0;
    call.uni (retval0), malloc, (param0);
    ld.param.b64 %d1, [retval0+0];
  }
  {
    .param .b64 param0; st.param.b64 [param0+0], %d2; .param .b64 retval0;
    call.uni (retval0), malloc, (param0);
    ld.param.b64 %d2, [retval0+0];
  }
  mov.u32 %r, 40; st.u32 [%d1], %r;
  st.global.u64 [%d0], %d1; st.global.u64 [%d0+8], %d2;
  ret;
}
.visible .entry give(.param .u64 out)
{
  .reg .b32 %r; .reg .b64 %d<2>;
  ld.param.u64 %d0, [out]; cvta.to.global.u64 %d0, %d0;
  ld.global.u64 %d1, [%d0];
  ld.u32 %r, [%d1]; add.u32 %r, %r, 2; st.global.u32 [%d0], %r;
  { .param .b64 param0; st.param.b64 [param0+0], %d1; call.uni free, (param0); }
  ret;
}
)";

class SystemTest : public DriverTest {
 protected:
  void Load(const std::string& kernels) {
    ASSERT_CU(Cu().cuModuleLoadData(&module_, kernels.c_str()));
    out_ = Allocate(64);
  }
  CUresult Say(int number, unsigned int threads, CUstream stream) {
    return Launch(Kernel("say"), 1, threads, stream, {&out_, &number});
  }
  static std::string Line(int number, int thread) {
    return std::to_string(number) + "." + std::to_string(thread) +
           " word -2.250 fedcba9876543210 100%\n";
  }
  template <typename T>
  std::vector<T> Values(size_t count) {
    std::vector<T> values(count);
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoH_v2(values.data(), out_, count * sizeof(T)));
    return values;
  }

  CUdeviceptr out_ = 0;
};

TEST_F(SystemTest, PrintsInTheOrderOfLaunches) {
  Load(SystemKernels());
  testing::internal::CaptureStdout();
  for (int number = -1; number < 4; ++number) EXPECT_CU(CUDA_SUCCESS, Say(number, 1, nullptr));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSynchronize());
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            Line(-1, 0) + Line(0, 0) + Line(1, 0) + Line(2, 0) + Line(3, 0));
  EXPECT_EQ(Values<int32_t>(1)[0], 5);  // how many values it printed
}

TEST_F(SystemTest, PrintsALineForEachThread) {
  Load(SystemKernels());
  testing::internal::CaptureStdout();
  EXPECT_CU(CUDA_SUCCESS, Say(7, 8, nullptr));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSynchronize());
  std::istringstream text(testing::internal::GetCapturedStdout());
  std::vector<std::string> lines, expected;
  for (std::string line; std::getline(text, line);) lines.push_back(line + "\n");
  for (int thread = 0; thread < 8; ++thread) expected.push_back(Line(7, thread));
  if (!OnSoftwareGpu()) std::ranges::sort(lines);  // a card's threads take no turns
  EXPECT_EQ(lines, expected);
}

// What waits for a kernel has its text, too.
TEST_F(SystemTest, PrintsBeforeAnyWaitIsOver) {
  Load(SystemKernels());
  CUstream stream = nullptr;
  CUevent event = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuEventCreate(&event, CU_EVENT_DEFAULT));
  const auto printed = [&](auto wait) {
    testing::internal::CaptureStdout();
    EXPECT_CU(CUDA_SUCCESS, Say(1, 1, stream));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuEventRecord(event, stream));
    EXPECT_CU(CUDA_SUCCESS, wait());
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(printed([] { return Cu().cuCtxSynchronize(); }), Line(1, 0));
  EXPECT_EQ(printed([&] { return Cu().cuStreamSynchronize(stream); }), Line(1, 0));
  EXPECT_EQ(printed([&] { return Cu().cuEventSynchronize(event); }), Line(1, 0));
  ASSERT_CU(Cu().cuEventDestroy_v2(event));
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
}

TEST_F(SystemTest, AFailedAssertionIsToldAndSticks) {
  Load(SystemKernels());
  const CUfunction check = Kernel("check");
  uint32_t limit = 3, word = 0;
  ASSERT_CU(Launch(check, 1, 3, nullptr, {&limit}));
  ASSERT_CU(Cu().cuCtxSynchronize());
  testing::internal::CaptureStderr();
  EXPECT_CU(CUDA_SUCCESS, Launch(check, 1, 4, nullptr, {&limit}));
  const CUresult result = Cu().cuCtxSynchronize();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "a.cu:12: void k(): block: [0,0,0], thread: [3,0,0] Assertion `x < 3` failed.\n");
  EXPECT_CU(CUDA_ERROR_ASSERT, result);
  EXPECT_CU(CUDA_ERROR_ASSERT, Cu().cuCtxSynchronize());
  EXPECT_CU(CUDA_ERROR_ASSERT, Cu().cuMemcpyDtoH_v2(&word, out_, sizeof(word)));
  EXPECT_CU(CUDA_ERROR_ASSERT, Launch(check, 1, 3, nullptr, {&limit}));
}

TEST_F(SystemTest, WhatAKernelAllocatesOutlivesIt) {
  Load(kHeapKernels);
  ASSERT_CU(Launch(Kernel("take"), 1, 1, nullptr, {&out_}));
  const auto pointers = Values<uint64_t>(2);
  ASSERT_NE(pointers[0], 0u);
  EXPECT_EQ(pointers[1], 0u);
  ASSERT_CU(Launch(Kernel("give"), 1, 1, nullptr, {&out_}));
  EXPECT_EQ(Values<uint32_t>(1)[0], 42u);
}

TEST_F(SystemTest, ClocksGoOn) {
  Load(SystemKernels());
  uint64_t before = 0;
  for (int launch = 0; launch < 2; ++launch) {
    ASSERT_CU(Launch(Kernel("watch"), 1, 1, nullptr, {&out_}));
    const auto seen = Values<uint64_t>(8);
    for (const size_t at : {0, 4}) {
      EXPECT_NE(seen[at], 0u);
      // %clock is the lower half of %clock64.
      EXPECT_LE(static_cast<uint32_t>(seen[at + 1] - seen[at]), seen[at + 2] - seen[at]);
    }
    EXPECT_LT(seen[0], seen[4]);
    EXPECT_LE(seen[0], seen[2]);
    EXPECT_LE(seen[4], seen[6]);
    EXPECT_NE(seen[3], 0u);
    EXPECT_LT(seen[3], seen[7]);
    EXPECT_LE(before, seen[3]);  // the timer is every launch's
    before = seen[7];
  }
}

}  // namespace
}  // namespace tandem::driver_test
