#include "src/cli/containers/driver_files.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

// What each program with CUDA opens, whatever its GPU. Not every machine has those after the first
// kNeededNodes.
constexpr std::array<const char*, 3> kCommonNodes = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"};
constexpr size_t kNeededNodes = 2;
// Of the driver, without graphics and video.
constexpr std::array<std::string_view, 8> kLibraries = {
    "libcuda",        "libcudadebugger",   "libnvidia-ml",     "libnvidia-ptxjitcompiler",
    "libnvidia-nvvm", "libnvidia-gpucomp", "libnvidia-nvvm70", "libnvidia-cfg"};
#if defined(__aarch64__)
constexpr const char* kMultiarch = "/usr/lib/aarch64-linux-gnu";
#else
constexpr const char* kMultiarch = "/usr/lib/x86_64-linux-gnu";
#endif

// The number of a GPU's node, which need not be the GPU's number. Empty: the driver does not tell.
std::string MinorOf(const std::string& facts, const std::string& uuid) {
  std::error_code error;
  for (const auto& gpu : fs::directory_iterator(facts, error)) {
    std::ifstream file(gpu.path() / "information");
    std::string minor, found;
    for (std::string line; std::getline(file, line);) {
      const size_t end = line.find_last_of(" \t") + 1;
      if (line.starts_with("GPU UUID:")) found = line.substr(end);
      if (line.starts_with("Device Minor:")) minor = line.substr(end);
    }
    if (found == uuid) return minor;
  }
  return {};
}

bool AddNode(const std::string& node, const std::string& name, DriverFiles* files) {
  struct stat facts {};
  if (stat(node.c_str(), &facts) != 0 || !S_ISCHR(facts.st_mode)) return false;
  files->devices.push_back({major(facts.st_rdev), minor(facts.st_rdev)});
  files->mounts.push_back({node, "/dev/" + name, true});
  return true;
}

Status AddNodes(const DriverPlaces& places, const std::string& uuid, DriverFiles* files) {
  std::vector<std::string> names(kCommonNodes.begin(), kCommonNodes.begin() + kNeededNodes);
  names.push_back("nvidia" + MinorOf(places.facts, uuid));
  for (const std::string& name : names) {
    const std::string node = places.devices + "/" + name;
    if (name == "nvidia" || !AddNode(node, name, files)) {
      return Error{ErrorCode::kNotFound, "this machine has no device " +
                                             (name == "nvidia" ? "of GPU " + uuid : node) +
                                             ": run `nvidia-smi` once, as root"};
    }
  }
  for (size_t i = kNeededNodes; i < kCommonNodes.size(); ++i) {
    AddNode(places.devices + "/" + kCommonNodes[i], kCommonNodes[i], files);
  }
  return {};
}

// "libcuda.so.580.1" is one of "libcuda".
bool IsWanted(const std::string& name) {
  return std::any_of(kLibraries.begin(), kLibraries.end(), [&](std::string_view library) {
    return name.starts_with(std::string(library) + ".so");
  });
}

// Each name of a library: the loader asks for some by their version, and for some by a link.
void AddLibraries(const std::string& library, const std::string& folder, DriverFiles* files) {
  std::error_code error;
  std::set<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(fs::path(library).parent_path(), error)) {
    if (IsWanted(entry.path().filename())) entries.insert(entry.path());
  }
  for (const fs::path& entry : entries) {
    const fs::path file = fs::canonical(entry, error);
    if (!error) files->mounts.push_back({file, folder + "/" + entry.filename().string()});
  }
}

// Where the container's loader looks without a cache.
std::string LibraryFolderIn(const std::string& root) {
  std::error_code error;
  for (const char* const folder : {kMultiarch, "/usr/lib64", "/lib64"}) {
    if (fs::is_directory(root + folder, error)) return folder;
  }
  return {};
}

}  // namespace

Result<DriverPlaces> PlacesOfDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error{ErrorCode::kNotFound,
                 "cannot load NVIDIA's driver here: `tandem doctor` tells why"};
  }
  DriverPlaces places;
  link_map* loaded = nullptr;
  std::error_code error;
  if (dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&loaded)) == 0) {
    places.library = fs::canonical(loaded->l_name, error);
  }
  dlclose(library);
  if (places.library.empty()) {
    return Error{ErrorCode::kFailed, "cannot find the file of NVIDIA's driver libcuda.so.1"};
  }
  return places;
}

Result<DriverFiles> DriverFilesFor(const DriverPlaces& places, const std::string& root,
                                   const std::string& uuid) {
  DriverFiles files;
  TRY(AddNodes(places, uuid, &files));
  const std::string folder = LibraryFolderIn(root);
  if (folder.empty()) {
    return Error{ErrorCode::kUnsupported,
                 "the container has no folder for NVIDIA's libraries: start it with --device "
                 "nvidia.com/gpu=all"};
  }
  AddLibraries(places.library, folder, &files);
  std::error_code error;
  if (fs::exists(places.monitor, error)) {
    files.mounts.push_back({places.monitor, "/usr/bin/nvidia-smi"});
  }
  return files;
}

}  // namespace tandem::cli
