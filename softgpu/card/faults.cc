#include "softgpu/card/faults.h"

#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

namespace tandem::soft {
namespace {

// Spreads the bits of neighbouring numbers: the finaliser of splitmix64 (Steele, Lea, Flood: Fast
// splittable pseudorandom number generators, 2014).
uint64_t Mix(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

// `count` is from 1.
bool Holds(const FaultRule& rule, uint64_t count) {
  switch (rule.when) {
    case FaultRule::When::kNever:
      return false;
    case FaultRule::When::kNth:
      return count == rule.number;
    case FaultRule::When::kEvery:
      return count % rule.number == 0;
    case FaultRule::When::kOneIn:
      return Mix(Mix(rule.seed) + count) % rule.number == 0;
  }
  return false;
}

}  // namespace

Faults::Faults(const LiveOptions& options, std::string file)
    : environment_(options),
      file_(std::move(file)),
      idle_(file_.empty() &&
            options == LiveOptions{.bus_bytes_per_second = options.bus_bytes_per_second}),
      now_(options) {}

bool Faults::Due(Fault fault) {
  if (idle_) return false;
  MutexLock lock(mutex_);
  Refresh();
  return Holds(now_.rules[fault], ++counts_[fault]);
}

uint64_t Faults::CopyBegins() {
  if (idle_) return environment_.bus_bytes_per_second;
  MutexLock lock(mutex_);
  Refresh();
  const bool slow = ++copies_ >= now_.slow_copy && now_.slow_copy != 0;
  return slow ? now_.slow_bytes_per_second : now_.bus_bytes_per_second;
}

Faults::Stamp Faults::StampOf(const std::string& file) {
  struct stat info;
  if (stat(file.c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec, info.st_size};
}

void Faults::Refresh() {
  if (file_.empty()) return;
  const Stamp stamp = StampOf(file_);
  if (stamp == seen_) return;
  seen_ = stamp;
  std::ifstream file(file_);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto options = ParseLiveOptions(text, environment_);
  if (options.ok()) return Take(*options);
  std::fprintf(stderr, "tandem software GPU: %s: %s\n", file_.c_str(),
               options.error().message.c_str());
}

void Faults::Take(const LiveOptions& options) {
  for (int fault = 0; fault < kFaults; ++fault) {
    if (options.rules[fault] != now_.rules[fault]) counts_[fault] = 0;
  }
  if (options.slow_copy != now_.slow_copy) copies_ = 0;
  now_ = options;
}

}  // namespace tandem::soft
