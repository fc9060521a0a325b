#include "src/cli/containers/running.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "src/base/unique_fd.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kIdLength = 64, kShortLength = 12, kLeastOfId = 4;
constexpr size_t kMostRead = 4096;

std::string ReadText(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string Trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.pop_back();
  }
  return text;
}

Error Unsuitable(const std::string& why) {
  return {ErrorCode::kUnsupported, why};
}

fs::path FolderOf(int pid) {
  return fs::path("/proc") / std::to_string(pid);
}

std::string CgroupOf(int pid) {
  return OwnCgroup(ReadText(FolderOf(pid) / "cgroup"));
}

// A small file of a container, whose links do not lead out of it. Empty: it cannot be read.
std::string ReadWithin(const fs::path& root, const char* path) {
  const UniqueFd folder(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_IN_ROOT;
  const UniqueFd file(static_cast<int>(syscall(SYS_openat2, folder.get(), path, &how, sizeof how)));
  std::string text(kMostRead, '\0');
  const ssize_t length = file ? read(file.get(), text.data(), text.size()) : 0;
  text.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return Trimmed(text);
}

std::string HostnameIn(int pid) {
  return ReadWithin(FolderOf(pid) / "root", "/etc/hostname");
}

// Zero: it is none, or this user may not look.
ino_t MountSpaceOf(const fs::path& process) {
  struct stat facts {};
  return stat((process / "ns/mnt").c_str(), &facts) == 0 ? facts.st_ino : 0;
}

bool IsContained(int pid) {
  const ino_t space = MountSpaceOf(FolderOf(pid));
  const std::string cgroup = CgroupOf(pid);
  return space != 0 && space != MountSpaceOf("/proc/self") && !cgroup.empty() &&
         cgroup != OwnCgroup(ReadText("/proc/self/cgroup"));
}

int ParsePid(const std::string& text) {
  const bool number =
      !text.empty() && text.size() < 10 &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return number ? std::stoi(text) : 0;
}

Result<int> ProcessOf(const std::string& target) {
  std::error_code error;
  if (const int pid = ParsePid(target); pid != 0 && fs::exists(FolderOf(pid), error)) return pid;
  std::set<std::string> cgroups;
  int found = 0;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const int pid = ParsePid(entry.path().filename());
    if (pid == 0 || !IsContained(pid)) continue;
    const bool by_id = target.size() >= kLeastOfId && IdIn(CgroupOf(pid)).starts_with(target);
    if (target.empty() || (!by_id && HostnameIn(pid) != target)) continue;
    cgroups.insert(CgroupOf(pid));
    if (found == 0 || pid < found) found = pid;  // a later one may have ended already
  }
  if (cgroups.size() > 1) {
    return Error{ErrorCode::kInvalid,
                 "several containers are called \"" + target + "\": give more of the id"};
  }
  if (found != 0) return found;
  return Error{ErrorCode::kNotFound,
               "no container \"" + target +
                   "\" runs here: give its id, its hostname or one of its processes. Podman tells "
                   "them: podman container inspect -f '{{.State.Pid}}' NAME"};
}

}  // namespace

std::string IdIn(const std::string& cgroup) {
  size_t begin = 0;
  for (size_t at = 0; at <= cgroup.size(); ++at) {
    if (at < cgroup.size() && std::isxdigit(static_cast<unsigned char>(cgroup[at])) != 0) continue;
    if (at - begin == kIdLength) return cgroup.substr(begin, kIdLength);
    begin = at + 1;
  }
  return fs::path(cgroup).filename();
}

Result<RunningContainer> FindRunning(const std::string& target) {
  RunningContainer running;
  ASSIGN_OR_RETURN(running.pid, ProcessOf(target));
  const std::string process = "process " + std::to_string(running.pid);
  const fs::path folder = FolderOf(running.pid);
  if (MountSpaceOf(folder) == 0) {
    return Unsuitable("cannot look into " + process + (geteuid() == 0 ? "" : ": that needs root"));
  }
  if (!IsContained(running.pid)) {
    return Unsuitable(process + " is in no container: start programs with `tandem run`");
  }
  Container& container = running.container;
  container.cgroup = CgroupOf(running.pid);
  container.id = IdIn(container.cgroup);
  container.root = folder / "root";
  container.name = HostnameIn(running.pid);
  if (container.name.empty()) container.name = container.id.substr(0, kShortLength);
  struct stat facts {};
  if (stat(folder.c_str(), &facts) == 0) container.uid = facts.st_uid;
  return running;
}

Result<std::vector<cdi::Mount>> MountsFor(const RunningContainer& running,
                                          const cdi::CdiHost& host) {
  const std::string& root = running.container.root;
  std::error_code error;
  const std::string preload = ReadWithin(root, cdi::kPreloadInContainer);
  const bool is_ours = preload == cdi::kShimInContainer;
  if (is_ours && fs::exists(root + cdi::kShimInContainer, error)) return std::vector<cdi::Mount>{};
  if (!preload.empty()) {
    return Unsuitable(
        "the container preloads a library already (/etc/ld.so.preload): start it with "
        "--device tandem.dev/gpu=none");
  }
  return cdi::EditsOf(host).mounts;
}

bool HasNvidiaDevices(const RunningContainer& running) {
  std::error_code error;
  return fs::exists(running.container.root + "/dev/nvidiactl", error);
}

DeviceCgroup DeviceCgroupOf(const RunningContainer& running) {
  return DeviceCgroupOf(ReadText(FolderOf(running.pid) / "cgroup"),
                        ReadText("/proc/self/mountinfo"), running.container.id);
}

}  // namespace tandem::cli
