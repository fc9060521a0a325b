// The specification of Tandem's devices for container runtimes: Container Device Interface (CDI,
// cncf.io "container-device-interface", SPEC.md 0.5.0).
//
// Pure, but for HostOf. Threading: none.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/layout.h"

namespace tandem::cdi {

inline constexpr char kCdiKind[] = "tandem.dev/gpu";

struct CdiGpu {
  int index = 0;
  Bytes shared;  // what can be shared of it
};

// The host's files, by their paths there.
struct CdiHost {
  std::string tandem;                         // the command, which the hooks run
  std::string shim;                           // libtandem.so
  std::string preload;                        // a file that names the shim's path in the container
  std::string runtime_dir;                    // of the daemon's socket
  std::string soft_dir;                       // the software GPU's libcuda.so.1
  std::string soft_state;                     // what the processes of software GPUs share
  bool software = false;                      // the GPUs
  std::vector<std::string> environment = {};  // of software GPUs: TANDEM_SOFT_...
};

struct Mount {
  std::string host, container;  // a file or a folder; its place in the container
  bool writable = false;
};

// What each container with a GPU has: the library, its preload file and the directory of the
// socket, and where Tandem finds them. The socket itself is another one after a restart of the
// daemon.
struct ContainerEdits {
  std::vector<std::string> environment;
  std::vector<Mount> mounts;
};

// `runtime_dir` and `environment`: of the daemon. The rest is as `layout` has it.
CdiHost HostOf(const Layout& layout, bool software, const std::string& runtime_dir,
               const std::vector<std::string>& environment);

ContainerEdits EditsOf(const CdiHost& host);

// Devices: "0" for a GPU, "0-20g" with a limit, "any" and "any-20g" for the GPU with the smallest
// guarantees, and "none". `sizes`: the limits; empty: each GiB.
nlohmann::json CdiSpec(const std::string& kind, const CdiHost& host,
                       const std::vector<CdiGpu>& gpus, const std::vector<Bytes>& sizes);

// The specification of one device: `words` are those of its hook.
nlohmann::json CdiSpecOf(const std::string& kind, const CdiHost& host, const std::string& device,
                         const std::vector<std::string>& words);

// Where the shim is in a container, which is the content of CdiHost::preload; and that file there.
inline constexpr char kShimInContainer[] = "/opt/tandem/libtandem.so";
inline constexpr char kPreloadInContainer[] = "/etc/ld.so.preload";

}  // namespace tandem::cdi
