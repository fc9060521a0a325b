#include "softgpu/card/identity.h"

#include <cstdio>
#include <cstring>

namespace tandem::soft {
namespace {

// FNV-1a, started differently for the two halves of a uuid.
uint64_t Hash(const std::string& text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
  return hash;
}

}  // namespace

CUuuid DeviceUuid(const std::string& name) {
  CUuuid uuid;
  const uint64_t halves[2] = {Hash(name, 0xcbf2'9ce4'8422'2325), Hash(name, 0x9e37'79b9'7f4a'7c15)};
  static_assert(sizeof(halves) == sizeof(uuid.bytes));
  std::memcpy(uuid.bytes, halves, sizeof(halves));
  return uuid;
}

int PciBus(int ordinal) {
  return ordinal + 1;
}

std::string PciBusId(int ordinal) {
  char text[32];
  std::snprintf(text, sizeof(text), "0000:%02X:00.0", PciBus(ordinal));
  return text;
}

}  // namespace tandem::soft
