#include "tests/driver/errors.h"

#include <iostream>

namespace tandem::driver_test {

void ErrorsTest::TearDown() {
  SayWhatIsAbsent();
  DriverTest::TearDown();
}

void ErrorsTest::SayWhatIsAbsent() {
  std::string names;
  for (const std::string& name : absent_) names += " " + name;
  if (!names.empty()) GTEST_SKIP() << "not tested, as this driver has not got it:" << names;
}

void ErrorsTest::Judge(const Answers& allowed, const char* symbol, const char* arguments,
                       bool there, DriverCall call, const char* file, int line) {
  if (!there) {
    absent_.insert(symbol);
    return;
  }
  at = {file, line};
  CUresult result = CUDA_SUCCESS;
  if (!Survives(call, &result)) {
    std::cout << file << ":" << line << ": this driver crashes in " << symbol << "(" << arguments
              << ")" << std::endl;
    if (allowed.First() != CUDA_SUCCESS) return;
    result = CUDA_ERROR_UNKNOWN;
  }
  if (allowed.Have(result) && (result == allowed.First() || !OnSoftwareGpu())) return;
  ADD_FAILURE_AT(file, line) << symbol << "(" << arguments << ") gave " << Named(result)
                             << " rather than " << allowed.Names();
}

}  // namespace tandem::driver_test
