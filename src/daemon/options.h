// The command line of tandemd.
#pragma once

#include <optional>
#include <string>

#include "src/base/bytes.h"
#include "src/base/result.h"
#include "src/base/time.h"
#include "src/core/arbiter.h"
#include "src/service/spill.h"

namespace tandem::daemon {

struct Options {
  bool daemonize = false;
  bool probe = false;
  bool meter = false;
  bool spill_keeper = false;
  bool everybody = false;    // serve all users
  bool leases_only = false;  // only programs with a lease
  unsigned reserved_contexts = 4;
  std::string cdi;           // file of the specification for containers; empty: none is written
  std::string log_file;      // empty: standard error
  std::string devices_json;  // empty: ask the driver
  std::string events;        // empty: the usual file; none: nowhere
  Bytes events_size = MiB(256);
  std::string accounts;  // as events
  std::optional<Duration> exit_when_idle;
  std::optional<Bytes> host_memory;  // default: the available memory less a tenth
  service::Spill spill;
  Duration fixed_wait = core::ArbiterConfig().fixed_wait;
  Duration longest_block = core::ArbiterConfig().longest_block;
  core::TurnRules turns;
  std::string policy = core::ArbiterConfig().policy;
  bool chaos = false;
  std::optional<uint64_t> seed;  // of chaos; one of our own where there is none
};

// Where the program has to end at once (help, version, a mistake), the status to end with.
struct ParsedOptions {
  Options options;
  std::optional<int> exit_status;
};
ParsedOptions ParseOptions(int argc, const char* const* argv);

}  // namespace tandem::daemon
