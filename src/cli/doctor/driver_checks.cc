// Which GPU programs get, and which libraries stand before its driver.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "src/cli/doctor/checks.h"
#include "src/cli/doctor/library_paths.h"
#include "src/cli/program.h"

namespace tandem::cli {
namespace {

constexpr const char* kModuleVersion = "/proc/driver/nvidia/version";
constexpr const char* kControlDevice = "/dev/nvidiactl";
constexpr const char* kSoftFolder = "/tandem/soft";

bool ModuleIsLoaded(const Machine& machine) {
  return Exists(machine, kModuleVersion) || Exists(machine, kControlDevice);
}

// "550.54.14" of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb …".
std::string ModuleVersion(const Machine& machine) {
  const std::string text = ReadFile(machine, kModuleVersion);
  for (const std::string& word : PartsOf(text.substr(0, text.find('\n')), " \t")) {
    const bool digits = word.find_first_not_of("0123456789.") == std::string::npos;
    if (digits && word.find('.') != std::string::npos) return word;
  }
  return "";
}

// What to do about an error of cuInit.
std::string RemedyFor(const std::string& why) {
  const auto has = [&](const char* part) { return why.find(part) != std::string::npos; };
  if (has("SYSTEM_DRIVER_MISMATCH")) {
    return "restart the machine: the kernel's module and the library are of different versions";
  }
  if (has("COMPAT_NOT_SUPPORTED")) {
    return "take the directory `compat` of CUDA out of LD_LIBRARY_PATH";
  }
  if (has("SYSTEM_NOT_READY")) return "start NVIDIA's fabric manager: `nvidia-fabricmanager`";
  return "run `nvidia-smi`, and look for lines with NVRM in the kernel's log (`dmesg`)";
}

// A device of NVIDIA's driver that this user cannot open; empty where there is none.
std::string ForbiddenDevice(const Machine& machine) {
  for (const std::string& name : FilesIn(machine, "/dev")) {
    const bool needed =
        name == "nvidiactl" || name == "nvidia-uvm" ||
        (name.starts_with("nvidia") && name.size() > 6 && std::isdigit(name[6]) != 0);
    if (needed && !machine.can_open(machine.root + "/dev/" + name)) return "/dev/" + name;
  }
  return "";
}

Findings CheckBrokenDriver(const Machine& machine) {
  if (const std::string device = ForbiddenDevice(machine); !device.empty()) {
    return {Problem("device_forbidden",
                    fmt::format("The driver does not work ({}), and this user may not open {}.",
                                machine.driver.why, Outside(device)),
                    "let an administrator add this user to the group that owns the device")};
  }
  return {Problem("driver_broken",
                  fmt::format("NVIDIA's driver does not work: {}.", machine.driver.why),
                  RemedyFor(machine.driver.why))};
}

Findings CheckMissingDriver(const Machine& machine) {
  if (!ModuleIsLoaded(machine)) {
    return {Problem("driver_missing", "The card was asked for, and no NVIDIA driver was found.",
                    "install NVIDIA's driver, or use the software GPU: `--gpu soft`")};
  }
  if (Lookup(machine.environment, "CUDA_VISIBLE_DEVICES")) {
    return {Problem("cards_hidden",
                    "NVIDIA's driver sees no card, and CUDA_VISIBLE_DEVICES hides some or all.",
                    "unset CUDA_VISIBLE_DEVICES")};
  }
  return {Problem("driver_incomplete",
                  "NVIDIA's module is in the kernel, but no libcuda.so.1 here finds a card.",
                  "run `nvidia-smi`; in a container, start it with the GPU "
                  "(`docker run --gpus all`)")};
}

// What a directory that the loader searches first has in the place of the driver; empty: nothing.
struct Obstacle {
  std::string directory;
  enum class Kind { kStub, kSoftwareGpu, kOther } kind = Kind::kOther;
};

std::vector<Obstacle> ObstaclesIn(const Machine& machine,
                                  const std::vector<std::string>& directories) {
  const std::string own = machine.layout.ok() ? machine.layout->soft_dir : "";
  std::vector<Obstacle> found;
  for (std::string directory : directories) {
    while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
    // `tandem run` sets and removes its own software GPU.
    if (directory == own || !Exists(machine, directory + "/libcuda.so.1")) continue;
    const bool stub = directory.find("/stubs") != std::string::npos;
    const bool soft = directory.ends_with(kSoftFolder);
    found.push_back({directory, stub   ? Obstacle::Kind::kStub
                                : soft ? Obstacle::Kind::kSoftwareGpu
                                       : Obstacle::Kind::kOther});
  }
  return found;
}

// Of a directory in LD_LIBRARY_PATH.
Finding Describe(const Obstacle& obstacle) {
  const std::string remedy = "take that directory out of LD_LIBRARY_PATH";
  const std::string where = Outside(obstacle.directory);
  switch (obstacle.kind) {
    case Obstacle::Kind::kStub:
      return Problem(
          "stub_library",
          fmt::format("LD_LIBRARY_PATH has {}, whose libcuda.so.1 is a stub for linking.", where),
          remedy);
    case Obstacle::Kind::kSoftwareGpu:
      return Problem("other_software_gpu",
                     fmt::format("LD_LIBRARY_PATH has {}, the software GPU of another "
                                 "installation: programs do not reach the card.",
                                 where),
                     remedy);
    case Obstacle::Kind::kOther:
      break;
  }
  return Warning("other_libcuda",
                 fmt::format("LD_LIBRARY_PATH has {}, whose libcuda.so.1 is used in the place of "
                             "the system's.",
                             where),
                 remedy + ", unless it is meant");
}

Findings CheckPathsOfProgram(const Machine& machine, const std::string& file) {
  const bool soft = machine.gpu == Gpu::kSoft;
  const LibraryPaths paths = LibraryPathsOf(file);
  // LD_LIBRARY_PATH, which leads to the software GPU, comes before a runpath.
  std::vector<std::string> directories = paths.rpath;
  if (!soft) directories.insert(directories.end(), paths.runpath.begin(), paths.runpath.end());
  Findings findings;
  for (const Obstacle& obstacle : ObstaclesIn(machine, directories)) {
    const std::string sentence =
        fmt::format("The program's own library path has {}, whose libcuda.so.1 comes before {}.",
                    Outside(obstacle.directory), soft ? "the software GPU" : "the system's");
    const std::string remedy = "remove it: `patchelf --remove-rpath` on a copy of the program";
    const bool in_the_way = soft || obstacle.kind != Obstacle::Kind::kOther;
    findings.push_back(in_the_way ? Problem("program_rpath", sentence, remedy)
                                  : Warning("program_libcuda", sentence, remedy));
  }
  return findings;
}

}  // namespace

Findings CheckDriver(const Machine& machine) {
  if (machine.gpu == Gpu::kSoft) {
    if (!machine.gpu_by_machine) {
      return {Fine("software_gpu", "Programs use the software GPU, as asked for.")};
    }
    return {Note("no_driver",
                 "No NVIDIA driver was found: programs use the software GPU, which is slow.",
                 "install NVIDIA's driver, or set TANDEM_GPU=soft where this is meant")};
  }
  switch (machine.driver.kind) {
    case cuda::DriverState::Kind::kNone:
      return CheckMissingDriver(machine);
    case cuda::DriverState::Kind::kBroken:
      return CheckBrokenDriver(machine);
    case cuda::DriverState::Kind::kWorks:
      break;
  }
  const std::string version = ModuleVersion(machine);
  return {Fine("driver_works", version.empty()
                                   ? "NVIDIA's driver works."
                                   : fmt::format("NVIDIA's driver works, version {}.", version))};
}

Findings CheckLibraries(const Machine& machine) {
  if (machine.gpu == Gpu::kSoft) {
    return {Fine("libraries_fine", "The software GPU comes before other drivers.")};
  }
  const std::string path = Lookup(machine.environment, "LD_LIBRARY_PATH").value_or("");
  Findings findings;
  for (const Obstacle& obstacle : ObstaclesIn(machine, PartsOf(path, ":;"))) {
    findings.push_back(Describe(obstacle));
  }
  if (!findings.empty()) return findings;
  return {Fine("libraries_fine", "LD_LIBRARY_PATH has no other libcuda.so.1.")};
}

Findings CheckProgram(const Machine& machine) {
  const std::string path = Lookup(machine.environment, "PATH").value_or("/usr/bin:/bin");
  const Result<std::string> file = FindProgram(machine.program, path);
  if (!file.ok()) {
    return {Problem("program_missing", fmt::format("{}.", Outside(file.error().message)),
                    "give the program as `tandem run` would get it")};
  }
  if (const auto why = WhyNotShareable(*file, path, machine.uid)) {
    return {Problem("program_not_shareable",
                    fmt::format("{}: the dynamic loader takes no shim into it.", Outside(*why)),
                    "link it dynamically, or start it with `tandem run --unshared`")};
  }
  Findings findings = CheckPathsOfProgram(machine, ExecutedFile(*file, path));
  if (!findings.empty()) return findings;
  return {Fine("program_fine", fmt::format("{} can be shared.", Outside(*file)))};
}

}  // namespace tandem::cli
