// The program goes to another GPU, by an order of the daemon's.
#include "src/shim/driver/gpu_move.h"
#include "src/shim/os/log.h"
#include "src/shim/program/agent.h"

namespace tandem::shim {

void Agent::MoveIfTold() {
  const std::optional<std::string> device = parts_.link->TakeMove();
  if (!device.has_value() || lost_) return;
  // No memory comes or goes meanwhile.
  MutexLock lock(parts_.swapper->mutex());
  bool off = false;
  parts_.link->With([&](client::Lease& lease) {
    off = !lease.holds() && !lease.open() && !lease.working() && !lease.poisoned();
  });
  if (!off || parts_.memory->GetView().resident != Bytes()) {
    return parts_.link->OnNotMoved("it has work or memory there");
  }
  if (const Status moved = MoveToGpu(*parts_.real, parts_.device, *device); !moved.ok()) {
    Log(LogLevel::kWarn, "the program stays on its GPU: %s", moved.error().message.c_str());
    return parts_.link->OnNotMoved(moved.error().message);
  }
  Log(LogLevel::kInfo, "the program has moved to another GPU");
  parts_.link->OnMoved(*device);
  lost_ = true;
  reconnect_at_ = MonotonicNow();
}

}  // namespace tandem::shim
