// The devices that a container's processes may open: the kernel asks their cgroup. A runtime writes
// the list at the container's start; this adds to it while the container runs.
//
// Cgroups of version 1 have a file for the list, those of version 2 a program of eBPF. That program
// is read back, and one that first allows the added devices takes its place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/base/unique_fd.h"

namespace tandem::cli {

struct CharDevice {
  unsigned major = 0, minor = 0;
};

// The cgroups that are the container's own, the outermost first.
struct DeviceCgroup {
  int version = 0;
  std::vector<std::string> folders;
};

// `cgroups`: the text of /proc/PID/cgroup. `mounts`: of /proc/self/mountinfo. `id`: a part of the
// names of the container's cgroups. Without folders: no cgroup decides on devices. Pure.
DeviceCgroup DeviceCgroupOf(const std::string& cgroups, const std::string& mounts,
                            const std::string& id);

// The right to read and write devices. It is taken back, unless Keep() is called.
class DeviceGrant {
 public:
  // An error, in words, leaves the list as it was.
  // REQUIRES: CAP_SYS_ADMIN; Linux 5.6 for cgroups of version 2.
  static Result<DeviceGrant> Allow(const DeviceCgroup& cgroup,
                                   const std::vector<CharDevice>& devices);
  DeviceGrant(DeviceGrant&& other) noexcept;
  DeviceGrant& operator=(DeviceGrant&&) = delete;
  ~DeviceGrant();

  void Keep() { done_.clear(); }

 private:
  struct Done {
    std::string file, line;     // version 1: what takes it back
    UniqueFd cgroup, was, now;  // version 2: the programs
    uint32_t flags = 0;
  };

  DeviceGrant() = default;
  Status AllowByFile(const std::string& folder, const std::vector<CharDevice>& devices);
  Status AllowByProgram(const std::string& folder, const std::vector<CharDevice>& devices);

  std::vector<Done> done_;
};

}  // namespace tandem::cli
