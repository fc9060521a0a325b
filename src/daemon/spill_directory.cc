#include "src/daemon/spill_directory.h"

#include <sys/statvfs.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <limits>
#include <thread>

namespace tandem::daemon {
namespace {

constexpr Bytes kUnknown(std::numeric_limits<uint64_t>::max());
constexpr std::chrono::seconds kPatience(10);

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

// On a thread of its own: the file system may not answer.
Result<service::Spill> FitsOnDisk(service::Spill spill) {
  std::packaged_task<Bytes()> ask([directory = spill.directory] {
    struct statvfs status {};
    if (statvfs(directory.c_str(), &status) != 0) return kUnknown;
    return Bytes(uint64_t{status.f_blocks} * status.f_frsize);
  });
  std::future<Bytes> answer = ask.get_future();
  std::thread(std::move(ask)).detach();
  if (answer.wait_for(kPatience) != std::future_status::ready) return spill;
  const Bytes disk = answer.get();
  if (spill.limit <= disk) return spill;
  return Error{ErrorCode::kInvalid, FormatBytes(spill.limit) + " is more than the file system of " +
                                        spill.directory + " holds: " + FormatBytes(disk)};
}

}  // namespace tandem::daemon
