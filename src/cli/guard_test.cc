// Runs shells under the guard, in a process of their own each: the guard blocks signals and ends
// processes.
#include "src/cli/guard.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "src/base/unique_fd.h"
#include "src/cli/print.h"

namespace tandem::cli {
namespace {

// A process that guards `script` and ends like it; `out` reads what it prints.
struct Guarded {
  pid_t pid = 0;
  UniqueFd out;
};

Guarded Start(const std::string& script, bool children_ignored = false) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    // However the tests were started: job control does not stop an orphaned process group, and a
    // shell cannot trap what it finds ignored.
    setpgid(0, 0);
    for (const int signal : {SIGINT, SIGQUIT, SIGHUP}) std::signal(signal, SIG_DFL);
    if (children_ignored) std::signal(SIGCHLD, SIG_IGN);
    const Program program{"/bin/sh", {"sh", "-c", script}, {"PATH=/usr/bin:/bin"}};
    const Result<int> wait_status = RunGuarded(program, {});
    if (!wait_status.ok()) _exit(99);
    EndLike(*wait_status);
  }
  close(ends[1]);
  return Guarded{pid, UniqueFd(ends[0])};
}

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 256> part;
  for (ssize_t n; (n = read(fd, part.data(), part.size())) > 0;) text.append(part.data(), n);
  return text;
}

