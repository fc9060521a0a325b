// Descriptors that clients send. Memory of a GPU is kept for others; anything else is none of the
// daemon's business, and to close it may take as long as its sender likes: it may be of a file
// system, or of a connection, that is the sender's own. So it is closed on a thread of its own.
//
// Threading: any thread.
// Invariant: one user's descriptors keep at most kMostClosing threads; beyond that nothing is
// received from that user, and the kernel drops what was sent.
#pragma once

#include "src/base/unique_fd.h"

namespace tandem::daemon {

inline constexpr int kMostClosing = 4;

// Whether it can be memory that a driver has exported: a descriptor of the driver's own device, or
// one of the software GPU's files. To close these waits for nobody.
bool IsMemory(int fd);
bool MayReceiveFrom(unsigned uid);
void CloseElsewhere(UniqueFd fd, unsigned uid);

}  // namespace tandem::daemon
