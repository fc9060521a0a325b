// Errors that have nothing to do with a call's arguments: each call that documents one is made with
// nothing, zeros and null pointers, where it has to give that error. documented_errors.def names
// the calls: a row IN_A_LOOP or AFTER_A_FAULT is shown here.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string_view>

#include "tests/driver/errors.h"
#include "tests/driver/other_process.h"

namespace tandem::driver_test {
namespace {

struct Call {
  std::string_view symbol;
  std::string_view base;
  bool there;
  CUresult (*with_nothing)();
};

template <auto cuda::RealDriver::*function, typename... Arguments>
CUresult WithNothing(CUresult (*)(Arguments...)) {
  return (Cu().*function)(Arguments{}...);
}

#define CALL_IF_YES(symbol, base)          \
  {#symbol, #base, Cu().symbol != nullptr, \
   [] { return WithNothing<&cuda::RealDriver::symbol>(cuda::Fn_##symbol()); }},
#define CALL_IF_NO(symbol, base)
#define CALL_IF_LOADER(symbol, base)
const std::vector<Call>& Calls() {
  static const std::vector<Call> calls = {
#define CU(symbol, base, since, shim, soft, parameters, arguments) CALL_IF_##soft(symbol, base)
#include "src/cuda/driver_api.def"
#undef CU
  };
  return calls;
}

using Names = std::set<std::string_view>;

Names InALoop(CUresult error) {
  Names names;
#define IN_A_LOOP(function, documented) \
  if (documented == error) names.insert(#function);
#include "tests/driver/documented_errors.def"
#undef IN_A_LOOP
  return names;
}

Names AfterAFault() {
  return {
#define AFTER_A_FAULT(function) #function,
#include "tests/driver/documented_errors.def"
#undef AFTER_A_FAULT
  };
}

// What the calls of these names give instead of the error, a line each. A card's driver may look at
// the arguments first.
std::string WrongAnswers(const Names& names, CUresult error, bool on_software_gpu) {
  std::string wrong;
  for (const Call& call : Calls()) {
    if (!call.there || !names.contains(call.base)) continue;
    CUresult result = error;
    if (!Survives(call.with_nothing, &result)) {
      std::cout << "this driver crashes in " << call.symbol << " with nothing" << std::endl;
    }
    if (result == error || (!on_software_gpu && kNullHandle.Have(result))) continue;
    wrong += std::string(call.symbol) + " gave " + Named(result) + "\n";
  }
  return wrong;
}
std::string WrongAnswers(CUresult error, bool on_software_gpu) {
  return WrongAnswers(InALoop(error), error, on_software_gpu);
}

// For those who cannot ask the driver.
constexpr const char* kOnSoftwareGpu = "TANDEM_TEST_ON_SOFTWARE_GPU";

// Not a test by itself: what a program gets that has not called cuInit.
class NotYetInitialised : public ErrorsTest {
 protected:
  void SetUp() override {}
};

TEST_F(NotYetInitialised, DISABLED_EachCallSaysSo) {
  const bool on_software_gpu = Given<bool>(kOnSoftwareGpu);
  if (!on_software_gpu) SurviveCrashes();
  EXPECT_EQ(WrongAnswers(CUDA_ERROR_NOT_INITIALIZED, on_software_gpu), "");
  OtherProcess::TellTheEnd();
}

// Nor is this one: what a program gets while it exits, in a handler that is older than cuInit.
class ShuttingDown : public NotYetInitialised {
 protected:
  static void AtExit() {
    const std::string wrong = WrongAnswers(CUDA_ERROR_DEINITIALIZED, true);
    std::fputs(wrong.c_str(), stderr);
    if (wrong.empty()) OtherProcess::TellTheEnd();
  }
};

TEST_F(ShuttingDown, DISABLED_EachCallSaysSo) {
  Calls();
  ASSERT_EQ(std::atexit(AtExit), 0);
  ASSERT_CU(Cu().cuInit(0));
}

using ErrorsLoopTest = ErrorsTest;

TEST_F(ErrorsLoopTest, BeforeInitialisation) {
  const bool on_software_gpu = OnSoftwareGpu();
  OtherProcess other("NotYetInitialised.DISABLED_EachCallSaysSo",
                     {{kOnSoftwareGpu, InHex(&on_software_gpu, sizeof(on_software_gpu))}});
  EXPECT_TRUE(other.EndsWell());
}

// Calls into a card's driver that has gone are nothing to count on.
TEST_F(ErrorsLoopTest, AfterTheDriversEnd) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "not tested on a card";
  OtherProcess other("ShuttingDown.DISABLED_EachCallSaysSo");
  EXPECT_TRUE(other.EndsWell());
}

TEST_F(ErrorsLoopTest, NoCurrentContext) {
  const bool on_software_gpu = OnSoftwareGpu();
  WithoutContext([&] { EXPECT_EQ(WrongAnswers(CUDA_ERROR_INVALID_CONTEXT, on_software_gpu), ""); });
}

// Whatever a context is asked for then, it tells of the fault.
TEST_F(ErrorsLoopTest, AfterAFault) {
  const bool on_software_gpu = OnSoftwareGpu();
  ASSERT_CU(Launch(Kernel("trap"), 1, 1, nullptr, {}));
  REFUSES(Answers({CUDA_ERROR_LAUNCH_FAILED}), cuCtxSynchronize);
  EXPECT_EQ(WrongAnswers(AfterAFault(), CUDA_ERROR_LAUNCH_FAILED, on_software_gpu), "");
  if (!MakeContextAnew()) return;
  CUdeviceptr nowhere = 0x10;
  uint32_t value = 1;
  ASSERT_CU(Launch(Kernel("store"), 1, 1, nullptr, {&nowhere, &value}));
  REFUSES(Answers({CUDA_ERROR_ILLEGAL_ADDRESS}), cuCtxSynchronize);
  EXPECT_EQ(WrongAnswers(AfterAFault(), CUDA_ERROR_ILLEGAL_ADDRESS, on_software_gpu), "");
}

// A card's driver may also do what it is told, or wait for ever.
TEST_F(ErrorsLoopTest, InAHostFunction) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "not tested on a card";
  std::string wrong;
  const CUhostFn function = [](void* answer) {
    *static_cast<std::string*>(answer) = WrongAnswers(CUDA_ERROR_NOT_PERMITTED, true);
  };
  TAKES(cuLaunchHostFunc, nullptr, function, &wrong);
  TAKES(cuCtxSynchronize);
  EXPECT_EQ(wrong, "");
}

}  // namespace
}  // namespace tandem::driver_test
