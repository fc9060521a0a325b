#include "src/daemon/closing.h"

#include <sys/socket.h>

#include <array>
#include <deque>
#include <map>
#include <system_error>
#include <thread>

#include "src/base/mutex.h"

namespace tandem::daemon {
namespace {

struct OfUser {
  std::deque<UniqueFd> fds;  // the first one is being closed
  bool has_thread = false;
};

// Never destroyed: a thread may be stuck for ever.
struct Everybody {
  Mutex mutex;
  std::map<unsigned, OfUser> users GUARDED_BY(mutex);
};

Everybody& TheUsers() {
  static Everybody* const users = new Everybody;
  return *users;
}

void CloseAll(unsigned uid) {
  Everybody& everybody = TheUsers();
  for (;;) {
    UniqueFd fd;
    {
      MutexLock lock(everybody.mutex);
      fd = std::move(everybody.users[uid].fds.front());
    }
    fd.Reset();
    MutexLock lock(everybody.mutex);
    OfUser& user = everybody.users[uid];
    user.fds.pop_front();
    if (!user.fds.empty()) continue;
    everybody.users.erase(uid);
    return;
  }
}

// Whether descriptors wait in a socket that can receive no more messages. Reads what comes before
// them. To look at a message without room for them only says that they are there.
bool HasUnreadDescriptors(int socket) {
  const int off = 0;  // without room for the sender every message would be cut
  setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &off, sizeof(off));
  std::array<char, 16384> bytes;
  for (;;) {
    iovec piece{bytes.data(), bytes.size()};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    const ssize_t n = recvmsg(socket, &header, MSG_PEEK | MSG_DONTWAIT);
    if (n <= 0) return false;
    if ((header.msg_flags & MSG_CTRUNC) != 0) return true;
    if (recv(socket, bytes.data(), static_cast<size_t>(n), MSG_DONTWAIT) != n) return true;
  }
}

}  // namespace

size_t Closing(unsigned uid) {
  MutexLock lock(TheUsers().mutex);
  const auto found = TheUsers().users.find(uid);
  return found == TheUsers().users.end() ? 0 : found->second.fds.size();
}

void CloseElsewhere(UniqueFd fd, unsigned uid) {
  if (!fd) return;
  MutexLock lock(TheUsers().mutex);
  OfUser& user = TheUsers().users[uid];
  user.fds.push_back(std::move(fd));
  if (user.has_thread) return;
  try {
    std::thread(CloseAll, uid).detach();
    user.has_thread = true;
  } catch (const std::system_error&) {
    // They stay open, and count, until the user's next one: better than a daemon that waits.
  }
}

void KeepUrgentInLine(int socket) {
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
}

void CloseSocket(UniqueFd socket, unsigned uid) {
  if (!socket) return;
  KeepUrgentInLine(socket.get());
  const bool shut = shutdown(socket.get(), SHUT_RDWR) == 0;
  if (shut && !HasUnreadDescriptors(socket.get())) return socket.Reset();
  CloseElsewhere(std::move(socket), uid);
}

}  // namespace tandem::daemon
