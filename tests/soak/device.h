// Device: what a soak_worker asks of its GPU, through the driver API, and how it bears that calls
// fail: memory that is out is a matter of course, and is left to the caller; whatever else may be
// done again is done again; a context that breaks is left to the caller as an exception, because
// from then on no call of whatever was under way succeeds.
//
// Threading: one thread. Any other error, and one that does not go away, ends the program with a
// line that names the call.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "src/base/time.h"
#include "src/cuda/real_driver.h"

namespace soak {

// A kernel failed, and with it all of its context for good.
class ContextBroken : public std::exception {
 public:
  const char* what() const noexcept override { return "the context is broken"; }
};

// Throws ContextBroken for an error that sticks; ends the program with status 2 for any other.
void Check(const char* call, CUresult result);

class Device {
 public:
  static constexpr int kStreams = 4;

  // Opens libcuda.so.1 and makes a context, streams and kernels on this GPU.
  explicit Device(int ordinal);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  const tandem::cuda::RealDriver& driver() const { return driver_; }
  CUdevice ordinal() const { return device_; }
  CUstream stream(int index) const { return streams_[static_cast<size_t>(index)]; }

  // Repeats `call` until it does not return OUT_OF_MEMORY. Copies and the like never mean that for
  // good: the soak test injects such failures.
  template <typename Call>
  void Do(const char* name, const Call& call) {
    const tandem::Instant begin = tandem::MonotonicNow();
    CUresult result = call();
    while (result == CUDA_ERROR_OUT_OF_MEMORY && Pause(begin)) result = call();
    Check(name, result);
  }

  // out[i] += value, and out[i] = PatternAt(seed, i), for `count` words.
  void Add(CUdeviceptr out, uint32_t value, uint64_t count, int stream);
  void Pattern(CUdeviceptr out, uint32_t seed, uint64_t count, int stream);
  CUresult LaunchAdd(CUdeviceptr out, uint32_t value, uint64_t count, int stream);

  // Orders work submitted to `later` from now on after all work that `first` has.
  void Order(int first, int later);
  void Wait(int stream);

  // Makes another context and its Pattern kernel, calls `work` with it current, and ends it. False:
  // there was no memory for it. If it breaks, that is the end of `work` and of nothing else.
  bool InAnotherContext(const std::function<void()>& work);

  // After ContextBroken: ends the context with all that is in it, and makes another with other
  // streams.
  void StartAgain();

  uint64_t again() const { return again_; }
  uint64_t broken() const { return broken_; }  // contexts

 private:
  struct Context {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction add = nullptr, pattern = nullptr;
  };

  // Counts a call that is to be done again, after a moment; false when that has gone on for too
  // long.
  bool Pause(tandem::Instant begin);
  void Start();
  bool Open(Context* made);
  CUresult Launch(CUfunction kernel, CUdeviceptr out, uint32_t value, uint64_t count,
                  CUstream stream);

  tandem::cuda::RealDriver driver_;
  CUdevice device_ = 0;
  Context own_;
  Context* current_ = &own_;
  std::vector<CUstream> streams_;
  CUevent event_ = nullptr;
  uint64_t again_ = 0, broken_ = 0;
};

// What Pattern writes.
constexpr uint32_t PatternAt(uint32_t seed, uint64_t index) {
  const uint32_t mixed = (static_cast<uint32_t>(index) ^ seed) * 2654435761U;
  return mixed ^ (mixed >> 15);
}

}  // namespace soak
