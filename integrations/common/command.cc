#include "integrations/common/command.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "src/base/time.h"
#include "src/base/unique_fd.h"

namespace tandem::integrations {
namespace {

constexpr Duration kPatience = Seconds(30);

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Arguments(const Command& command, const std::vector<std::string>& words) {
  std::vector<std::string> arguments = {command.path};
  arguments.insert(arguments.end(), words.begin(), words.end());
  return arguments;
}

Error Unavailable(const std::string& what, int error) {
  return {ErrorCode::kUnavailable, what + ": " + std::strerror(error)};
}

// All that comes until the end of the file; false: not in time.
bool ReadAll(int fd, std::string* text) {
  const Instant deadline = MonotonicNow() + kPatience;
  for (;;) {
    const Duration left = deadline - MonotonicNow();
    pollfd ready{fd, POLLIN, 0};
    if (left <= Duration() || poll(&ready, 1, static_cast<int>(left.seconds() * 1000) + 1) == 0) {
      return false;
    }
    char buffer[4096];
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count == 0) return true;
    if (count < 0 && errno != EINTR) return true;
    if (count > 0) text->append(buffer, static_cast<size_t>(count));
  }
}

// The last line that says something, without the command's name.
std::string Said(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "it failed without a word";
  const size_t begin = text.rfind('\n', end) + 1;  // 0 where there is none
  std::string line = text.substr(begin, end - begin + 1);
  return line.starts_with("tandem: ") ? line.substr(8) : line;
}

// The files that put a process into the cgroups of `task`: of version 2, or one of each hierarchy.
std::vector<std::string> CgroupFiles(int task) {
  std::vector<std::string> files;
  std::ifstream cgroups("/proc/" + std::to_string(task) + "/cgroup");
  for (std::string line; std::getline(cgroups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string mount = controllers.empty() ? "" : "/" + controllers;
    files.push_back("/sys/fs/cgroup" + mount + line.substr(second + 1) + "/cgroup.procs");
  }
  return files;
}

// Between fork and exec: only what a signal handler may call.
[[noreturn]] void BecomeAndRun(char* const* arguments, char* const* environment,
                               char* const* cgroup_files, pid_t group, int input, unsigned uid,
                               unsigned gid) {
  for (char* const* file = cgroup_files; *file != nullptr; ++file) {
    const int fd = open(*file, O_WRONLY | O_CLOEXEC);
    // One that cannot be joined is one that Slurm does not signal by.
    if (fd >= 0 && write(fd, "0", 1) < 0) close(fd);
  }
  setpgid(0, group);
  const int null = open("/dev/null", O_RDWR);
  dup2(input, 0);
  for (int fd = 1; fd < 3; ++fd) dup2(null, fd);
  syscall(SYS_close_range, 3U, ~0U, 0U);
  // Those that come before the program waits for them are kept.
  sigset_t kept;
  sigemptyset(&kept);
  for (const int number : {SIGTSTP, SIGCONT}) sigaddset(&kept, number);
  sigprocmask(SIG_SETMASK, &kept, nullptr);
  const bool is_user =
      geteuid() != 0 || (setgroups(0, nullptr) == 0 && setresgid(gid, gid, gid) == 0 &&
                         setresuid(uid, uid, uid) == 0);
  if (is_user) execve(arguments[0], arguments, environment);
  _exit(127);
}

}  // namespace

std::string OwnTandem() {
  Dl_info own;
  if (dladdr(reinterpret_cast<const void*>(&OwnTandem), &own) == 0) return "tandem";
  std::string folder = own.dli_fname;
  std::error_code error;
  // Of a program, that is its name as it was called.
  if (!folder.starts_with('/')) folder = std::filesystem::read_symlink("/proc/self/exe", error);
  // lib, lib/tandem, or lib/TRIPLET/tandem.
  for (int up = 0; up < 3; ++up) {
    folder = folder.substr(0, folder.rfind('/'));
    const std::string path = folder + "/../bin/tandem";
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "/usr/bin/tandem";
}

Result<std::string> Output(const Command& command, const std::vector<std::string>& words) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0) return Unavailable("pipe", errno);
  const UniqueFd out_read(out[0]);
  UniqueFd out_write(out[1]);
  if (pipe2(err, O_CLOEXEC) != 0) return Unavailable("pipe", errno);
  const UniqueFd err_read(err[0]);
  UniqueFd err_write(err[1]);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out_write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err_write.get(), 2);
  const std::vector<std::string> arguments = Arguments(command, words);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, command.path.c_str(), &actions, nullptr,
                                Pointers(arguments).data(), Pointers(command.environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Unavailable(command.path, error);
  out_write.Reset();
  err_write.Reset();

  std::string printed, said;
  // An error is a line: it has room in the pipe.
  const bool in_time = ReadAll(out_read.get(), &printed) && ReadAll(err_read.get(), &said);
  if (!in_time) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) return Unavailable(command.path, ETIMEDOUT);
  if (status != 0) return Error{ErrorCode::kRefused, Said(said)};
  return printed;
}

Status StartAmong(const Command& command, const std::vector<std::string>& words, int task,
                  unsigned uid, unsigned gid) {
  const std::vector<std::string> arguments = Arguments(command, words);
  const std::vector<std::string> cgroup_files = CgroupFiles(task);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(command.environment);
  const std::vector<char*> files = Pointers(cgroup_files);
  const pid_t group = getpgid(task);
  int input[2];
  if (pipe2(input, O_CLOEXEC) != 0) return Unavailable("pipe", errno);
  const UniqueFd read_end(input[0]);
  UniqueFd write_end(input[1]);
  const pid_t pid = fork();
  if (pid == 0) BecomeAndRun(argv.data(), envp.data(), files.data(), group, input[0], uid, gid);
  if (pid < 0) return Unavailable("fork", errno);
  static std::vector<UniqueFd> held;  // until this process ends
  held.push_back(std::move(write_end));
  return {};
}

}  // namespace tandem::integrations
