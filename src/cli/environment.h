// The environment a program needs to be shared.
//
// Pure but for ChooseGpu: lists of "NAME=value" go in and come out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/layout.h"
#include "src/cuda/driver_state.h"

namespace tandem::cli {

using Environment = std::vector<std::string>;

enum class Gpu { kCuda, kSoft };

// Of this process.
Environment OwnEnvironment();

// The value of `name`; nothing where it is not set.
std::optional<std::string> Lookup(const Environment& environment, std::string_view name);

// For a program of run `run`: the shim is preloaded before whatever was, the software GPU's
// libcuda.so.1 is found first if `gpu` says so. Doing it twice changes nothing.
// Errors: kInvalid where the dynamic loader cannot take the paths.
Result<Environment> SharedEnvironment(Environment environment, const Layout& layout, Gpu gpu,
                                      uint64_t run);
// What the shim calls the run in commands that it names.
void SetRunName(Environment* environment, const std::string& name);

// The software GPU goes by the class of work, too, unless the user has said otherwise: production's
// kernels come before all others', and opportunistic ones after.
void SetDevicePriority(Environment* environment, std::string_view of_class);

// For a program that runs beside Tandem: neither shim nor run, but the same GPU.
Result<Environment> BareEnvironment(Environment environment, const Layout& layout, Gpu gpu);

// As the exec functions want a list: null-terminated, valid as long as `strings` lives unchanged.
std::vector<char*> ExecPointers(const std::vector<std::string>& strings);

struct GpuChoice {
  Gpu gpu = Gpu::kSoft;
  bool by_machine = false;  // nothing asked for a kind: the machine's driver decided
  std::string broken;       // why that driver does not work; empty where it does, or was not asked
};

// `asked` ("cuda" or "soft"), else by what `driver` says of this machine. A broken driver is
// chosen, too: the software GPU in its place would be a surprise.
Result<GpuChoice> ChooseGpu(const std::optional<std::string>& asked,
                            const std::function<cuda::DriverState()>& driver);

// NVIDIA's driver on this machine. Where its kernel module is loaded it counts as working: then the
// daemon asks it, and says what is wrong.
cuda::DriverState NvidiaDriver();

// The kind of GPU that this process is about: `asked`, else TANDEM_GPU's, else what the machine
// has. Puts it into TANDEM_GPU, which says from there on which daemon is meant.
Result<GpuChoice> ChooseGpu(const std::optional<std::string>& asked);

}  // namespace tandem::cli
