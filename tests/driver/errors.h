// ErrorsTest: how the tests of errors say what a call has to answer, in one line a call.
//
// A line names a call and its arguments, and every answer that NVIDIA's reference leaves a driver,
// the one that the software GPU gives first:
//
//   REFUSES(kValue, cuMemAlloc_v2, nullptr, 4096);
//   TAKES(cuMemAlloc_v2, &pointer, 4096);
//
// A call that the driver does not have is not tested; the test then says so, by name, and counts
// as skipped. Real drivers follow handles without looking at them first, so what stands for a wrong
// handle here is null, or one that the reference says a driver recognises: never a made-up one,
// nor one that was destroyed.
//
// Some drivers follow null pointers as well, and crash. On a card a REFUSES line takes a crash for
// an answer, says so, and the test goes on. No program can count on what happens there.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <set>
#include <thread>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {

class Answers {
 public:
  Answers(std::initializer_list<CUresult> allowed) : allowed_(allowed) {}
  CUresult First() const { return allowed_.front(); }
  bool Have(CUresult result) const { return std::ranges::count(allowed_, result) > 0; }
  std::string Names() const {
    std::string names;
    for (const CUresult each : allowed_) names += (names.empty() ? "" : " or ") + Named(each);
    return names;
  }

 private:
  std::vector<CUresult> allowed_;
};

inline const Answers kSuccess = {CUDA_SUCCESS};
inline const Answers kValue = {CUDA_ERROR_INVALID_VALUE};
// A card's driver does not look at it, or takes it.
inline const Answers kValueOrNone = {CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS};
inline const Answers kContext = {CUDA_ERROR_INVALID_CONTEXT};
inline const Answers kDevice = {CUDA_ERROR_INVALID_DEVICE};
inline const Answers kHandle = {CUDA_ERROR_INVALID_HANDLE};
inline const Answers kNotFound = {CUDA_ERROR_NOT_FOUND};
// Null where a handle should be is a wrong handle or a wrong value.
inline const Answers kNullHandle = {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE};
inline const Answers kValueOrHandle = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE};
inline const Answers kNullContext = {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE};
inline const Answers kValueOrContext = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT};
inline const Answers kDeviceOrValue = {CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE};
inline const Answers kValueOrDevice = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE};
inline const Answers kTooMuch = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE};

inline constexpr CUdevice kNoDevice = 999;
inline constexpr size_t kAbsurd = size_t{1} << 60;

template <typename Enum>
constexpr Enum NoSuch() {
  return static_cast<Enum>(54321);
}

class ErrorsTest : public DriverTest {
 protected:
  void TearDown() override;
  void SayWhatIsAbsent();

  // `there`: the driver has that call.
  void Judge(const Answers& allowed, const char* symbol, const char* arguments, bool there,
             DriverCall call, const char* file, int line);

  // On a thread that has no current context.
  static void WithoutContext(const std::function<void()>& calls) { std::thread(calls).join(); }

 private:
  std::set<std::string> absent_;
};

#define REFUSES(allowed, symbol, ...)                         \
  Judge(                                                      \
      allowed, #symbol, #__VA_ARGS__, Cu().symbol != nullptr, \
      [&]() -> CUresult { return Cu().symbol(__VA_ARGS__); }, __FILE__, __LINE__)
#define TAKES(symbol, ...) REFUSES(kSuccess, symbol, __VA_ARGS__)

}  // namespace tandem::driver_test
