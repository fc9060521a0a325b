// Device: one software GPU as this process sees it: its share of the joint VRAM, which
// softgpu/memory knows as DeviceVram; its share of the bus and the compute engine; what the
// device says of itself.
//
// Threading: see the members. A Device lives until the process ends.
#pragma once

#include <memory>
#include <string>

#include "softgpu/card/bus.h"
#include "softgpu/card/compute_turn.h"
#include "softgpu/card/device_clock.h"
#include "softgpu/card/identity.h"
#include "softgpu/card/options.h"
#include "softgpu/engine/scheduler.h"
#include "softgpu/engine/work.h"
#include "softgpu/memory/device_vram.h"
#include "softgpu/ptx/registers.h"
#include "src/base/mutex.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

inline constexpr uint32_t kSharedBytesDefault = 48 << 10;  // of a block, without opting in
inline constexpr uint32_t kSharedBytesOptIn = 99 << 10;
inline constexpr uint32_t kRegistersPerBlock = ptx::kRegisters;
inline constexpr uint32_t kMaxBlockThreads = 1024;
// Of the one multiprocessor, which decides how many blocks count as resident together.
inline constexpr int kMultiprocessors = 1;
inline constexpr uint32_t kMultiprocessorThreads = 1024;
inline constexpr uint32_t kMultiprocessorBlocks = 16;
inline constexpr uint32_t kMultiprocessorSharedBytes = 100 << 10;
inline constexpr uint32_t kReservedSharedBytes = ptx::kReservedSharedBytes;
inline constexpr int kMaxPitch = 0x7fff'ffff;  // bytes

struct Context;

// What is the same for every device; false if they do not know the attribute.
bool FixedAttribute(CUdevice_attribute attribute, int* value);

class Device : public DeviceVram {
 public:
  // REQUIRES: `space`, `scheduler` and `faults` outlive the device.
  static Result<std::unique_ptr<Device>> Open(int ordinal, const DeviceOption& option,
                                              const Options& options, AddressSpace* space,
                                              Scheduler* scheduler, Faults* faults);

  // Goes on with another card. REQUIRES: no work is under way, as the scheduler's WhileIdle sees
  // to; nothing is charged to the card before; the cards are alike.
  void MoveTo(Card* card);

  std::string pci_bus_id() const;
  // False if the device does not know the attribute.
  bool Attribute(CUdevice_attribute attribute, int* value) const;

  const Hardware& hardware() const { return hardware_; }
  DeviceClock& clock() { return clock_; }
  // Its threads are started by the first call.
  Engines* engines();

  // The primary context and how often it was retained.
  struct Primary {
    std::shared_ptr<Context> context;
    uint64_t id = 0;  // of all contexts that were or will be the primary one; zero: none yet
    int retained = 0;
    unsigned int flags = 0;
  };
  Mutex primary_mutex;
  Primary primary GUARDED_BY(primary_mutex);

 private:
  Device(int ordinal, std::unique_ptr<Card> card, std::unique_ptr<PhysicalStore> store,
         const Options& options, AddressSpace* space, Scheduler* scheduler, Faults* faults);
  void ReleaseTurn(EngineKind engine);

  DeviceClock clock_;
  Bus bus_;
  // Each of its engine's thread.
  ComputeTurn turn_;
  ComputeTurn bus_turns_[2];
  Hardware hardware_;
  const int32_t priority_;  // of this process on its card
  Scheduler* const scheduler_;
  Mutex engines_mutex_;
  std::unique_ptr<Engines> engines_ GUARDED_BY(engines_mutex_);
};

}  // namespace tandem::soft
