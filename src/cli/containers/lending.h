// Lends a GPU to a container, as a lease of the daemon that its processes are known by.
//
// Talks to the daemon. Threading: none.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "src/base/result.h"
#include "src/cdi/spec.h"
#include "src/cli/containers/container.h"
#include "src/wire/channel.h"

namespace tandem::cli {

struct LendOptions {
  std::string gpu;        // its number; "any": that of which the least is guaranteed
  std::string memory;     // the limit, such as "20G"; empty: all that can be shared
  std::string share;      // of the time, such as "30%"; empty: none is set
  bool detached = false;  // without the GPU until `tandem attach`
};

// The daemon's leases, as `tandem lease list --json` prints them.
Result<nlohmann::json> AskLeases(wire::Channel* channel);

// The GPU of `leases` that a container gets on these terms. kNotFound: there is no such GPU.
Result<nlohmann::json> GpuToLend(const nlohmann::json& leases, const LendOptions& options);

// The lease; null where the container shares without one, since nothing tells its processes from
// others of its user. Errors in words: no daemon, another user's, a C library that does not serve.
Result<nlohmann::json> LendTo(const Container& container, const LendOptions& options);

// This machine's files, as containers are given them.
Result<cdi::CdiHost> HostForContainers();

}  // namespace tandem::cli
