// The host: its memory, limits of this process, and the container around it.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "src/base/host_memory.h"
#include "src/cli/doctor/checks.h"
#include "src/cli/doctor/library_paths.h"
#include "src/cli/fields.h"

namespace tandem::cli {
namespace {

constexpr Bytes kLeastHostMemory = MiB(256);
constexpr Bytes kLeastCommit = GiB(1);
constexpr uint64_t kNearlyAll = 10;  // all but a tenth
constexpr uint64_t kMuchOfHost = 4;  // a quarter

// Of /proc/meminfo, whose unit is KiB, or a plain number; none where there is no such line.
std::optional<uint64_t> MemoryInfo(const Machine& machine, const std::string& name) {
  for (const std::string& line : PartsOf(ReadFile(machine, "/proc/meminfo"), "\n")) {
    if (!line.starts_with(name + ":")) continue;
    return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
  }
  return std::nullopt;
}

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// The name of what runs containers, as its control groups show it; empty: none.
const char* ContainerInGroups(const std::string& groups) {
  constexpr const char* kNames[][2] = {{"kubepods", "Kubernetes"},
                                       {"libpod", "Podman"},
                                       {"docker", "Docker"},
                                       {"containerd", "containerd"},
                                       {"lxc", "LXC"}};
  for (const auto& [part, name] : kNames) {
    if (groups.find(part) != std::string::npos) return name;
  }
  return "";
}

std::string ContainerOf(const Machine& machine) {
  const std::string of_groups = ContainerInGroups(ReadFile(machine, "/proc/self/cgroup"));
  if (!of_groups.empty()) return of_groups;
  if (Exists(machine, "/.dockerenv")) return "Docker";
  if (Exists(machine, "/run/.containerenv")) return "Podman";
  return "";
}

}  // namespace

Findings CheckHostMemory(const Machine& machine) {
  const Bytes available = AvailableHostMemory(machine.root);
  if (available < kLeastHostMemory) {
    return {
        Problem("host_memory_low",
                fmt::format("Only {} of host memory is available: memory cannot leave the card.",
                            FormatBytes(available)),
                "end programs that use much host memory")};
  }
  const nlohmann::json& status = machine.daemon.status;
  const Bytes limit = RawBytes(status, "host_limit_bytes");
  const Bytes promised = RawBytes(status, "host_promised_bytes");
  if (limit > Bytes() && promised.count >= limit.count - limit.count / kNearlyAll) {
    return {Warning("host_memory_promised",
                    fmt::format("{} of {} for memory off the card are promised: new allocations "
                                "soon fail.",
                                FormatBytes(promised), FormatBytes(limit)),
                    "end programs, or restart the daemon with more: `tandemd --host-memory` or "
                    "`--spill`")};
  }
  const std::optional<Bytes> card = LargestCard(machine);
  const Bytes places = available + RawBytes(status, "spill_limit_bytes");
  if (card && places < *card) {
    return {
        Warning("host_memory_below_card",
                fmt::format("{} of host memory are available, less than the card's {}: programs "
                            "can allocate little more than the card holds.",
                            FormatBytes(available), FormatBytes(*card)),
                "give the daemon files for the rest: `tandemd --spill DIRECTORY:SIZE`")};
  }
  return {Fine("host_memory_fine",
               fmt::format("{} of host memory are available.", FormatBytes(available)))};
}

Findings CheckControlGroups(const Machine& machine) {
  const std::optional<Bytes> limit = ControlGroupLimit(machine.root);
  const std::optional<Bytes> card = LargestCard(machine);
  if (!limit || *limit >= TotalHostMemory(machine.root)) {
    return {Fine("cgroup_unlimited", "No control group limits the memory.")};
  }
  if (card && *limit < *card) {
    return {
        Warning("cgroup_below_card",
                fmt::format("A control group limits host memory to {}, less than the card's {}: "
                            "a program that swaps more is killed.",
                            FormatBytes(*limit), FormatBytes(*card)),
                "raise the limit of the container, job or service")};
  }
  return {Fine("cgroup_fine",
               fmt::format("A control group limits the memory to {}.", FormatBytes(*limit)))};
}

Findings CheckHugePages(const Machine& machine) {
  const uint64_t reserved = MemoryInfo(machine, "HugePages_Free").value_or(0) *
                            (MemoryInfo(machine, "Hugepagesize").value_or(0) << 10);
  const uint64_t total = MemoryInfo(machine, "MemTotal").value_or(0) << 10;
  if (reserved > 0 && reserved >= total / kMuchOfHost) {
    return {Warning("huge_pages_reserved",
                    fmt::format("{} of host memory are reserved as huge pages, which Tandem does "
                                "not use.",
                                FormatBytes(Bytes(reserved))),
                    "lower vm.nr_hugepages")};
  }
  const std::string setting = ReadFile(machine, "/sys/kernel/mm/transparent_hugepage/enabled");
  if (setting.empty() || setting.find("[never]") != std::string::npos) {
    return {Note("huge_pages_off",
                 "Transparent huge pages are off: moving memory off the card may take longer.",
                 "as root: `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`")};
  }
  return {Fine("huge_pages_on", "Transparent huge pages are on.")};
}

Findings CheckLockedMemory(const Machine& machine) {
  if (machine.gpu == Gpu::kSoft) {
    return {Fine("locked_memory_fine", "The software GPU locks no memory.")};
  }
  if (machine.locked_memory) {
    return {
        Note("locked_memory_limited",
             fmt::format("A process may lock {} of memory: where the driver keeps to this limit, "
                         "copies between card and host are slower.",
                         FormatBytes(*machine.locked_memory)),
             "raise it: `ulimit -l unlimited`, or LimitMEMLOCK=infinity of a service")};
  }
  return {Fine("locked_memory_fine", "A process may lock any amount of memory.")};
}

Findings CheckOvercommit(const Machine& machine) {
  if (machine.address_space) {
    return {Warning("address_space_limited",
                    fmt::format("A process may have {} of address space: CUDA reserves far more "
                                "than it uses, and then fails.",
                                FormatBytes(*machine.address_space)),
                    "`ulimit -v unlimited`")};
  }
  if (FirstLine(ReadFile(machine, "/proc/sys/vm/overcommit_memory")) != "2") {
    return {Fine("overcommit_fine", "The kernel overcommits memory, as CUDA needs it.")};
  }
  const Bytes limit(MemoryInfo(machine, "CommitLimit").value_or(0) << 10);
  const Bytes committed(MemoryInfo(machine, "Committed_AS").value_or(0) << 10);
  const Bytes left = SaturatingSubtract(limit, committed);
  const std::string sentence = fmt::format(
      "vm.overcommit_memory is 2, and {} more can be reserved: allocations fail although memory is "
      "free.",
      FormatBytes(left));
  const std::string remedy = "as root: `sysctl vm.overcommit_memory=0`";
  return {left < kLeastCommit ? Problem("overcommit_exhausted", sentence, remedy)
                              : Warning("overcommit_strict", sentence, remedy)};
}

Findings CheckContainer(const Machine& machine) {
  const std::string container = ContainerOf(machine);
  if (container.empty()) return {Fine("no_container", "This is no container that Tandem knows.")};
  return {Note("container",
               fmt::format("This is a container ({}): programs outside of it do not share with "
                           "those inside.",
                           container),
               "start all programs that share a GPU in the container of their daemon")};
}

}  // namespace tandem::cli
