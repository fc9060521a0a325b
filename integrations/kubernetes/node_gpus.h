// The node's GPUs, as its daemon says, and the CDI specification of them.
//
// Threading: one thread, but for WriteDevice. Runs the command `tandem`.
#pragma once

#include <map>
#include <set>
#include <string>

#include "integrations/common/command.h"
#include "integrations/kubernetes/api_server.h"
#include "integrations/kubernetes/claims.h"
#include "integrations/kubernetes/devices.h"

namespace tandem::kubernetes {

// Of the programs that offer the GPUs of a node.
struct NodeOptions {
  std::string specification = "/var/run/cdi/tandem.json";
  std::string kind = "tandem.dev/gpu";
  std::string tandem;  // the command; empty: of this installation
  std::string unit = "1G";
  double oversubscribe = 1;
  std::string node;  // its name
  ApiAccess api;
};

struct NodeGpu {
  Bytes shared;         // memory that programs can have
  bool healthy = true;  // the driver has not lost it
  bool operator==(const NodeGpu&) const = default;
};

class NodeGpus {
 public:
  NodeGpus(const NodeOptions& options, Bytes unit);

  // Asks the daemon. Whether something has changed; writes the specification where GPUs have.
  Result<bool> Refresh();

  // Where the daemon is away, its GPUs are those of before, and all unhealthy.
  bool daemon_answers() const { return daemon_answers_; }
  std::set<int> unhealthy() const;
  Counts memory() const;  // units of each GPU
  Counts shares(int of_each) const;
  // Of the healthy ones: units, and memory.
  Counts usable() const;
  std::map<int, GpuMemory> offered() const;

  // Writes the specification of a device with a share of the time, beside that of all others. Any
  // thread, one at a time.
  Status WriteDevice(const Allocated& device) const;

 private:
  Status WriteSpecification(Bytes largest);

  NodeOptions options_;
  Bytes unit_;
  integrations::Command command_;
  std::map<int, NodeGpu> gpus_;
  bool daemon_answers_ = false;
};

}  // namespace tandem::kubernetes
