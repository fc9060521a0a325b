// BusyTime: the part of the last second in which a process used the compute engine, for monitoring.
// Time goes into buckets of an eighth of a second, in the process's slot; a bucket is used again
// when its time has passed.
//
// Threading: the slot's process writes from any thread, every process reads.
#pragma once

#include "softgpu/card/shared_page.h"
#include "src/base/time.h"

namespace tandem::soft {

// The engine was busy for `length`, until now (monotonic).
void AddBusyTime(Slot& slot, Duration length, Instant now);
// Percent of the second before `now`.
unsigned int BusyPercent(const Slot& slot, Instant now);
void ClearBusyTime(Slot& slot);

}  // namespace tandem::soft
