#include "src/base/soft_gpu.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "src/base/unique_fd.h"

namespace tandem {
namespace {

constexpr size_t kMostSettingText = 4096;

Error SettingFailed(const std::string& what) {
  return Error{ErrorCode::kFailed, what + ": " + std::strerror(errno)};
}

// No streams: they would use the locale of the program that the software GPU is loaded into.
Result<std::string> ReadSettingText(const std::string& file) {
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && (errno == ENOENT || errno == ENOTDIR)) return std::string();
  if (!fd) return SettingFailed("cannot read " + file);
  std::string text(kMostSettingText, '\0');
  const ssize_t size = read(fd.get(), text.data(), text.size());
  if (size < 0) return SettingFailed("cannot read " + file);
  text.resize(static_cast<size_t>(size));
  return text;
}

Status ParseSettingLine(const std::string& line, SoftGpuSetting& setting) {
  const Error wrong{ErrorCode::kInvalid, "'" + line + "' sets nothing"};
  if (line.starts_with("memory=")) {
    ASSIGN_OR_RETURN(setting.memory, ParseBytes(line.substr(7)));
    return {};
  }
  if (!line.starts_with("count=")) return wrong;
  char* end = nullptr;
  const long count = std::strtol(line.c_str() + 6, &end, 10);
  if (*end != '\0' || count < 1 || count > kMaxSoftGpus) return wrong;
  setting.count = static_cast<int>(count);
  return {};
}

Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return SettingFailed("cannot make " + path);
}

Status WriteAndRename(const std::string& part, const std::string& text, const std::string& file) {
  const UniqueFd fd(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return SettingFailed("cannot write " + part);
  const ssize_t size = write(fd.get(), text.data(), text.size());
  if (size != static_cast<ssize_t>(text.size())) {
    if (size >= 0) errno = ENOSPC;
    return SettingFailed("cannot write " + part);
  }
  if (std::rename(part.c_str(), file.c_str()) != 0) return SettingFailed("cannot write " + file);
  return {};
}

}  // namespace

std::string SoftGpuFile(const std::function<const char*(const char*)>& environment) {
  const char* folder = environment("XDG_CONFIG_HOME");
  if (folder != nullptr && *folder == '/') return std::string(folder) + "/tandem/soft-gpu";
  const char* home = environment("HOME");
  if (home == nullptr || *home != '/') return "";
  return std::string(home) + "/.config/tandem/soft-gpu";
}

Result<SoftGpuSetting> ReadSoftGpuSetting(const std::string& file) {
  SoftGpuSetting setting;
  if (file.empty()) return setting;
  ASSIGN_OR_RETURN(const std::string text, ReadSettingText(file));
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    start = end + 1;
    if (line.empty() || line[0] == '#') continue;
    if (const Status status = ParseSettingLine(line, setting); !status.ok()) {
      return Error{ErrorCode::kInvalid, file + ": " + status.error().message +
                                            "; remove the file, or set it by `tandem gpu soft`"};
    }
  }
  return setting;
}

Status WriteSoftGpuSetting(const std::string& file, const SoftGpuSetting& setting) {
  const std::string folder = file.substr(0, file.rfind('/'));
  TRY(MakeFolder(folder.substr(0, folder.rfind('/'))));
  TRY(MakeFolder(folder));
  std::string text = "# Written by `tandem gpu soft`.\ncount=" + std::to_string(setting.count);
  if (setting.memory) text += "\nmemory=" + std::to_string(setting.memory->count);
  const std::string part = file + "." + std::to_string(getpid());
  Status written = WriteAndRename(part, text + "\n", file);
  if (!written.ok()) unlink(part.c_str());
  return written;
}

Bytes SoftGpuMemory(Bytes available, int count) {
  const bool unknown = available.count == std::numeric_limits<uint64_t>::max();
  const auto cards = static_cast<uint64_t>(count);
  const uint64_t most = kMaxSoftVram.count / cards;
  const uint64_t share = unknown ? 0 : std::min(available.count / 2 / cards, most);
  return std::max(GiB(share >> 30), GiB(1));
}

}  // namespace tandem
