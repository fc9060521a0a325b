// A machine for the tests of checks: files below a directory of the test's own, where all is well.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "src/base/json.h"
#include "src/cli/doctor/checks.h"

namespace tandem::cli {

class DoctorTest : public testing::Test {
 protected:
  static constexpr uid_t kUser = 1000, kStranger = 2000;

  DoctorTest() {
    std::string path = (std::filesystem::temp_directory_path() / "tandem-doctor-XXXXXX").string();
    machine_.root = mkdtemp(path.data());
    machine_.uid = kUser;
    machine_.can_open = [](const std::string&) { return true; };
    machine_.version = machine_.daemon_version = machine_.preload.build = "0.1.0";
    machine_.layout = Layout{"/t/bin/tandemd", "/t/lib/libtandem.so", "/t/lib/tandem/soft"};
    machine_.soft_library = "/t/lib/tandem/soft/libcuda.so.1";
    machine_.preload.works = true;
    machine_.socket = "/tmp/tandem-1000/tandemd-soft.sock";
    machine_.directory = DirectoryFacts{true, kUser, 0700};
    machine_.daemon.pid = 77;
    machine_.daemon.uid = kUser;
    machine_.daemon.executable = "/t/bin/tandemd";
    machine_.daemon.status = ParseJson(
        R"({"version":"0.1.0","gpus":[{"index":0,"uuid":"GPU-1","card_bytes":8589934592,
                       "budget_bytes":7516192768}]})");
    machine_.daemon.sessions = ParseJson(R"({"sessions":[{"id":3,"pid":500}]})");
    Write("/proc/meminfo",
          "MemTotal:       67108864 kB\nMemAvailable:   33554432 kB\n"
          "HugePages_Free:        0\nHugepagesize:       2048 kB\n");
    Write("/proc/sys/vm/overcommit_memory", "0\n");
    Write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  }
  ~DoctorTest() override { std::filesystem::remove_all(machine_.root); }

  // The same machine with a card, whose driver works.
  void UseCard() {
    machine_.gpu = Gpu::kCuda;
    machine_.driver.kind = cuda::DriverState::Kind::kWorks;
    machine_.cards = {CardFacts{"GPU-1", {{500, MiB(64)}}, {}}};
  }

  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path file = machine_.root + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  void Set(const std::string& name, const std::string& value) {
    machine_.environment.push_back(name + "=" + value);
  }

  // The only finding of a check.
  Finding One(Findings (*check)(const Machine&)) const {
    Findings findings = check(machine_);
    EXPECT_EQ(findings.size(), 1u);
    return findings.empty() ? Finding() : findings.front();
  }

  Machine machine_;
};

// That a finding has this code and severity, something to do unless all is well, and all of the
// words.
void ExpectFinding(const Finding& finding, Severity severity, const std::string& code,
                   const std::vector<std::string>& words = {});

}  // namespace tandem::cli
