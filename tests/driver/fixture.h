// DriverTest: what every conformance test starts from: the libcuda.so.1 that the loader finds, an
// initialised driver and a context of its own.
//
// The suite says what a CUDA driver does, so it passes on the software GPU, on a real card and
// under Tandem alike. Where a driver has a choice, the tests accept every choice; where one lacks
// an optional feature, the test says that it skips. So it does where there is no driver at all,
// unless TANDEM_TEST_NEEDS_DRIVER is set. With TANDEM_TEST_NEEDS_EVERYTHING a skip is a failure.
//
// On a card a kernel's fault ends CUDA for the whole process. Tests that come later in the same
// process skip; each can run in a process of its own. A test of free memory skips on a card unless
// TANDEM_TEST_ALONE says that no other process uses it.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "src/cuda/real_driver.h"

namespace tandem::driver_test {

// The driver's functions; null pointers where there is no libcuda.so.1.
const cuda::RealDriver& Cu();

// Kernels, as text that any device of the last ten years takes; kernels.cc says what each does.
extern const char kKernels[];

// What device memory is taken in, at least.
inline constexpr size_t kPage = size_t{2} << 20;

class DriverTest : public testing::Test {
 public:
  // Whether the first device is the software GPU, for what a card does in its own way.
  static bool OnSoftwareGpu();
  // Whether free memory changes only by what this test does.
  static bool HasTheDeviceAlone();
  // Whether as much memory is free again, if others do not change it. A card's driver keeps some of
  // what it has taken.
  static bool IsAbout(size_t free, size_t before);

 protected:
  void SetUp() override;
  void TearDown() override;

  CUdeviceptr Allocate(size_t bytes);
  std::vector<uint8_t> Read(CUdeviceptr pointer, size_t bytes);
  void Write(CUdeviceptr pointer, const std::vector<uint8_t>& bytes);
  CUfunction Kernel(const char* name);
  // One block of `threads` threads, parameters by pointers.
  CUresult Launch(CUfunction function, unsigned int blocks, unsigned int threads, CUstream stream,
                  std::vector<void*> parameters);

  // After an error that sticks: another context in place of the test's own. False, with the test
  // skipped, where the fault was the end of the process's CUDA.
  bool MakeContextAnew();

  // What skips for a reason of the machine's, or must, may do so in a run that needs everything.
  bool may_skip_ = false;
  CUcontext context_ = nullptr;  // the test's own; a test that destroyed it sets it to null
  CUmodule module_ = nullptr;    // kKernels in it, from the first Kernel() on
};

// Why a test of free memory skips.
inline constexpr char kNotAlone[] = "others may use the card: set TANDEM_TEST_ALONE if none does";

std::string Named(CUresult result);

// Where each thread is in its test. A crash inside a card's driver prints this place.
struct Place {
  const char* file = nullptr;
  int line = 0;
};
extern thread_local Place at;

// Refers to a callable that makes a call to the driver, and which has to outlive it. A
// std::function of each of the hundreds of lambdas took half of this suite's compile time.
class DriverCall {
 public:
  template <typename Callable>
  DriverCall(const Callable& callable)
      : callable_(&callable), make_([](const void* made_of) {
          return static_cast<CUresult>((*static_cast<const Callable*>(made_of))());
        }) {}
  CUresult operator()() const { return make_(callable_); }

 private:
  const void* callable_;
  CUresult (*make_)(const void*);
};

// From now on Survives() outlives crashes. SetUp does this on a card.
void SurviveCrashes();
// Makes a call. False if a card's driver crashed in it, as some do on a null pointer.
bool Survives(DriverCall call, CUresult* result);

// A byte pattern that differs at every place and between seeds.
std::vector<uint8_t> Pattern(size_t bytes, uint32_t seed);

#define EXPECT_CU(expected, expression)                                            \
  do {                                                                             \
    ::tandem::driver_test::at = {__FILE__, __LINE__};                              \
    const CUresult cu_result = (expression);                                       \
    EXPECT_EQ(expected, cu_result) << #expression << " gave " << Named(cu_result); \
  } while (false)
#define ASSERT_CU(expression)                                                          \
  do {                                                                                 \
    ::tandem::driver_test::at = {__FILE__, __LINE__};                                  \
    const CUresult cu_result = (expression);                                           \
    ASSERT_EQ(CUDA_SUCCESS, cu_result) << #expression << " gave " << Named(cu_result); \
  } while (false)

// Keeps a context current for as long as it lives.
class InContext {
 public:
  explicit InContext(CUcontext context);
  ~InContext();
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
};

// A host function that holds a stream until Open(). Its end opens it too and waits for the stream,
// so that a test that fails does not hang.
class Door {
 public:
  Door() = default;
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  void HoldIn(CUstream stream);
  void Open();

 private:
  static void Wait(void* self);
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

}  // namespace tandem::driver_test
