// A container that its runtime is about to start: what an OCI runtime tells its hooks.
//
// Reads files of the host. Threading: none.
#pragma once

#include <string>

#include "src/base/result.h"

namespace tandem::cli {

struct Container {
  std::string id;
  std::string name;    // its hostname, or the beginning of its id
  std::string cgroup;  // as /proc/PID/cgroup has it; empty after its end, or where it has no own
  std::string root;    // its files
  unsigned uid = 0;    // on the host, of its program
};

// `state`: the JSON of the runtime (OCI runtime specification, "State"). kInvalid, kNotFound in
// words for the person who starts the container.
Result<Container> ReadContainer(const std::string& state);

// The cgroup that tells the process from others, of the text of /proc/PID/cgroup; empty: none does.
std::string OwnCgroup(const std::string& cgroups);

// An error where the library `shim` cannot be loaded in the container: its C library is musl, or
// an older glibc than the library was built with.
Status CheckLibc(const Container& container, const std::string& shim);

// The N of the highest GLIBC_2.N that the file names: what a library needs, or what a C library
// has. 0: none.
int HighestGlibc(const std::string& file);

}  // namespace tandem::cli
