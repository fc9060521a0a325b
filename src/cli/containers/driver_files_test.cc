#include "src/cli/containers/driver_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

// A machine with two GPUs, of which the second in the driver's order has the first node.
class DriverFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    for (const char* name : {"dev", "gpus/0000:01:00.0", "gpus/0000:02:00.0", "lib", "root"}) {
      fs::create_directories(folder_ + "/" + name);
    }
    int minor = 10;
    for (const char* name : {"nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"}) {
      const std::string node = folder_ + "/dev/" + name;
      if (mknod(node.c_str(), S_IFCHR | 0666, makedev(195, minor++)) != 0) {
        GTEST_SKIP() << "needs root";
      }
    }
    std::ofstream(folder_ + "/gpus/0000:01:00.0/information")
        << "Model: \t\t Card\nGPU UUID: \t GPU-a\nDevice Minor: \t 1\n";
    std::ofstream(folder_ + "/gpus/0000:02:00.0/information")
        << "GPU UUID: \t GPU-b\nBus Location: \t 0000:02:00.0\nDevice Minor: \t 0\n";
    for (const char* name : {"libcuda.so.9.1", "libnvidia-ml.so.9.1", "libnvidia-gpucomp.so.9.1",
                             "libGLX_nvidia.so.9.1", "libc.so.6", "libcudart.so.12"}) {
      std::ofstream(folder_ + "/lib/" + name) << name;
    }
    fs::create_symlink("libcuda.so.9.1", folder_ + "/lib/libcuda.so.1");
    fs::create_symlink("libcuda.so.1", folder_ + "/lib/libcuda.so");
    fs::create_symlink("libnvidia-ml.so.9.1", folder_ + "/lib/libnvidia-ml.so.1");
    fs::create_symlink("absent", folder_ + "/lib/libnvidia-cfg.so.1");
    places_ = {folder_ + "/dev", folder_ + "/gpus", folder_ + "/lib/libcuda.so.9.1",
               folder_ + "/nvidia-smi"};
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<DriverFiles> Files(const std::string& uuid) {
    return DriverFilesFor(places_, folder_ + "/root", uuid);
  }

  // Of the container's paths, those of the machine.
  static std::map<std::string, std::string> ByPlace(const DriverFiles& files) {
    std::map<std::string, std::string> found;
    for (const cdi::Mount& mount : files.mounts) found[mount.container] = mount.host;
    return found;
  }

  std::string folder_ = "/tmp/tandem-driver-XXXXXX";
  DriverPlaces places_;
};

TEST_F(DriverFilesTest, TheGpusNodeAndTheLibrariesByAllTheirNames) {
  fs::create_directories(folder_ + "/root/usr/lib64");
  const Result<DriverFiles> files = Files("GPU-a");
  ASSERT_TRUE(files.ok()) << files.error().message;
  const std::string lib = "/usr/lib64/";
  const std::map<std::string, std::string> expected = {
      {"/dev/nvidiactl", folder_ + "/dev/nvidiactl"},
      {"/dev/nvidia-uvm", folder_ + "/dev/nvidia-uvm"},
      {"/dev/nvidia1", folder_ + "/dev/nvidia1"},
      {lib + "libcuda.so.9.1", folder_ + "/lib/libcuda.so.9.1"},
      {lib + "libcuda.so.1", folder_ + "/lib/libcuda.so.9.1"},
      {lib + "libcuda.so", folder_ + "/lib/libcuda.so.9.1"},
      {lib + "libnvidia-ml.so.9.1", folder_ + "/lib/libnvidia-ml.so.9.1"},
      {lib + "libnvidia-ml.so.1", folder_ + "/lib/libnvidia-ml.so.9.1"},
      {lib + "libnvidia-gpucomp.so.9.1", folder_ + "/lib/libnvidia-gpucomp.so.9.1"}};
  EXPECT_EQ(ByPlace(*files), expected);
  std::vector<std::pair<unsigned, unsigned>> devices;
  for (const CharDevice& device : files->devices) devices.emplace_back(device.major, device.minor);
  EXPECT_EQ(devices, (std::vector<std::pair<unsigned, unsigned>>{{195, 10}, {195, 11}, {195, 13}}));
}

TEST_F(DriverFilesTest, WhatOnlySomeMachinesHave) {
  fs::create_directories(folder_ + "/root/lib64");
  std::ofstream(folder_ + "/nvidia-smi") << "program";
  ASSERT_EQ(mknod((folder_ + "/dev/nvidia-uvm-tools").c_str(), S_IFCHR | 0666, makedev(5, 1)), 0);
  const Result<DriverFiles> files = Files("GPU-b");
  ASSERT_TRUE(files.ok()) << files.error().message;
  std::map<std::string, std::string> found = ByPlace(*files);
  EXPECT_EQ(found["/dev/nvidia0"], folder_ + "/dev/nvidia0");
  EXPECT_EQ(found["/dev/nvidia-uvm-tools"], folder_ + "/dev/nvidia-uvm-tools");
  EXPECT_EQ(found["/usr/bin/nvidia-smi"], folder_ + "/nvidia-smi");
  EXPECT_EQ(found["/lib64/libcuda.so.1"], folder_ + "/lib/libcuda.so.9.1");
}

TEST_F(DriverFilesTest, SaysWhatIsMissing) {
  EXPECT_NE(Files("GPU-a").error().message.find("no folder for NVIDIA's libraries"),
            std::string::npos);
  EXPECT_NE(Files("GPU-c").error().message.find("no device of GPU GPU-c"), std::string::npos);
  fs::remove(folder_ + "/dev/nvidia-uvm");
  EXPECT_NE(Files("GPU-a").error().message.find("no device " + folder_ + "/dev/nvidia-uvm"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::cli
