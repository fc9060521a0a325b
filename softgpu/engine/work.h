// What engines do: copies, fills and kernel launches, each run to its end by the calling thread.
//
// By the model clock each piece of work moves TaskTime::cursor() to its end on the device's
// timeline and returns when that is reached.
//
// Threading: any thread; one launch or device-internal copy at a time per device, because they use
// the device's ComputeTurn, and by the model clock one copy per direction of the bus.
//
// Invariant: device memory is touched under a MapLock::Reader, after a look at the bitmaps, in
// pieces short enough for a waiting writer.
#pragma once

#include <atomic>
#include <memory>

#include "softgpu/card/address_space.h"
#include "softgpu/card/bus.h"
#include "softgpu/card/compute_turn.h"
#include "softgpu/card/device_clock.h"
#include "softgpu/card/faults.h"
#include "softgpu/ptx/execute.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

// The parts of a device that work needs. They outlive all work.
struct Hardware {
  int device = 0;  // its ordinal
  AddressSpace* space = nullptr;
  Bus* bus = nullptr;
  ComputeTurn* turn = nullptr;
  ComputeTurn* bus_turns = nullptr;  // two, by Direction; used by the model clock
  DeviceClock* clock = nullptr;
  Slot* slot = nullptr;  // this process's
  Faults* faults = nullptr;
  Duration watchdog;    // zero: none
  Duration page_fault;  // what each takes besides what the host needs for it
  ptx::Path path = ptx::Path::kAuto;
};

// Rows, `pitch` bytes apart, in slices that are `slice` bytes apart.
struct Rows {
  uint64_t address = 0;
  uint64_t pitch = 0;
  uint64_t slice = 0;
};

struct Copy {
  Rows to;
  Rows from;
  uint64_t width = 0;
  uint64_t height = 1;
  uint64_t depth = 1;
};

// CUDA_ERROR_ILLEGAL_ADDRESS if device memory is gone by the time it is needed.
CUresult CopyOverBus(const Hardware& hardware, Direction direction, const Copy& copy);
CUresult CopyOnDevice(const Hardware& hardware, const Copy& copy);
CUresult CopyOnHost(const Hardware& hardware, const Copy& copy);

// Repeats the `element_bytes` (1, 2 or 4) low bytes of `value` over rows of `width` bytes.
struct Fill {
  Rows to;
  uint64_t width = 0;
  uint64_t height = 1;
  uint32_t value = 0;
  uint32_t element_bytes = 1;
};
CUresult FillOnDevice(const Hardware& hardware, const Fill& fill);

// Bytes of a cooperative launch's workspace for each priority of streams.
inline constexpr uint64_t kGridWorkspaceBytes = 64;

// REQUIRES: the launch's program lives until this returns.
CUresult RunLaunch(const Hardware& hardware, ptx::Launch launch);

}  // namespace tandem::soft
