// The functions of the stand-in for the driver: what a driver of CUDA 13.0 exports.
#pragma once

namespace tandem::shim {

struct StandInFunction {
  const char* symbol;
  const char* base;  // by which cuGetProcAddress knows it, from a version on
  int since;
  bool per_thread;  // the variant for per-thread default streams
  void* exported;
  void* copy;  // for a driver that hands out other pointers than it exports
};

// Null if there is none; then *known says whether another version has that name.
const StandInFunction* FindStandInFunction(const char* base, int version, bool per_thread,
                                           bool* known);

}  // namespace tandem::shim
