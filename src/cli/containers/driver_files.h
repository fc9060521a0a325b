// NVIDIA's driver on this machine: what a container needs of it that was started without a GPU.
//
// Reads folders of the host. Threading: none.
#pragma once

#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/cdi/spec.h"
#include "src/cli/containers/device_cgroup.h"

namespace tandem::cli {

// Where the driver's parts are.
struct DriverPlaces {
  std::string devices = "/dev";
  std::string facts = "/proc/driver/nvidia/gpus";
  std::string library;  // the file of libcuda.so.1
  std::string monitor = "/usr/bin/nvidia-smi";
};

// Those of this machine. An error, in words, where the driver's library cannot be loaded.
Result<DriverPlaces> PlacesOfDriver();

struct DriverFiles {
  std::vector<cdi::Mount> mounts;
  std::vector<CharDevice> devices;
};

// The device nodes for that GPU, the libraries of CUDA and NVML, and nvidia-smi, for a container
// with the files `root`. `uuid`: as the driver prints it. An error, in words, where this machine
// has no such node, or the container no folder that its loader searches.
Result<DriverFiles> DriverFilesFor(const DriverPlaces& places, const std::string& root,
                                   const std::string& uuid);

}  // namespace tandem::cli
