#include "src/history/amounts.h"

#include <algorithm>
#include <cmath>

namespace tandem::history {
namespace {

constexpr double kNsInS = 1e9;
constexpr double kMostSeconds = 1e9;  // of one interval

double Sane(double value) {
  return std::isfinite(value) && value > 0 ? value : 0;
}

uint64_t Nanoseconds(double seconds) {
  return static_cast<uint64_t>(std::llround(std::min(Sane(seconds), kMostSeconds) * kNsInS));
}

uint64_t Before(uint64_t whole, double part) {
  if (part >= 1) return whole;
  return std::min(whole, static_cast<uint64_t>(static_cast<double>(whole) * part));
}

double Before(double whole, double part) {
  return whole * part;
}

}  // namespace

Amounts& Amounts::operator+=(const Amounts& other) {
  held_ns += other.held_ns;
  active_ns += other.active_ns;
  waited_ns += other.waited_ns;
  allocated_byte_s += other.allocated_byte_s;
  resident_byte_s += other.resident_byte_s;
  swapped_byte_s += other.swapped_byte_s;
  handovers += other.handovers;
  out_bytes += other.out_bytes;
  in_bytes += other.in_bytes;
  return *this;
}

Amounts AmountsOf(const Usage& usage) {
  return {Nanoseconds(usage.held_s),
          Nanoseconds(usage.active_s),
          Nanoseconds(usage.waited_s),
          Sane(usage.allocated_byte_s),
          Sane(usage.resident_byte_s),
          Sane(usage.swapped_byte_s),
          usage.handovers,
          usage.out_bytes,
          usage.in_bytes};
}

Amounts Part(const Amounts& whole, double from, double to) {
  const auto part = [&](auto value) { return Before(value, to) - Before(value, from); };
  return {part(whole.held_ns),          part(whole.active_ns),       part(whole.waited_ns),
          part(whole.allocated_byte_s), part(whole.resident_byte_s), part(whole.swapped_byte_s),
          part(whole.handovers),        part(whole.out_bytes),       part(whole.in_bytes)};
}

}  // namespace tandem::history
