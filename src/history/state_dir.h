// Where a daemon keeps what shall outlive it: its event log and its accounts.
//
// Threading: any thread, as long as none changes the environment.
#pragma once

#include <string>

#include "src/base/result.h"

namespace tandem::history {

// $TANDEM_STATE_DIR, else $TANDEM_RUNTIME_DIR/history where that variable is set, else
// /var/lib/tandem where the daemon of this machine serves all users, or this user is root, else
// $XDG_STATE_HOME/tandem, where that is unset ~/.local/state/tandem. Empty: the user has no home
// directory.
std::string StateDir();

// Makes StateDir(), and those above it, with mode 0700; 0711 where `everybody_reads`.
Status MakeStateDir(bool everybody_reads);

// The file in StateDir() for the kind of GPU that TANDEM_GPU names, such as
// events.jsonl or events-soft.jsonl.
std::string StateFile(const std::string& name, const std::string& ending);

inline std::string EventsFile() {
  return StateFile("events", ".jsonl");
}
inline std::string AccountsFile() {
  return StateFile("accounts", ".db");
}

}  // namespace tandem::history
