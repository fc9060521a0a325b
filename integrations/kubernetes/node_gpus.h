// The node's GPUs, as its daemon says, and the CDI specification of them.
//
// Threading: one thread, but for WriteDevice. Runs the command `tandem`.
#pragma once

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

class NodeGpus {
 public:
  NodeGpus(const NodeOptions& options, Bytes unit);

  // Asks the daemon. Whether something has changed; writes the specification where GPUs have.
  Result<bool> Refresh();

  // Where the daemon is away, its GPUs are those of before, and unhealthy.
  bool healthy() const { return healthy_; }
  Counts memory() const;  // units of each GPU
  Counts shares(int of_each) const;
  std::map<int, GpuMemory> offered() const;

  // Writes the specification of a device with a share of the time, beside that of all others. Any
  // thread, one at a time.
  Status WriteDevice(const Allocated& device) const;

 private:
  Status WriteSpecification(Bytes largest);

  NodeOptions options_;
  Bytes unit_;
  integrations::Command command_;
  std::map<int, Bytes> shared_;  // of each GPU
  bool healthy_ = false;
};

}  // namespace tandem::kubernetes
