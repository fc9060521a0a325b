#include "src/daemon/received_memory.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace tandem::daemon {
namespace {

constexpr unsigned kNvidiaMajor = 195;  // of /dev/nvidiactl and its kind, everywhere

}  // namespace

bool IsMemory(int fd, bool software_gpu) {
  // Asks no file system: the sender's own may take as long as it likes to answer.
  struct statx status {};
  constexpr int kAskNobody = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
  if (statx(fd, "", kAskNobody, STATX_TYPE, &status) != 0) return false;
  if (S_ISCHR(status.stx_mode)) return status.stx_rdev_major == kNvidiaMajor;
  // A memfd that was made for this.
  return software_gpu && S_ISREG(status.stx_mode) && fcntl(fd, F_GET_SEALS) > 0;
}

}  // namespace tandem::daemon
