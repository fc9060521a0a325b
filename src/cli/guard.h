// Guard: the parent of the program of a run. To the process that started `tandem run` it is the
// program: signals go through, and it ends as the program ends.
//
// Threading: one thread. Forks.
// Invariants
// 1. The program starts with the signal mask and dispositions that `tandem run` was started with,
//    in its process group, with its terminal.
// 2. A signal from the terminal reaches the program once: the kernel sends it to the whole group,
//    so only those that processes send are passed on. One that a process sends to the whole group
//    looks like one sent to the guard alone, and reaches the program twice. Where job control stops
//    the program, the guard stops with it; SIGCONT to either the guard or the group continues both.
// 3. If the guard dies, the program dies: ending what one started is to end it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/cli/environment.h"

namespace tandem::cli {

struct Program {
  std::string file;                    // to execute
  std::vector<std::string> arguments;  // from argv[0]
  Environment environment;
};

// What the guard watches beside the program, for as long as it runs. The functions must not wait:
// no signal reaches the program meanwhile.
struct Companion {
  int fd = -1;  // poll it; -1: nothing
  // Returns the fd to poll from now on.
  std::function<int()> on_readable = {};
  // While fd is -1: called every few milliseconds, and returns the same.
  std::function<int()> on_retry_time = {};
  std::function<void()> on_interrupt = {};  // SIGINT came, which the program gets, too
  std::function<void()> on_pause = {};      // the program has ended, or is stopped
};

// Runs `program` and returns its wait status once it has ended.
// Errors: kNotFound or kRefused where it cannot be executed.
Result<int> RunGuarded(const Program& program, Companion companion);

// Ends this process the way `wait_status` says the program ended.
[[noreturn]] void EndLike(int wait_status);

// Replaces this process by the program; returns only on error, as RunGuarded.
Error Become(const Program& program);

}  // namespace tandem::cli
