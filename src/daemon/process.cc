#include "src/daemon/process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace tandem::daemon {

// Field 22 of its stat, counted after the name, which may contain anything.
uint64_t StartTicks(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(line.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) rest >> field;
  return std::strtoull(field.c_str(), nullptr, 10);
}

uint64_t TicksNow() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto ticks = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return static_cast<uint64_t>(now.tv_sec) * ticks +
         static_cast<uint64_t>(now.tv_nsec) * ticks / 1000000000;
}

UniqueFd OpenProcess(int pid) {
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool MayBelongTo(int pid, unsigned uid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    if (fields >> name; name != "Uid:") continue;
    for (unsigned theirs = 0; fields >> theirs;) {
      if (theirs == uid) return true;
    }
    return false;
  }
  return true;
}

bool HasEnded(const UniqueFd& process) {
  pollfd entry{process.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

bool Kill(const UniqueFd& process) {
  return syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0;
}

}  // namespace tandem::daemon
