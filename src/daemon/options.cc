#include "src/daemon/options.h"

#include <CLI/CLI.hpp>

namespace tandem::daemon {

ParsedOptions ParseOptions(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Options& options = parsed.options;
  CLI::App app{
      "tandemd decides which programs may use this machine's GPUs, and when.\n"
      "`tandem run` starts one where none runs; there is nothing to configure."};
  app.set_version_flag("--version", "tandemd " TANDEM_VERSION);
  double idle_seconds = 0;
  bool foreground = false;
  auto* stay = app.add_flag("--foreground", foreground, "stay in the foreground (the default)");
  app.add_flag("--daemonize", options.daemonize,
               "go to the background once programs can connect; log to --log")
      ->excludes(stay);
  app.add_option("--reserve-contexts", options.reserved_contexts,
                 "keep room on each card for this many contexts")
      ->check(CLI::Range(1u, 64u))
      ->capture_default_str();
  app.add_option("--log", options.log_file,
                 "write the log to this file, at most 1 MiB and as much of an older one");
  auto* idle = app.add_option("--exit-when-idle", idle_seconds,
                              "end after this many seconds without a program or a run")
                   ->check(CLI::Range(0.0, 1e6));
  app.add_option("--devices-json", options.devices_json,
                 "take the GPUs from this file, as --probe prints them (for tests)");
  app.add_flag("--probe", options.probe, "print what the GPUs are, as JSON, and end");
  app.footer(
      "Examples:\n"
      "  tandemd                                       in this terminal; end it with Ctrl-C\n"
      "  tandemd --daemonize --log /tmp/tandemd.log    in the background\n"
      "  TANDEM_GPU=soft tandemd                       on the software GPU\n"
      "  tandem status                                 what it is doing");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit_status = app.exit(error);
  }
  if (idle->count() > 0) {
    options.exit_when_idle = Duration(static_cast<int64_t>(idle_seconds * 1e9));
  }
  return parsed;
}

}  // namespace tandem::daemon
