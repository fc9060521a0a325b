// Duration and Instant: nanoseconds, as types. Code in core never asks for the time: it comes
// with every event.
#pragma once

#include <compare>
#include <cstdint>
#include <ctime>

namespace tandem {

struct Duration {
  int64_t ns = 0;

  constexpr Duration() = default;
  constexpr explicit Duration(int64_t ns) : ns(ns) {}
  constexpr auto operator<=>(const Duration&) const = default;
  constexpr double seconds() const { return static_cast<double>(ns) * 1e-9; }

  friend constexpr Duration operator+(Duration a, Duration b) { return Duration(a.ns + b.ns); }
  friend constexpr Duration operator-(Duration a, Duration b) { return Duration(a.ns - b.ns); }
  friend constexpr Duration operator*(Duration a, int64_t n) { return Duration(a.ns * n); }
  friend constexpr Duration operator/(Duration a, int64_t n) { return Duration(a.ns / n); }
};

constexpr Duration Microseconds(int64_t n) {
  return Duration(n * 1000);
}
constexpr Duration Milliseconds(int64_t n) {
  return Duration(n * 1000000);
}
constexpr Duration Seconds(int64_t n) {
  return Duration(n * 1000000000);
}

// A point on one monotonic clock. Instants of different clocks must not be compared.
struct Instant {
  int64_t ns = 0;

  constexpr Instant() = default;
  constexpr explicit Instant(int64_t ns) : ns(ns) {}
  constexpr auto operator<=>(const Instant&) const = default;

  friend constexpr Instant operator+(Instant t, Duration d) { return Instant(t.ns + d.ns); }
  friend constexpr Instant operator-(Instant t, Duration d) { return Instant(t.ns - d.ns); }
  friend constexpr Duration operator-(Instant a, Instant b) { return Duration(a.ns - b.ns); }
};

// CLOCK_MONOTONIC: the same for all processes of the machine.
inline Instant MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Instant(static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec);
}

}  // namespace tandem
