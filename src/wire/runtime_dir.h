// Where the daemon's socket is, and a user's own files.
//
// A directory is one user's alone (mode 0700) or, root's, for all users (mode 0711). All users can
// pass through the latter to the socket of root's daemon, and can neither list nor write it. On a
// machine with such a directory, users start no daemons of their own: each would count the programs
// of the others as outside Tandem.
//
// Threading: any thread, as long as none changes the environment.
#pragma once

#include <string>

#include "src/base/result.h"

namespace tandem::wire {

// Directory of the daemon's socket: $TANDEM_RUNTIME_DIR, else /run/tandem where that is for all
// users, else this user's own: /run/tandem for root, else UserDirectory(). $XDG_RUNTIME_DIR has no
// part in it: cron, su and some logins do not set it, and a logout removes that directory.
std::string RuntimeDir();

// Whether `dir` is root's and open to all users.
bool IsEverybodys(const std::string& dir);

// Whether the daemon there is root's, for all users, so that this user does not start it.
bool RootStartsTheDaemon();

// Makes RuntimeDir() with mode 0700. kRefused where another user owns it or others may write to it.
Status MakeRuntimeDir();

// Makes $TANDEM_RUNTIME_DIR, else /run/tandem, and opens it to all users; from then on it is
// RuntimeDir(). kRefused unless root: no user believes another user's daemon.
Status MakeEverybodysDir();
// Takes that back, where it was not so before and no daemon has come of it.
void CloseEverybodysDir();

// Directory of this user's own files: RuntimeDir(), or where that is not his, the one he would have
// without it.
std::string OwnDir();
// As MakeRuntimeDir.
Status MakeOwnDir();

// Says that another user has taken the usual directory, and where this user's is. Empty otherwise.
std::string DisplacedNote();

// tandemd.sock in RuntimeDir(), or tandemd-soft.sock where TANDEM_GPU is "soft": each kind of GPU
// has a daemon of its own, so that a program never meets the one that does not know its GPU.
std::string SocketPath();

// A file in OwnDir() for that kind of GPU, named as the socket is but for the ending, such as
// ".log".
std::string OwnFile(const char* ending);

}  // namespace tandem::wire
