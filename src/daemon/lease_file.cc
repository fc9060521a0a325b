#include "src/daemon/lease_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/base/unique_fd.h"

namespace tandem::daemon {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Whole or not at all.
Status Replace(const std::string& path, const std::string& text) {
  const auto failed = [&] {
    const std::string why = std::strerror(errno);
    unlink((path + ".new").c_str());
    return Error{ErrorCode::kFailed, "cannot write " + path + ": " + why};
  };
  const UniqueFd file(
      open((path + ".new").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return failed();
  for (size_t written = 0; written < text.size();) {
    const ssize_t n = write(file.get(), text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed();
    written += static_cast<size_t>(n);
  }
  if (rename((path + ".new").c_str(), path.c_str()) != 0) return failed();
  return {};
}

// Of version 2, where all controllers are in one tree, or of version 1.
bool HasCgroup(const std::string& cgroup) {
  const std::filesystem::path root = "/sys/fs/cgroup";
  std::error_code error;
  if (std::filesystem::is_directory(root.string() + cgroup, error)) return true;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    if (std::filesystem::is_directory(entry.path().string() + cgroup, error)) return true;
  }
  return false;
}

}  // namespace

void KeepLeases(const std::string& socket, service::ServiceConfig* config) {
  const std::string path = std::filesystem::path(socket).replace_extension(".leases");
  config->kept_leases = ReadAll(path);
  config->keep_leases = [path](const std::string& text) { return Replace(path, text); };
  config->cgroups_of = [](int pid) { return ReadAll("/proc/" + std::to_string(pid) + "/cgroup"); };
  config->has_cgroup = &HasCgroup;
}

}  // namespace tandem::daemon