std::string ReadLine(int fd) {
  std::string line;
  for (char c; read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

int WaitFor(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

TEST(Guard, EndsWithTheProgramsStatus) {
  for (const int status : {0, 1, 77, 255}) {
    const Guarded guarded = Start("exit " + std::to_string(status));
    const int wait_status = WaitFor(guarded.pid);
    EXPECT_TRUE(WIFEXITED(wait_status));
    EXPECT_EQ(WEXITSTATUS(wait_status), status);
  }
}

TEST(Guard, DiesOfTheProgramsSignal) {
  for (const int signal : {SIGKILL, SIGSEGV, SIGTERM, SIGINT, SIGUSR1}) {
    const Guarded guarded = Start("kill -" + std::to_string(signal) + " $$");
    const int wait_status = WaitFor(guarded.pid);
    EXPECT_TRUE(WIFSIGNALED(wait_status));
    EXPECT_EQ(WTERMSIG(wait_status), signal);
  }
}

TEST(Guard, PassesSignalsOn) {
  for (const std::string name : {"HUP", "INT", "QUIT", "TERM", "USR1", "USR2"}) {
    const Guarded guarded = Start("trap 'echo got; kill -KILL $!; exit 3' " + name +
                                  "; sleep 1000 >&- & echo up; wait");
    ASSERT_EQ(ReadLine(guarded.out.get()), "up");
    const std::string command = "kill -" + name + " " + std::to_string(guarded.pid);
    ASSERT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(ReadLine(guarded.out.get()), "got") << name;
    const int wait_status = WaitFor(guarded.pid);
    EXPECT_EQ(WEXITSTATUS(wait_status), 3) << name;
  }
}

TEST(Guard, LeavesTheProgramTheSignalMaskItFound) {
  const Guarded guarded = Start("grep -E 'Sig(Blk|Ign)' /proc/self/status");
  const std::string text = ReadAll(guarded.out.get());
  EXPECT_THAT(text, testing::HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_EQ(WaitFor(guarded.pid), 0);
}

TEST(Guard, LearnsOfTheEndThoughItsParentIgnoredChildren) {
  const Guarded guarded = Start("exit 5", true);
  EXPECT_EQ(WEXITSTATUS(WaitFor(guarded.pid)), 5);
}

TEST(Guard, StopsAndGoesOnWithTheProgram) {
  for (const std::string name : {"TSTP", "TTIN", "TTOU"}) {
    const Guarded guarded = Start("kill -" + name + " $$; exit 6");
    int wait_status = 0;
    ASSERT_EQ(waitpid(guarded.pid, &wait_status, WUNTRACED), guarded.pid);
    ASSERT_TRUE(WIFSTOPPED(wait_status)) << name;
    kill(guarded.pid, SIGCONT);
    wait_status = WaitFor(guarded.pid);
    EXPECT_TRUE(WIFEXITED(wait_status)) << name;
    EXPECT_EQ(WEXITSTATUS(wait_status), 6) << name;
  }
}

TEST(Guard, StopsOnlyWhereTheProgramDoes) {
  const Guarded guarded =
      Start("trap 'echo got; exit 7' TSTP; echo up; while :; do sleep 0.01; done");
  ASSERT_EQ(ReadLine(guarded.out.get()), "up");
  kill(guarded.pid, SIGTSTP);
  EXPECT_EQ(ReadLine(guarded.out.get()), "got");
  EXPECT_EQ(WEXITSTATUS(WaitFor(guarded.pid)), 7);
}

TEST(Guard, TakesTheProgramAlong) {
  // The pipe ends only once the program, which holds its other end, is gone too.
  const Guarded guarded = Start("echo up; exec sleep 1000");
  ASSERT_EQ(ReadLine(guarded.out.get()), "up");
  kill(guarded.pid, SIGKILL);
  WaitFor(guarded.pid);
  EXPECT_EQ(ReadAll(guarded.out.get()), "");
}

TEST(Guard, SaysWhyAProgramCannotBeExecuted) {
  EXPECT_EQ(RunGuarded({"/nonexistent", {"x"}, {}}, {}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(RunGuarded({"/etc/passwd", {"x"}, {}}, {}).error().code, ErrorCode::kRefused);
  EXPECT_EQ(RunGuarded({"/", {"x"}, {}}, {}).error().code, ErrorCode::kRefused);
}

TEST(Guard, NamesAMissingInterpreterAsTheCause) {
  const std::string script = testing::TempDir() + "no-interpreter-" + std::to_string(getpid());
  std::ofstream(script) << "#!/nonexistent/python\n";
  chmod(script.c_str(), 0755);
  const Result<int> result = RunGuarded({script, {"x"}, {}}, {});
  EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(result.error().message, testing::HasSubstr("interpreter"));
  unlink(script.c_str());
}

// A program that ends once the guard's companion has opened this pipe and written to it.
struct AwaitsCompanion {
  AwaitsCompanion() {
    std::string name = testing::TempDir() + "guardXXXXXX";
    dir = mkdtemp(name.data());
    pipe = dir + "/pipe";
    EXPECT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    program = {"/bin/sh", {"sh", "-c", "read line <" + pipe}, {"PATH=/usr/bin:/bin"}};
  }
  ~AwaitsCompanion() { std::filesystem::remove_all(dir); }
  void LetEnd() const { std::ofstream(pipe) << "go\n"; }

  std::string dir;
  std::string pipe;
  Program program;
};

TEST(Guard, WatchesItsCompanion) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  close(ends[1]);  // reads end of file at once
  const AwaitsCompanion waiting;
  int calls = 0;
  const Companion companion{ends[0],
                            [&] {
                              ++calls;
                              waiting.LetEnd();
                              return -1;
                            },
                            nullptr};
  const Result<int> wait_status = RunGuarded(waiting.program, companion);
  ASSERT_TRUE(wait_status.ok());
  EXPECT_EQ(*wait_status, 0);
  EXPECT_EQ(calls, 1);
  close(ends[0]);
}

TEST(Guard, TriesAgainWhileThereIsNoCompanion) {
  const AwaitsCompanion waiting;
  int calls = 0;
  const Companion companion{-1, nullptr, [&] {
                              if (++calls == 3) waiting.LetEnd();
                              return -1;
                            }};
  const Result<int> wait_status = RunGuarded(waiting.program, companion);
  ASSERT_TRUE(wait_status.ok());
  EXPECT_EQ(*wait_status, 0);
  EXPECT_GE(calls, 3);
}

TEST(Guard, OutlivesWhoeverReadItsWarnings) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  close(ends[0]);
  const AwaitsCompanion waiting;
  int calls = 0;
  const Companion companion{-1, nullptr, [&] {
                              if (++calls > 1) return -1;
                              const int saved = dup(STDERR_FILENO);
                              dup2(ends[1], STDERR_FILENO);
                              Fail(0, "nobody reads this");
                              dup2(saved, STDERR_FILENO);
                              close(saved);
                              waiting.LetEnd();
                              return -1;
                            }};
  const Result<int> wait_status = RunGuarded(waiting.program, companion);
  ASSERT_TRUE(wait_status.ok());
  EXPECT_EQ(*wait_status, 0);
  close(ends[1]);
}

TEST(Guard, LeavesTheProgramTheDispositionOfBrokenPipes) {
  const Guarded guarded = Start("kill -PIPE $$; exit 4");
  const int wait_status = WaitFor(guarded.pid);
  EXPECT_TRUE(WIFSIGNALED(wait_status));
  EXPECT_EQ(WTERMSIG(wait_status), SIGPIPE);
}

}  // namespace
}  // namespace tandem::cli
