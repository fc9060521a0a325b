// Card: one of the machine's software GPUs, as this process has joined it. A device of the process
// is on one card at a time; a checkpoint may put it onto another (Checkpoint).
//
// Threading: immutable once made; SharedDevice says its own. It lives until the process ends.
#pragma once

#include <memory>

#include "softgpu/card/shared_device.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

struct Card {
  std::unique_ptr<SharedDevice> shared;
  CUuuid uuid = {};
  int number = 0;  // among the process's cards: its place on the PCI bus
};

}  // namespace tandem::soft
