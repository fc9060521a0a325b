// libtandem.so as programs meet it: preloaded, beside a stand-in for the driver.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace tandem::shim {
namespace {

struct Outcome {
  int status = -1;
  std::string output;  // both streams
};

Outcome RunShell(const std::string& command) {
  Outcome outcome;
  FILE* const pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 512> bytes;
  size_t count = 0;
  while ((count = fread(bytes.data(), 1, bytes.size(), pipe)) > 0) {
    outcome.output.append(bytes.data(), count);
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

Outcome RunPreloaded(const std::string& command, const std::string& preload = LIBTANDEM) {
  return RunShell("LD_PRELOAD=" + preload +
                  " LD_LIBRARY_PATH=" STAND_IN_DIR
                  " TANDEM_RUNTIME_DIR=/nowhere "
                  "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 " +
                  command);
}

void ExpectFine(const std::string& arguments) {
  const Outcome outcome = RunPreloaded(LOOK_UP " " + arguments);
  EXPECT_EQ(outcome.status, 0) << arguments;
  EXPECT_EQ(outcome.output, "") << arguments;
}

TEST(InterposeTest, ProgramsWithoutCudaNoticeNothing) {
  const Outcome outcome = RunPreloaded("ls /proc/self/fd");
  EXPECT_EQ(outcome.status, 0);
  // It has no descriptor more than it would have, and nothing else to say.
  EXPECT_EQ(outcome.output, RunShell("ls /proc/self/fd").output);
}

TEST(InterposeTest, SubstitutesByResultForTrueHandles) {
  ExpectFine("handle libcuda.so.1");
  ExpectFine("handle " STAND_IN_DIR "/libcuda.so.1");
  ExpectFine("handle libcuda.so");
}

TEST(InterposeTest, OpensADriverInANewNamespaceInTheBaseNamespace) {
  ExpectFine("apart libcuda.so.1");
  ExpectFine("apart " STAND_IN_DIR "/libcuda.so");
  const Outcome nvml = RunPreloaded("LD_LIBRARY_PATH=" SOFT_GPU_DIR " " LOOK_UP " nvml_apart");
  EXPECT_EQ(nvml.status, 0);
  EXPECT_EQ(nvml.output, "");
}

TEST(InterposeTest, IsFoundByCtypes) {
  const Outcome outcome = RunPreloaded(
      "/usr/bin/python3 -c 'import ctypes; cuda = ctypes.CDLL(\"libcuda.so\"); "
      "version = ctypes.c_int(); cuda.cuDriverGetVersion(ctypes.byref(version)); "
      "print(version.value, cuda.cuInit(0), cuda.cuMemFree(0), flush=True)'");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output,
            "tandem: cuMemFree is not supported under Tandem: it has the 32-bit arguments of CUDA "
            "before 3.2\n12345 100 801\n");
}

TEST(InterposeTest, SuccessLeavesNoErrorWithoutADriver) {
  ExpectFine("no_error");
  const Outcome outcome = RunPreloaded("LD_LIBRARY_PATH=/nowhere " LOOK_UP " no_error");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(InterposeTest, PseudoHandlesResolveForTheirCaller) {
  ExpectFine("pseudo");
}

TEST(InterposeTest, TheProgramsOwnHandleFindsTheShim) {
  ExpectFine("program");
}

TEST(InterposeTest, TheFirstLookUpOfADriverLeavesNoError) {
  const Outcome outcome =
      RunPreloaded("LD_LIBRARY_PATH=" SOFT_GPU_DIR " " LOOK_UP " no_error_of_driver");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "");
}

TEST(InterposeTest, CallsBeforeInitAreTheDriversToJudge) {
  ExpectFine("direct");
}

#ifdef LOOK_UP_ALL  // a sanitizer takes half a minute for it, and bears none of the others
// Some 20,000 look-ups of every function that the driver of CUDA 13.0 has.
TEST(InterposeTest, FindsTheShimExactlyWhereTheTableSaysSo) {
  for (const std::string driver : {"", "STAND_IN_COPIES=1 "}) {
    const Outcome outcome = RunPreloaded(driver + LOOK_UP_ALL " " DRIVER_FACTS);
    EXPECT_EQ(outcome.status, 0) << driver << outcome.output;
    EXPECT_GT(std::atoi(outcome.output.c_str()), 20000) << driver << outcome.output;
  }
}

TEST(InterposeTest, TakesDeepBindingAwayOnlyWhereItIsAskedTo) {
  // By its name alone it is found for who asks: it is in the program's RUNPATH.
  ExpectFine("deep_bound libdeep_bound.so");
  const Outcome outcome =
      RunPreloaded("TANDEM_NO_DEEPBIND=1 " LOOK_UP " not_deep_bound libdeep_bound.so");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "");
}

TEST(InterposeTest, SaysOnceThatALibraryInANewNamespaceHasItsOwnDriver) {
  ExpectFine("others_apart");
  // By its name alone it is found for who asks: it is in the program's RUNPATH.
  const Outcome outcome = RunPreloaded(LOOK_UP " linked_apart libdeep_bound.so");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "tandem: " DEEP_BOUND
                            " is not shared: it has a driver of its own in another namespace\n");
}

TEST(InterposeTest, BearsOtherPreloadedLibraries) {
  const Outcome before = RunPreloaded(LOOK_UP " counted", COUNTING_MALLOC ":" LIBTANDEM);
  EXPECT_EQ(before.status, 0);
  EXPECT_EQ(before.output, "");
  const Outcome after = RunPreloaded(LOOK_UP " counted", LIBTANDEM ":" COUNTING_MALLOC);
  EXPECT_EQ(after.status, 0);
  EXPECT_EQ(after.output, "");
}

#ifdef LIBASAN
TEST(InterposeTest, BearsAnAddressSanitizerBeforeIt) {
  const Outcome outcome = RunPreloaded(LOOK_UP " handle libcuda.so.1", LIBASAN ":" LIBTANDEM);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "");
}
#endif
#endif

TEST(InterposeTest, RefusesWhatIsNewerAndWouldPassItBy) {
  const std::string why = " is not supported under Tandem: it is newer than this version of it\n";
  for (const std::string driver : {"", "STAND_IN_COPIES=1 "}) {
    const Outcome outcome = RunPreloaded(driver + LOOK_UP " newer");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.output, "tandem: cuMemAlloc_v3" + why + "tandem: cuMemAlloc of CUDA 99" +
                                  why + "tandem: cuLaunchAnew" + why);
  }
}

TEST(InterposeTest, RefusesOnceInWords) {
  const Outcome outcome = RunPreloaded(LOOK_UP " refused");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(
      outcome.output,
      "tandem: cuMemAlloc is not supported under Tandem: it has the 32-bit arguments of CUDA "
      "before 3.2\n"
      "tandem: cuLaunchCooperativeKernelMultiDevice is not supported under Tandem: it launches "
      "on several GPUs at once\n"
      "tandem: cuGreenCtxCreate is not supported under Tandem: it makes a context for one thread "
      "alone, whose work no other could wait for\n");
}

}  // namespace
}  // namespace tandem::shim
