#include "src/cli/doctor/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cli/doctor/machine_test.h"

namespace tandem::cli {

using ::testing::HasSubstr;

void ExpectFinding(const Finding& finding, Severity severity, const std::string& code,
                   const std::vector<std::string>& words) {
  EXPECT_EQ(finding.code, code);
  EXPECT_STREQ(NameOf(finding.severity), NameOf(severity)) << code;
  EXPECT_EQ(finding.remedy.empty(), severity == Severity::kOk) << code;
  const std::string text = Shown(finding.sentence + " Do: " + finding.remedy);
  EXPECT_THAT(finding.sentence, testing::EndsWith(".")) << code;
  for (const std::string& word : words) EXPECT_THAT(text, HasSubstr(word));
}

namespace {

constexpr Severity kOk = Severity::kOk, kNote = Severity::kNote, kWarning = Severity::kWarning,
                   kProblem = Severity::kProblem;

TEST_F(DoctorTest, EachCheckIsFineOnAGoodMachine) {
  const auto all_are_fine = [this] {
    for (const CheckResult& result : RunChecks(machine_)) {
      EXPECT_EQ(WorstOf(result.findings), kOk)
          << result.name << ": " << result.findings.front().sentence;
    }
  };
  all_are_fine();
  UseCard();
  all_are_fine();
}

// ---- Text from outside

TEST(Finding, TextFromOutsideIsEscapedAndCanBeHidden) {
  const std::string sentence =
      "It is in " + Outside("/users/anna\x1b[31m/\x01\x02x") + ", and ends.";
  EXPECT_EQ(Shown(sentence), R"(It is in /users/anna\x1b[31m/\x01\x02x, and ends.)");
  EXPECT_EQ(Hidden(sentence), "It is in …, and ends.");
}

// ---- The driver and its libraries

TEST_F(DoctorTest, TheSoftwareGpuThatNothingAskedForIsANote) {
  ExpectFinding(One(CheckDriver), kOk, "software_gpu");
  machine_.gpu_by_machine = true;
  ExpectFinding(One(CheckDriver), kNote, "no_driver", {"slow", "TANDEM_GPU=soft"});
}

TEST_F(DoctorTest, AWorkingDriverIsNamedWithItsVersion) {
  UseCard();
  Write("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\n"
        "GCC version:  gcc version 12.2.0\n");
  ExpectFinding(One(CheckDriver), kOk, "driver_works", {"version 550.54.14."});
}

TEST_F(DoctorTest, ADriverWithoutACardIsExplained) {
  UseCard();
  machine_.driver.kind = cuda::DriverState::Kind::kNone;
  ExpectFinding(One(CheckDriver), kProblem, "driver_missing", {"--gpu soft"});
  Write("/proc/driver/nvidia/version", "NVRM version: 550.54.14\n");
  ExpectFinding(One(CheckDriver), kProblem, "driver_incomplete", {"nvidia-smi"});
  Set("CUDA_VISIBLE_DEVICES", "");
  ExpectFinding(One(CheckDriver), kProblem, "cards_hidden", {"unset CUDA_VISIBLE_DEVICES"});
}

TEST_F(DoctorTest, ABrokenDriverHasARemedyForItsError) {
  UseCard();
  const auto broken = [this](const char* why) {
    machine_.driver = {cuda::DriverState::Kind::kBroken, why};
    return One(CheckDriver);
  };
  ExpectFinding(broken("cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), kProblem,
                "driver_broken", {"DRIVER_MISMATCH", "restart the machine"});
  ExpectFinding(broken("cuInit failed: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"), kProblem,
                "driver_broken", {"compat", "LD_LIBRARY_PATH"});
  ExpectFinding(broken("cuInit failed: CUDA_ERROR_SYSTEM_NOT_READY"), kProblem, "driver_broken",
                {"nvidia-fabricmanager"});
  ExpectFinding(broken("cuInit does not return"), kProblem, "driver_broken", {"dmesg"});
}

TEST_F(DoctorTest, ADeviceThatTheUserCannotOpenIsNamed) {
  UseCard();
  machine_.driver = {cuda::DriverState::Kind::kBroken, "cuInit failed: CUDA_ERROR_NO_DEVICE"};
  for (const char* name : {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-modeset"})
    Write(name, "");
  machine_.can_open = [](const std::string& path) { return !path.ends_with("/nvidia-modeset"); };
  ExpectFinding(One(CheckDriver), kProblem, "driver_broken");
  machine_.can_open = [](const std::string& path) { return !path.ends_with("/dev/nvidia0"); };
  ExpectFinding(One(CheckDriver), kProblem, "device_forbidden", {"/dev/nvidia0", "group"});
}

TEST_F(DoctorTest, LibrariesBeforeTheDriverAreNamed) {
  UseCard();
  Set("LD_LIBRARY_PATH", "/a:/empty;/t/lib/tandem/soft/::/cuda/stubs:/other/lib/tandem/soft");
  for (const char* folder : {"/a", "/t/lib/tandem/soft", "/cuda/stubs", "/other/lib/tandem/soft"}) {
    Write(std::string(folder) + "/libcuda.so.1", "");
  }
  const Findings findings = CheckLibraries(machine_);
  ASSERT_EQ(findings.size(), 3u);
  ExpectFinding(findings[0], kWarning, "other_libcuda", {"/a,", "LD_LIBRARY_PATH"});
  ExpectFinding(findings[1], kProblem, "stub_library", {"/cuda/stubs"});
  ExpectFinding(findings[2], kProblem, "other_software_gpu", {"/other/lib/tandem/soft"});
  machine_.gpu = Gpu::kSoft;
  ExpectFinding(One(CheckLibraries), kOk, "libraries_fine");
}

// ---- Tandem's own parts

TEST_F(DoctorTest, FilesThatAreMissingAreNamed) {
  machine_.soft_library.clear();
  ExpectFinding(One(CheckFiles), kProblem, "soft_gpu_missing", {"/t/lib/tandem/soft", "install"});
  UseCard();
  ExpectFinding(One(CheckFiles), kOk, "files_fine");
  machine_.layout->shim = "/my programs/libtandem.so";
  ExpectFinding(One(CheckFiles), kProblem, "path_unusable", {"/my programs/", "move Tandem"});
  machine_.layout = Error{ErrorCode::kNotFound, "/t/bin/tandemd is missing: not complete"};
  ExpectFinding(One(CheckFiles), kProblem, "files_missing", {"/t/bin/tandemd", "install"});
}

TEST_F(DoctorTest, AShimThatIsNotLoadedIsAProblemWithTheLoadersWords) {
  machine_.preload = {false, "", "ERROR: ld.so: cannot be preloaded"};
  ExpectFinding(One(CheckPreload), kProblem, "preload_fails", {"ld.so", "noexec"});
  machine_.layout->shim = "/my programs/libtandem.so";
  ExpectFinding(One(CheckPreload), kProblem, "preload_fails", {"move Tandem"});
}

TEST_F(DoctorTest, ARunWhoseShellHasLostTheShimIsAProblem) {
  Write("/t/lib/libtandem.so", "");
  Set("LD_PRELOAD", "/t/lib/libtandem.so");
  machine_.in_run = true;
  ExpectFinding(One(CheckPreload), kOk, "preload_works");
  machine_.environment.clear();
  ExpectFinding(One(CheckPreload), kProblem, "preload_lost", {"tandem run"});
}

TEST_F(DoctorTest, OtherPreloadsInTheWayAreNamed) {
  Write("/lib/libjemalloc.so", "");
  Set("LD_PRELOAD", "/lib/libjemalloc.so libnvshare.so:/gone/libx.so");
  Write("/etc/ld.so.preload", "/usr/local/vgpu/libvgpu.so\n");
  const Findings findings = CheckPreload(machine_);
  ASSERT_EQ(findings.size(), 3u);
  ExpectFinding(findings[0], kProblem, "other_sharer", {"nvshare", "LD_PRELOAD"});
  ExpectFinding(findings[1], kWarning, "preload_file_missing", {"/gone/libx.so"});
  ExpectFinding(findings[2], kProblem, "other_sharer", {"HAMi", "/etc/ld.so.preload"});
}

TEST_F(DoctorTest, ADaemonThatDoesNotRunIsANote) {
  machine_.daemon = {};
  machine_.daemon.error = Error{ErrorCode::kNotFound, "no daemon"};
  ExpectFinding(One(CheckDaemon), kNote, "no_daemon", {machine_.socket, "tandem run"});
  machine_.root_starts_daemon = true;
  machine_.directory = DirectoryFacts{true, 0, 0711};
  ExpectFinding(One(CheckDaemon), kProblem, "daemon_missing", {"tandemd --everybody"});
}

TEST_F(DoctorTest, ADirectoryThatOthersOwnOrWriteIsAProblem) {
  machine_.directory = DirectoryFacts{true, kStranger, 0700};
  ExpectFinding(One(CheckDaemon), kProblem, "directory_unsafe", {"/tmp/tandem-1000 "});
  machine_.directory = DirectoryFacts{true, kUser, 0770};
  ExpectFinding(One(CheckDaemon), kProblem, "directory_unsafe");
  machine_.directory = DirectoryFacts{false, kUser, 0700};
  ExpectFinding(One(CheckDaemon), kProblem, "directory_unsafe");
  machine_.directory.reset();
  ExpectFinding(One(CheckDaemon), kOk, "daemon_answers");
}

TEST_F(DoctorTest, ADaemonThatCannotBeUsedIsExplained) {
  const auto fails = [this](int pid, ErrorCode code, const char* message) {
    machine_.daemon.pid = pid;
    machine_.daemon.error = Error{code, message};
    return One(CheckDaemon);
  };
  ExpectFinding(fails(0, ErrorCode::kRefused, "runs as user 2000, neither root nor you"), kProblem,
                "socket_owner", {"user 2000", "TANDEM_RUNTIME_DIR"});
  ExpectFinding(fails(0, ErrorCode::kInvalid, "the path is too long: /x; set it shorter"), kProblem,
                "socket_unusable", {"too long: /x. Do: set it shorter"});
  ExpectFinding(fails(77, ErrorCode::kRefused, "too many connections"), kProblem, "daemon_refuses",
                {"too many connections", "77"});
  ExpectFinding(fails(77, ErrorCode::kFailed, "the daemon gave no answer in time"), kProblem,
                "daemon_silent", {"`kill -9 77`"});
  const Finding other = fails(77, ErrorCode::kVersion,
                              "the daemon (process 77) speaks protocol version 20, this tandem "
                              "version 12; restart it: `kill 77`");
  ExpectFinding(other, kProblem, "daemon_version");
  EXPECT_EQ(
      other.sentence,
      "The versions do not fit: the daemon (process 77) speaks protocol version 20, this tandem "
      "version 12.");
  EXPECT_EQ(other.remedy, "restart it: `kill 77`");
}

TEST_F(DoctorTest, PartsOfOtherVersionsAreNamed) {
  ExpectFinding(One(CheckVersions), kOk, "versions_agree", {"0.1.0"});
  machine_.daemon.executable = "/old/bin/tandemd (deleted)";
  ExpectFinding(One(CheckVersions), kNote, "daemon_of_other_files", {"/old/bin", "`kill 77`"});
  machine_.daemon.status["version"] = "0.0.9";
  ExpectFinding(One(CheckVersions), kWarning, "daemon_differs", {"0.0.9", "`kill 77`"});
  machine_.root_starts_daemon = true;
  ExpectFinding(One(CheckVersions), kWarning, "daemon_differs", {"as root", "--everybody"});
  machine_.preload.build = "0.0.8";
  ExpectFinding(One(CheckVersions), kProblem, "files_differ", {"libtandem.so", "0.0.8"});
  machine_.daemon_version = "0.0.7";
  ExpectFinding(One(CheckVersions), kProblem, "files_differ", {"tandemd", "0.0.7"});
}

}  // namespace
}  // namespace tandem::cli
