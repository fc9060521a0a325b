#include "tests/driver/other_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace tandem::driver_test {
namespace {

constexpr const char* kPipe = "TANDEM_TEST_PIPE";
constexpr char kHere = 'h', kOver = 'o';

void Put(char byte) {
  const char* text = std::getenv(kPipe);
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(write(std::atoi(text), &byte, 1), 1);
}

// As exec takes them; valid as long as `texts` stay as they are.
std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string InHex(const void* data, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<const unsigned char*>(data)[i]);
    text += two;
  }
  return text;
}

void FromHex(const char* variable, void* data, size_t bytes) {
  const char* given = std::getenv(variable);
  ASSERT_NE(given, nullptr) << variable;
  const std::string text = given;
  ASSERT_EQ(text.size(), 2 * bytes) << variable;
  for (size_t i = 0; i < bytes; ++i) {
    static_cast<unsigned char*>(data)[i] =
        static_cast<unsigned char>(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
}

OtherProcess::OtherProcess(const char* name, const std::map<std::string, std::string>& variables) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe(ends), 0);
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  std::map<std::string, std::string> all = variables;
  all[kPipe] = std::to_string(ends[1]);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t sign = text.find('=');
    if (sign != std::string::npos) all.emplace(text.substr(0, sign), text.substr(sign + 1));
  }
  std::vector<std::string> environment;
  for (const auto& [variable, value] : all) environment.push_back(variable + "=" + value);
  std::vector<std::string> words = {"driver_test", "--gtest_also_run_disabled_tests",
                                    std::string("--gtest_filter=") + name};
  const std::vector<char*> argv = Pointers(words), envp = Pointers(environment);
  pid_ = fork();
  if (pid_ == 0) {
    // Allocates nothing: another thread of the parent may have held the allocator's lock.
    dup2(STDERR_FILENO, STDOUT_FILENO);  // stdout has only the results of this test
    execve("/proc/self/exe", argv.data(), envp.data());
    _exit(127);
  }
  close(ends[1]);
  from_ = ends[0];
}

OtherProcess::~OtherProcess() {
  close(from_);
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool OtherProcess::Hear() {
  char byte = 0;
  return read(from_, &byte, 1) == 1 && byte == kHere;
}

bool OtherProcess::EndsWell() {
  char byte = 0;
  bool over = false;
  while (read(from_, &byte, 1) == 1) over = byte == kOver;
  int status = 0;
  if (waitpid(std::exchange(pid_, -1), &status, 0) < 0) return false;
  return over && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool OtherProcess::DiesOfAKill() {
  int status = 0;
  const pid_t pid = std::exchange(pid_, -1);
  if (kill(pid, SIGKILL) != 0 || waitpid(pid, &status, 0) != pid) return false;
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

void OtherProcess::Tell() {
  Put(kHere);
}

void OtherProcess::TellTheEnd() {
  Put(kOver);
}

}  // namespace tandem::driver_test
