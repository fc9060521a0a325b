// Tandem's own parts: files, shim, daemon and their versions.
#include <fmt/core.h>

#include <algorithm>

#include "src/cli/daemon.h"
#include "src/cli/doctor/checks.h"
#include "src/cli/doctor/library_paths.h"
#include "src/cli/fields.h"
#include "src/wire/messages.h"

namespace tandem::cli {
namespace {

constexpr const char* kPreloadFile = "/etc/ld.so.preload";
// What the dynamic loader splits LD_PRELOAD and the lists of paths at.
constexpr const char* kUnusable = " :;";
constexpr const char* kMove = "move Tandem to a path without spaces, colons and semicolons";
constexpr mode_t kOthersMayWrite = 022;

bool IsUnusable(const std::string& path) {
  return path.find_first_of(kUnusable) != std::string::npos;
}

// Libraries that share a GPU in ways of their own, by a part of the file's name.
struct OtherSharer {
  const char* library;
  const char* project;
};
constexpr OtherSharer kOtherSharers[] = {{"libnvshare", "nvshare"},
                                         {"libvgpu", "HAMi"},
                                         {"libgemhook", "KubeShare"},
                                         {"libshimcuda", "XSched"}};

const OtherSharer* SharerOf(const std::string& library) {
  const std::string name = library.substr(library.rfind('/') + 1);
  const auto* const found =
      std::find_if(std::begin(kOtherSharers), std::end(kOtherSharers),
                   [&](const OtherSharer& each) { return name.starts_with(each.library); });
  return found == std::end(kOtherSharers) ? nullptr : found;
}

Findings CheckPreloadsOf(const Machine& machine, const std::string& where,
                         const std::vector<std::string>& libraries) {
  Findings findings;
  for (const std::string& library : libraries) {
    if (const OtherSharer* const sharer = SharerOf(library)) {
      findings.push_back(Problem(
          "other_sharer",
          fmt::format("{} loads {}, with which {} shares a GPU: both would hold back a program.",
                      where, Outside(library), sharer->project),
          fmt::format("take it out of {}", where)));
    } else if (library.find('/') != std::string::npos && !Exists(machine, library)) {
      findings.push_back(
          Warning("preload_file_missing",
                  fmt::format("{} names {}, which does not exist.", where, Outside(library)),
                  fmt::format("take it out of {}", where)));
    }
  }
  return findings;
}

// A socket's directory that `tandem run` would refuse.
bool IsUnsafe(const Machine& machine, const DirectoryFacts& directory) {
  const uid_t owner = machine.root_starts_daemon ? 0 : machine.uid;
  return !directory.is_directory || directory.owner != owner ||
         (directory.mode & kOthersMayWrite) != 0;
}

Finding DescribeMissingDaemon(const Machine& machine) {
  const std::string socket = Outside(machine.socket);
  if (machine.root_starts_daemon) {
    return Problem(
        "daemon_missing",
        fmt::format("No daemon answers at {}, where root's daemon serves all users.", socket),
        fmt::format("start it as root: `{} --daemonize`", kStartForAllUsers));
  }
  return Note("no_daemon",
              fmt::format("No daemon runs at {}: the GPUs themselves were not checked.", socket),
              "start a program with `tandem run`, which starts the daemon, and check again");
}

// An error of ours says what happened, and behind "; " what to do.
struct Parts {
  std::string happened;
  std::string remedy;
};
Parts PartsOfError(const std::string& message, const char* remedy) {
  const size_t end = message.find("; ");
  if (end == std::string::npos) return {message, remedy};
  return {message.substr(0, end), message.substr(end + 2)};
}

// Of a daemon that was connected to.
Finding DescribeFailure(const Machine& machine, const Error& error) {
  const int pid = machine.daemon.pid;
  switch (error.code) {
    case ErrorCode::kVersion: {
      const Parts parts = PartsOfError(error.message, "restart the daemon");
      return Problem("daemon_version", fmt::format("The versions do not fit: {}.", parts.happened),
                     parts.remedy);
    }
    case ErrorCode::kRefused:
      return Problem("daemon_refuses",
                     fmt::format("The daemon (process {}) refuses this user: {}.", pid,
                                 Outside(error.message)),
                     "end programs of this user that have connections to the daemon");
    default:
      return Problem(
          "daemon_silent",
          fmt::format("The daemon (process {}) does not answer: {}.", pid, Outside(error.message)),
          fmt::format("restart it: `kill -9 {}`; programs under it go on", pid));
  }
}

Finding DescribeConnection(const Machine& machine, const Error& error) {
  switch (error.code) {
    case ErrorCode::kNotFound:
    case ErrorCode::kUnavailable:
      return DescribeMissingDaemon(machine);
    case ErrorCode::kRefused:
      return Problem("socket_owner",
                     fmt::format("The socket belongs to another user: {}.", Outside(error.message)),
                     "set TANDEM_RUNTIME_DIR to a directory of this user");
    default: {
      const Parts parts =
          PartsOfError(error.message, "set TANDEM_RUNTIME_DIR to another directory");
      return Problem("socket_unusable",
                     fmt::format("The socket cannot be used: {}.", Outside(parts.happened)),
                     parts.remedy);
    }
  }
}

// Not hidden in a bundle where it is a version as Tandem's are.
std::string Version(const std::string& text) {
  const bool plain = text.find_first_not_of("0123456789.") == std::string::npos;
  return plain ? text : Outside(text);
}

std::string Restart(const Machine& machine) {
  const int pid = machine.daemon.pid;
  if (machine.root_starts_daemon) {
    return fmt::format("restart it as root: `kill {}`, then `{} --daemonize`", pid,
                       kStartForAllUsers);
  }
  return fmt::format("`kill {}`: programs go on, and the next `tandem run` starts the new one",
                     pid);
}

}  // namespace

Findings CheckFiles(const Machine& machine) {
  if (!machine.layout.ok()) {
    return {Problem("files_missing", fmt::format("{}.", Outside(machine.layout.error().message)),
                    "install Tandem again: `./dev install --prefix ~/.local`")};
  }
  const Layout& layout = *machine.layout;
  if (IsUnusable(layout.shim)) {
    return {Problem("path_unusable",
                    fmt::format("Tandem lies at {}: the dynamic loader takes no path with spaces, "
                                "colons or semicolons.",
                                Outside(layout.shim)),
                    kMove)};
  }
  if (machine.gpu == Gpu::kSoft && machine.soft_library.empty()) {
    return {Problem("soft_gpu_missing",
                    fmt::format("The software GPU is missing in {}.", Outside(layout.soft_dir)),
                    "install Tandem again: `./dev install --prefix ~/.local`")};
  }
  return {Fine("files_fine", "All files of Tandem are installed.")};
}

Findings CheckPreload(const Machine& machine) {
  const std::string list = Lookup(machine.environment, "LD_PRELOAD").value_or("");
  const std::vector<std::string> libraries = PartsOf(list, ": ");
  const std::vector<std::string> of_all =
      PartsOf(ReadFile(machine, kPreloadFile), ": \t\n");  // programs of this machine
  Findings findings = CheckPreloadsOf(machine, "LD_PRELOAD", libraries);
  for (Finding& each : CheckPreloadsOf(machine, kPreloadFile, of_all)) findings.push_back(each);
  const std::string shim = machine.layout.ok() ? machine.layout->shim : "libtandem.so";
  if (!machine.preload.works) {
    findings.push_back(Problem(
        "preload_fails",
        fmt::format("The dynamic loader does not take {} into a program{}.", Outside(shim),
                    machine.preload.said.empty() ? "" : ": " + Outside(machine.preload.said)),
        IsUnusable(shim)
            ? kMove
            : "make the file readable, and its file system one that is not mounted `noexec`"));
  }
  const bool named = std::find(libraries.begin(), libraries.end(), shim) != libraries.end();
  if (machine.in_run && !named) {
    findings.push_back(Problem("preload_lost",
                               "This is inside of a `tandem run`, but LD_PRELOAD has lost the "
                               "shim: programs started here bypass Tandem.",
                               "start them with `tandem run`"));
  }
  if (!findings.empty()) return findings;
  return {Fine("preload_works", "The dynamic loader takes the shim into programs.")};
}

Findings CheckDaemon(const Machine& machine) {
  if (machine.directory && IsUnsafe(machine, *machine.directory)) {
    const std::string path = machine.socket.substr(0, machine.socket.rfind('/'));
    return {Problem("directory_unsafe",
                    fmt::format("{} must be a directory of this user that others cannot write to.",
                                Outside(path)),
                    "remove it, or set TANDEM_RUNTIME_DIR to another one")};
  }
  const DaemonFacts& daemon = machine.daemon;
  if (daemon.error) {
    return {daemon.pid != 0 ? DescribeFailure(machine, *daemon.error)
                            : DescribeConnection(machine, *daemon.error)};
  }
  return {Fine("daemon_answers", fmt::format("Process {} of {} answers.", daemon.pid,
                                             daemon.uid == machine.uid ? "this user" : "root"))};
}

Findings CheckVersions(const Machine& machine) {
  const std::string& own = machine.version;
  for (const auto& [what, version] : {std::pair("tandemd", machine.daemon_version),
                                      std::pair("libtandem.so", machine.preload.build)}) {
    if (version.empty() || version == own) continue;
    return {Problem("files_differ",
                    fmt::format("The installed {} is version {}, this tandem is version {}.", what,
                                Version(version), own),
                    "install Tandem again: `./dev install --prefix ~/.local`")};
  }
  const std::string running = RawText(machine.daemon.status, "version");
  if (!running.empty() && running != own) {
    return {Warning("daemon_differs",
                    fmt::format("The daemon that runs is version {}, this tandem is version {}.",
                                Version(running), own),
                    Restart(machine))};
  }
  const std::string& executable = machine.daemon.executable;
  if (machine.layout.ok() && !executable.empty() && executable != machine.layout->daemon) {
    return {Note(
        "daemon_of_other_files",
        fmt::format("The daemon that runs was started from another file: {}.", Outside(executable)),
        Restart(machine))};
  }
  return {Fine("versions_agree",
               fmt::format("All parts are version {}, protocol {}.", own, wire::kVersion))};
}

}  // namespace tandem::cli
