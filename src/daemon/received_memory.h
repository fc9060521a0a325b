// Descriptors that clients send. Memory of a GPU is kept for others; anything else is none of the
// daemon's business, and is closed (closing.h).
#pragma once

namespace tandem::daemon {

// Whether it can be memory that a driver has exported: a descriptor of the driver's own device, or
// one of the software GPU's files.
bool IsMemory(int fd);

}  // namespace tandem::daemon
