#include "src/daemon/received_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace tandem::daemon {
namespace {

constexpr unsigned kNvidiaMajor = 195;  // of /dev/nvidiactl and its kind, everywhere

}  // namespace

bool IsMemory(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return false;
  if (S_ISCHR(status.st_mode)) return major(status.st_rdev) == kNvidiaMajor;
  return S_ISREG(status.st_mode) && fcntl(fd, F_GET_SEALS) > 0;  // a memfd that was made for this
}

}  // namespace tandem::daemon
