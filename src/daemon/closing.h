// Closing what clients have sent or may have sent. Closing a descriptor that a client sent may take
// as long as its sender likes: it may be of a file system, or of a connection, that is the sender's
// own. So each user has a thread that closes what came from that user, one after the other; it ends
// when nothing is left.
//
// Threading: any thread.
// Invariants
// 1. Only the sending user waits for what it has sent, however long that takes to close.
// 2. From a user of whom kMostClosing wait nothing more may be received. What is not received keeps
//    one descriptor here for at least one that the kernel counts against its sender as in flight.
#pragma once

#include <cstddef>

#include "src/base/unique_fd.h"

namespace tandem::daemon {

// More than a user's offers (service::kMaxOffersPerUser), which may all end at once.
inline constexpr size_t kMostClosing = 2048;

// How many descriptors of the user's wait to be closed, or are being closed.
size_t Closing(unsigned uid);
void CloseElsewhere(UniqueFd fd, unsigned uid);
// For a socket of which nothing was received yet. Otherwise what comes with an urgent byte
// (MSG_OOB) is closed by the receiver of the byte behind it.
void KeepUrgentInLine(int socket);
// Closes the connection of a client at once, but for its descriptor where others wait in it unread:
// they go with it.
void CloseSocket(UniqueFd socket, unsigned uid);

}  // namespace tandem::daemon
