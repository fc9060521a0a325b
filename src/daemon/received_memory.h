// Descriptors that clients send. Memory of a GPU is kept for others; anything else is none of the
// daemon's business, and is closed (closing.h).
#pragma once

namespace tandem::daemon {

// Whether it can be memory that a driver has exported: a descriptor of the driver's own device, or,
// where a software GPU is served, one of its files.
bool IsMemory(int fd, bool software_gpu);

}  // namespace tandem::daemon
