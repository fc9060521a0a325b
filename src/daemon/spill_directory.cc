#include "src/daemon/spill_directory.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "src/base/unique_fd.h"

namespace tandem::daemon {
namespace {

Error System(const std::string& what) {
  return Error{ErrorCode::kFailed, what + ": " + std::strerror(errno)};
}

// It has no name to open it by, and its blocks are free again once no process has it open. It has
// none at first, however long it is.
Result<UniqueFd> MakeNamelessFile(const std::string& directory, Bytes length) {
  // O_EXCL: nor can a process give it one.
  UniqueFd fd(open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (!fd && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    // A file system without unnamed files. A process killed in between leaves the file there.
    std::string path = directory + "/tandem-spill-XXXXXX";
    fd = UniqueFd(mkostemp(path.data(), O_CLOEXEC));
    if (fd && unlink(path.c_str()) != 0) return System("cannot remove " + path);
  }
  if (!fd) return System("cannot make a file in " + directory);
  if (ftruncate(fd.get(), static_cast<off_t>(length.count)) != 0) {
    return System("no file of " + FormatBytes(length) + " can be made in " + directory);
  }
  return fd;
}

Bytes Available(const std::string& directory) {
  struct statvfs status {};
  if (statvfs(directory.c_str(), &status) != 0) return {};
  return Bytes(uint64_t{status.f_bavail} * status.f_frsize);
}

}  // namespace

Result<service::Spill> ParseSpill(const std::string& text) {
  const size_t colon = text.rfind(':');
  const Error wanted{ErrorCode::kInvalid,
                     "\"" + text + "\": a directory and a size are wanted, such as /var/tmp:64G"};
  if (colon == std::string::npos || colon == 0) return wanted;
  const Result<Bytes> limit = ParseSize(text.substr(colon + 1));
  if (!limit.ok()) return wanted;
  // The daemon may leave the directory that it was started in.
  std::error_code ignored;
  const std::string directory = std::filesystem::absolute(text.substr(0, colon), ignored);
  return service::Spill{directory, *limit};
}

Result<service::Spill> FitsOnDisk(service::Spill spill) {
  struct statvfs status {};
  if (statvfs(spill.directory.c_str(), &status) != 0) return spill;
  const Bytes disk(uint64_t{status.f_blocks} * status.f_frsize);
  if (spill.limit <= disk) return spill;
  return Error{ErrorCode::kInvalid, FormatBytes(spill.limit) + " is more than the file system of " +
                                        spill.directory + " holds: " + FormatBytes(disk)};
}

Result<service::Spill> OpenSpillDirectory(service::Spill spill) {
  ASSIGN_OR_RETURN(const UniqueFd trial, MakeNamelessFile(spill.directory, spill.limit));
  if (fallocate(trial.get(), FALLOC_FL_KEEP_SIZE, 0, 4096) != 0) {
    return System("room for files in " + spill.directory + " cannot be reserved");
  }
  spill.available = [directory = spill.directory] { return Available(directory); };
  spill.make = [directory = spill.directory, limit = spill.limit] {
    Result<UniqueFd> file = MakeNamelessFile(directory, limit);
    if (!file.ok()) spdlog::warn("{}", file.error().message);
    return file;
  };
  return spill;
}

}  // namespace tandem::daemon
