#include "src/base/host_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <optional>

#include "src/base/unique_fd.h"

namespace tandem {
namespace {

constexpr size_t kMostText = 64 << 10;
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// No streams: a library inside a user's program keeps away from locales.
std::string ReadFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char piece[4096];
  ssize_t size = 0;
  while (fd && text.size() < kMostText && (size = read(fd.get(), piece, sizeof(piece))) > 0) {
    text.append(piece, static_cast<size_t>(size));
  }
  return text;
}

// The number after `name` at the beginning of a line; `name` may be empty.
std::optional<uint64_t> NumberAfter(const std::string& text, const std::string& name) {
  const size_t inside = text.find("\n" + name);
  const size_t line = text.compare(0, name.size(), name) == 0 ? 0 : inside + 1;
  if (line == 0 && text.compare(0, name.size(), name) != 0) return std::nullopt;
  const size_t begin = text.find_first_not_of(" \t", line + name.size());
  if (begin == std::string::npos || std::isdigit(text[begin]) == 0) return std::nullopt;  // "max"
  return std::strtoull(text.c_str() + begin, nullptr, 10);
}

// The names of what a control group says, in the two versions there are.
struct GroupFiles {
  const char* mount;
  const char* limit;
  const char* used;
  const char* droppable;  // in memory.stat
};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes",
                                  "/memory.usage_in_bytes", "total_inactive_file "};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current",
                                  "inactive_file "};

uint64_t LimitOf(const std::string& group, const GroupFiles& files) {
  return NumberAfter(ReadFile(group + files.limit), "").value_or(kNoLimit);
}

uint64_t LeftOf(const std::string& group, const GroupFiles& files) {
  const auto limit = NumberAfter(ReadFile(group + files.limit), "");
  const auto used = NumberAfter(ReadFile(group + files.used), "");
  if (!limit.has_value() || !used.has_value()) return kNoLimit;
  const auto droppable = NumberAfter(ReadFile(group + "/memory.stat"), files.droppable);
  const Bytes kept = SaturatingSubtract(Bytes(*used), Bytes(droppable.value_or(0)));
  return SaturatingSubtract(Bytes(*limit), kept).count;
}

using OfGroup = uint64_t (*)(const std::string& group, const GroupFiles& files);

// The least of the group and all it lies in. One that cannot be seen from here, as in a container,
// says nothing.
uint64_t LeastOnPath(const std::string& root, std::string path, const GroupFiles& files,
                     OfGroup of_group) {
  const std::string top = root + files.mount;
  uint64_t least = of_group(top, files);
  for (; path.size() > 1; path.resize(path.rfind('/'))) {
    least = std::min(least, of_group(top + path, files));
  }
  return least;
}

// The least of all groups that this process is in.
uint64_t LeastOfGroups(const std::string& root, OfGroup of_group) {
  uint64_t least = kNoLimit;
  // Lines of the form "4:memory:/path" (version 1) and "0::/path" (version 2).
  const std::string groups = ReadFile(root + "/proc/self/cgroup");
  for (size_t begin = 0; begin < groups.size();) {
    const size_t end = std::min(groups.find('\n', begin), groups.size());
    const std::string line = groups.substr(begin, end - begin);
    begin = end + 1;
    const size_t name = line.find(':') + 1, path = line.find(":/") + 1;
    if (path == 0) continue;
    const std::string controllers = line.substr(name, path - 1 - name);
    if (controllers.empty()) {
      least = std::min(least, LeastOnPath(root, line.substr(path), kVersion2, of_group));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      least = std::min(least, LeastOnPath(root, line.substr(path), kVersion1, of_group));
    }
  }
  return least;
}

// Read while the program starts: later it may be changing its environment just then.
const char* const kFileForTests = secure_getenv("TANDEM_HOST_AVAILABLE_FILE");

}  // namespace

Bytes AvailableHostMemory(const std::string& root) {
  return AvailableHostMemory(root, kFileForTests == nullptr ? "" : kFileForTests);
}

Bytes AvailableHostMemory(const std::string& root, const std::string& file) {
  if (!file.empty()) {
    const auto said = NumberAfter(ReadFile(file), "");
    if (said.has_value()) return Bytes(*said);
  }
  const auto kib = NumberAfter(ReadFile(root + "/proc/meminfo"), "MemAvailable:");
  const uint64_t available = kib.has_value() ? *kib << 10 : kNoLimit;
  return Bytes(std::min(available, LeastOfGroups(root, &LeftOf)));
}

std::optional<Bytes> ControlGroupLimit(const std::string& root) {
  const uint64_t least = LeastOfGroups(root, &LimitOf);
  return least == kNoLimit ? std::nullopt : std::optional(Bytes(least));
}

Bytes TotalHostMemory(const std::string& root) {
  const std::string meminfo = ReadFile(root + "/proc/meminfo");
  const auto ram_kib = NumberAfter(meminfo, "MemTotal:");
  if (!ram_kib.has_value()) return Bytes(std::numeric_limits<uint64_t>::max());
  return Bytes((*ram_kib + NumberAfter(meminfo, "SwapTotal:").value_or(0)) << 10);
}

}  // namespace tandem
