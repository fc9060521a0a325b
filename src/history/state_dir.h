// Where what is recorded outlives the daemon.
//
// Threading: any thread, as long as none changes the environment.
#pragma once

#include <string>

namespace tandem::history {

// $TANDEM_STATE_DIR; else $TANDEM_RUNTIME_DIR/history; else /var/lib/tandem, where root's daemon
// serves all users; else $XDG_STATE_HOME/tandem; else ~/.local/state/tandem. The caller makes it.
std::string StateDir();

}  // namespace tandem::history
