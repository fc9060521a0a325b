#include "src/daemon/driver_child.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

namespace tandem::daemon {
namespace {

// The child's environment: with the software GPU's library in front where it was asked for.
std::vector<std::string> Environment() {
  std::vector<std::string> environment;
  const bool soft = IsSoftGpuAskedFor();
  std::string path;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.rfind("LD_PRELOAD=", 0) == 0) continue;            // it talks to the real driver
    if (text.rfind("CUDA_VISIBLE_DEVICES=", 0) == 0) continue;  // and about all GPUs
    if (soft && text.rfind("LD_LIBRARY_PATH=", 0) == 0) {
      path = ":" + text.substr(text.find('=') + 1);
    } else {
      environment.push_back(text);
    }
  }
  if (soft) {
    std::error_code ignored;
    const auto bin = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    environment.push_back("LD_LIBRARY_PATH=" + (bin.parent_path() / "lib/tandem/soft").string() +
                          path);
  }
  return environment;
}

}  // namespace

bool IsSoftGpuAskedFor() {
  const char* gpu = std::getenv("TANDEM_GPU");
  return gpu != nullptr && std::strcmp(gpu, "soft") == 0;
}

Result<pid_t> StartDriverChild(const std::string& program, const std::string& flag, int in,
                               int out) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (in >= 0) {
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    // It lives on where the daemon leaves its terminal.
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  std::vector<std::string> environment = Environment();
  std::vector<char*> entries;
  for (std::string& entry : environment) entries.push_back(entry.data());
  entries.push_back(nullptr);
  std::string name = program, argument = flag;
  char* const arguments[] = {name.data(), argument.data(), nullptr};
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, entries.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return Error{ErrorCode::kFailed, std::strerror(failed)};
  return child;
}

}  // namespace tandem::daemon
