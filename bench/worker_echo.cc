#include "bench/worker_echo.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "src/base/time.h"
#include "src/base/unique_fd.h"

namespace bench {
namespace {

using tandem::MonotonicNow;

void Must(bool fine, const char* call) {
  if (fine) return;
  std::perror(call);
  std::_Exit(1);
}

// The child of a fork: nothing but system calls.
[[noreturn]] void AnswerAll(int socket) {
  char byte = 0;
  while (read(socket, &byte, 1) == 1 && write(socket, &byte, 1) == 1) {
  }
  _Exit(0);
}

}  // namespace

std::string Echo(uint32_t count, uint64_t pause_ns) {
  int ends[2];
  Must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  const pid_t child = fork();
  Must(child >= 0, "fork");
  if (child == 0) {
    close(ends[0]);
    AnswerAll(ends[1]);
  }
  close(ends[1]);
  tandem::UniqueFd socket(ends[0]);
  // The sleeper wakes at each new turn and says when that was.
  std::atomic<uint32_t> turn{0}, noted{0};
  std::atomic<int64_t> woken_at{0};
  std::thread sleeper([&] {
    for (uint32_t next = 1; next <= count; ++next) {
      for (uint32_t seen = next - 1; seen < next; seen = turn) turn.wait(seen);
      woken_at = MonotonicNow().ns;
      noted = next;
      noted.notify_one();
    }
  });
  std::string text;
  for (uint32_t next = 1; next <= count; ++next) {
    char byte = 0;
    const int64_t begin = MonotonicNow().ns;
    Must(write(socket.get(), &byte, 1) == 1 && read(socket.get(), &byte, 1) == 1, "socket");
    turn = next;
    turn.notify_one();
    for (uint32_t seen = next - 1; seen < next; seen = noted) noted.wait(seen);
    text += (text.empty() ? "" : " ") + std::to_string(woken_at - begin);
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  }
  sleeper.join();
  socket = tandem::UniqueFd();
  waitpid(child, nullptr, 0);
  return text;
}

}  // namespace bench
