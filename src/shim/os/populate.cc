#include "src/shim/os/populate.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

namespace tandem::shim {
namespace {

constexpr unsigned int kMostThreads = 8;
constexpr uint64_t kStripe = uint64_t{2} << 20;  // of a thread at a time: a huge page

bool PopulateAlone(uint64_t begin, uint64_t bytes) {
  return madvise(reinterpret_cast<void*>(begin), bytes, MADV_POPULATE_WRITE) == 0 ||
         errno == EINVAL;
}

struct Job {
  const uint64_t begin;
  const uint64_t bytes;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{false};

  void Work() {
    while (!failed.load(std::memory_order_relaxed)) {
      const uint64_t offset = next.fetch_add(kStripe, std::memory_order_relaxed);
      if (offset >= bytes) return;
      if (!PopulateAlone(begin + offset, std::min(kStripe, bytes - offset))) failed.store(true);
    }
  }
  static void* Main(void* self) {
    static_cast<Job*>(self)->Work();
    return nullptr;
  }
};

}  // namespace

unsigned int PopulateThreads() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return 1;
  return std::clamp(static_cast<unsigned int>(CPU_COUNT(&usable)) / 2, 1u, kMostThreads);
}

bool Populate(uint64_t begin, uint64_t bytes, unsigned int threads) {
  const uint64_t stripes = (bytes + kStripe - 1) / kStripe;
  const auto wanted =
      static_cast<unsigned int>(std::min<uint64_t>({threads, kMostThreads, stripes}));
  if (wanted <= 1) return PopulateAlone(begin, bytes);
  Job job{begin, bytes};
  std::array<pthread_t, kMostThreads> helpers;
  unsigned int started = 0;
  // Signals are the program's; none is handled on a thread it does not know.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (started + 1 < wanted &&
         pthread_create(&helpers.at(started), nullptr, &Job::Main, &job) == 0) {
    ++started;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  job.Work();
  for (unsigned int i = 0; i < started; ++i) pthread_join(helpers.at(i), nullptr);
  return !job.failed.load();
}

}  // namespace tandem::shim
