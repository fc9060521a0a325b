#include "src/wire/open_runs.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "src/wire/runtime_dir.h"

namespace tandem::wire {
namespace {

struct flock ByteOf(uint64_t run) {
  struct flock byte {};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_start = static_cast<off_t>(run);
  byte.l_len = 1;
  return byte;
}

}  // namespace

Result<UniqueFd> MarkRunOpen(uint64_t run) {
  UniqueFd file(open(OwnFile(".runs").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct flock byte = ByteOf(run);
  if (!file || fcntl(file.get(), F_OFD_SETLK, &byte) != 0) {
    return Error{ErrorCode::kFailed,
                 "cannot lock " + OwnFile(".runs") + ": " + std::strerror(errno)};
  }
  return file;
}

bool IsOpenRun(uint64_t run) {
  if (IsLease(run)) return true;
  const UniqueFd file(open(OwnFile(".runs").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return errno == EMFILE || errno == ENFILE || errno == ENOMEM;
  struct flock byte = ByteOf(run);
  return fcntl(file.get(), F_OFD_GETLK, &byte) == 0 && byte.l_type != F_UNLCK;
}

}  // namespace tandem::wire
