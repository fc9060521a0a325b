// HostShare: the most of a program's memory that may have to lie on the host, and where.
#pragma once

#include "src/base/bytes.h"

namespace tandem::shim {

struct HostShare {
  Bytes memory = {};
  Bytes file = {};  // for what the memory has no room for

  Bytes total() const { return memory + file; }
  bool operator==(const HostShare&) const = default;
};

}  // namespace tandem::shim
