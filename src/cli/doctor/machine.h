// Machine: all that the checks of `tandem doctor` go by. Tests fill it by hand.
//
// Threading: none. LookAtMachine starts processes and waits for them, each for a bounded time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/layout.h"
#include "src/base/result.h"
#include "src/cli/environment.h"
#include "src/cuda/card_modes.h"
#include "src/cuda/driver_state.h"

namespace tandem::cli {

struct DaemonFacts {
  std::optional<Error> error;  // why none answers
  int pid = 0;
  uid_t uid = 0;
  std::string executable;  // empty: unknown
  nlohmann::json status;   // its answers; null where there is none
  nlohmann::json sessions;
  nlohmann::json handovers;
};

// Whether the dynamic loader takes the shim into a program.
struct PreloadFacts {
  bool works = false;
  std::string build;  // version of the shim
  std::string said;   // by the loader, where it does not
};

// A card, as NVML describes it.
struct CardFacts {
  std::string uuid;
  std::map<int, Bytes> processes;  // what each has
  cuda::CardModes modes;
};

struct DirectoryFacts {
  bool is_directory = false;
  uid_t owner = 0;
  mode_t mode = 0;
};

struct Machine {
  std::string root;  // before /proc, /sys, /etc, /dev, /run and /tmp
  Environment environment;
  uid_t uid = 0;
  std::function<bool(const std::string& path)> can_open;  // to read and to write

  Gpu gpu = Gpu::kSoft;
  bool gpu_by_machine = false;  // nothing asked for a kind
  cuda::DriverState driver;     // asked where the kind is the card

  std::string version;  // of this program
  Result<Layout> layout = Layout();
  std::string soft_library;    // of the layout; empty: it is missing
  std::string daemon_version;  // of the daemon that is installed; empty: it did not say
  PreloadFacts preload;
  std::string program;  // a program to check; empty: none

  bool in_run = false;              // started by `tandem run`, which still lasts
  bool root_starts_daemon = false;  // for all users
  std::string socket;
  std::optional<DirectoryFacts> directory;  // of the socket; none: it does not exist
  DaemonFacts daemon;

  std::optional<std::vector<CardFacts>>
      cards;  // as NVML counts; none: NVML does not answer, or was not asked
  std::optional<Bytes> locked_memory;  // limits of this process; none: unlimited
  std::optional<Bytes> address_space;
};

// This machine. kInvalid where no kind of GPU is called `gpu`.
Result<Machine> LookAtMachine(const std::optional<std::string>& gpu, const std::string& program);

// The text of a file below the machine's root, at most 64 KiB of it; empty where there is none.
std::string ReadFile(const Machine& machine, const std::string& path);
bool Exists(const Machine& machine, const std::string& path);
// Names in a directory, in order.
std::vector<std::string> FilesIn(const Machine& machine, const std::string& path);

// The largest card of the daemon; none without one.
std::optional<Bytes> LargestCard(const Machine& machine);

}  // namespace tandem::cli
