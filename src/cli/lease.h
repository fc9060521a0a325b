// `tandem lease`: GPUs for the jobs of a cluster engine.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace tandem::cli {

struct LeaseOptions {
  std::string what;  // the action, as the command has it
  std::string job;
  std::string name;
  std::string project;
  std::string user;  // a name or a number
  std::vector<std::string> gpus;
  std::string request, limit;
  std::string share;
  std::string of_class;
  std::string cgroup;
  bool oversubscribe = false;
  bool json = false;
  bool environment = false;
};

// The exit status.
int ManageLease(const LeaseOptions& options);

void AddLease(CLI::App* app, std::function<int()>* action);

}  // namespace tandem::cli
