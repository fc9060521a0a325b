#include "src/daemon/received_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <map>
#include <system_error>
#include <thread>

#include "src/base/mutex.h"

namespace tandem::daemon {
namespace {

constexpr unsigned kNvidiaMajor = 195;  // of /dev/nvidiactl and its kind, everywhere

// How many are being closed, by user. Never destroyed: a thread may be stuck for ever.
struct Closing {
  Mutex mutex;
  std::map<unsigned, int> counts GUARDED_BY(mutex);
};

Closing& TheClosing() {
  static Closing* const closing = new Closing;
  return *closing;
}

void Done(unsigned uid) {
  MutexLock lock(TheClosing().mutex);
  if (--TheClosing().counts[uid] == 0) TheClosing().counts.erase(uid);
}

}  // namespace

bool IsMemory(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return false;
  if (S_ISCHR(status.st_mode)) return major(status.st_rdev) == kNvidiaMajor;
  return S_ISREG(status.st_mode) && fcntl(fd, F_GET_SEALS) > 0;  // a memfd that was made for this
}

bool MayReceiveFrom(unsigned uid) {
  MutexLock lock(TheClosing().mutex);
  const auto found = TheClosing().counts.find(uid);
  return found == TheClosing().counts.end() || found->second < kMostClosing;
}

void CloseElsewhere(UniqueFd fd, unsigned uid) {
  {
    MutexLock lock(TheClosing().mutex);
    ++TheClosing().counts[uid];
  }
  const int number = fd.Release();
  try {
    std::thread([number, uid] {
      close(number);
      Done(uid);
    }).detach();
  } catch (const std::system_error&) {
    // It stays open, and counts: better than a daemon that waits.
  }
}

}  // namespace tandem::daemon
