#include <gtest/gtest.h>

#include "src/cli/doctor/machine_test.h"

namespace tandem::cli {
namespace {

using HostCheckTest = DoctorTest;

TEST_F(HostCheckTest, HostMemory) {
  ExpectFinding(One(CheckHostMemory), Severity::kOk, "host_memory_fine", {"32 GiB"});
  machine_.daemon.status["host_limit_bytes"] = GiB(10).count;
  machine_.daemon.status["host_promised_bytes"] = GiB(9).count;
  ExpectFinding(One(CheckHostMemory), Severity::kWarning, "host_memory_promised",
                {"9 GiB of 10 GiB"});
  machine_.daemon.status["host_promised_bytes"] = GiB(1).count;
  Write("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 4194304 kB\n");
  ExpectFinding(One(CheckHostMemory), Severity::kWarning, "host_memory_below_card",
                {"4 GiB", "8 GiB", "--spill"});
  machine_.daemon.status["spill_limit_bytes"] = GiB(4).count;
  ExpectFinding(One(CheckHostMemory), Severity::kOk, "host_memory_fine");
  Write("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 131072 kB\n");
  ExpectFinding(One(CheckHostMemory), Severity::kProblem, "host_memory_low", {"128 MiB"});
}

TEST_F(HostCheckTest, ControlGroups) {
  ExpectFinding(One(CheckControlGroups), Severity::kOk, "cgroup_unlimited");
  Write("/proc/self/cgroup", "0::/job\n");
  Write("/sys/fs/cgroup/job/memory.max", "max\n");
  ExpectFinding(One(CheckControlGroups), Severity::kOk, "cgroup_unlimited");
  Write("/sys/fs/cgroup/job/memory.max", "17179869184\n");
  ExpectFinding(One(CheckControlGroups), Severity::kOk, "cgroup_fine", {"16 GiB"});
  Write("/sys/fs/cgroup/memory.max", "4294967296\n");
  ExpectFinding(One(CheckControlGroups), Severity::kWarning, "cgroup_below_card",
                {"4 GiB", "8 GiB"});
  Write("/proc/self/cgroup", "4:memory:/job\n");
  Write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  ExpectFinding(One(CheckControlGroups), Severity::kOk, "cgroup_unlimited");
}

TEST_F(HostCheckTest, HugePages) {
  ExpectFinding(One(CheckHugePages), Severity::kOk, "huge_pages_on");
  Write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  ExpectFinding(One(CheckHugePages), Severity::kNote, "huge_pages_off", {"echo madvise"});
  std::filesystem::remove(machine_.root + "/sys/kernel/mm/transparent_hugepage/enabled");
  ExpectFinding(One(CheckHugePages), Severity::kNote, "huge_pages_off");
  Write("/proc/meminfo", "MemTotal: 67108864 kB\nHugePages_Free: 8192\nHugepagesize: 2048 kB\n");
  ExpectFinding(One(CheckHugePages), Severity::kWarning, "huge_pages_reserved",
                {"16 GiB", "vm.nr_hugepages"});
}

TEST_F(HostCheckTest, LockedMemory) {
  machine_.locked_memory = MiB(8);
  ExpectFinding(One(CheckLockedMemory), Severity::kOk, "locked_memory_fine");
  UseCard();
  ExpectFinding(One(CheckLockedMemory), Severity::kNote, "locked_memory_limited",
                {"8 MiB", "ulimit -l"});
  machine_.locked_memory.reset();
  ExpectFinding(One(CheckLockedMemory), Severity::kOk, "locked_memory_fine");
}

TEST_F(HostCheckTest, Overcommit) {
  ExpectFinding(One(CheckOvercommit), Severity::kOk, "overcommit_fine");
  Write("/proc/sys/vm/overcommit_memory", "2\n");
  Write("/proc/meminfo", "CommitLimit: 8388608 kB\nCommitted_AS: 4194304 kB\n");
  ExpectFinding(One(CheckOvercommit), Severity::kWarning, "overcommit_strict",
                {"4 GiB", "vm.overcommit_memory=0"});
  Write("/proc/meminfo", "CommitLimit: 8388608 kB\nCommitted_AS: 8388608 kB\n");
  ExpectFinding(One(CheckOvercommit), Severity::kProblem, "overcommit_exhausted");
  machine_.address_space = GiB(16);
  ExpectFinding(One(CheckOvercommit), Severity::kWarning, "address_space_limited",
                {"16 GiB", "ulimit -v"});
}

TEST_F(HostCheckTest, Containers) {
  ExpectFinding(One(CheckContainer), Severity::kOk, "no_container");
  const auto in_group = [this](const char* group) {
    Write("/proc/self/cgroup", group);
    return One(CheckContainer);
  };
  ExpectFinding(in_group("0::/kubepods/burstable/pod1/docker-2\n"), Severity::kNote, "container",
                {"(Kubernetes)"});
  ExpectFinding(in_group("0::/machine.slice/libpod-1.scope\n"), Severity::kNote, "container",
                {"(Podman)"});
  ExpectFinding(in_group("4:memory:/docker/1\n"), Severity::kNote, "container", {"(Docker)"});
  ExpectFinding(in_group("0::/\n"), Severity::kOk, "no_container");
  Write("/run/.containerenv", "");
  ExpectFinding(One(CheckContainer), Severity::kNote, "container", {"(Podman)"});
  Write("/.dockerenv", "");
  ExpectFinding(One(CheckContainer), Severity::kNote, "container", {"(Docker)"});
}

}  // namespace
}  // namespace tandem::cli
