// Other people's preloaded library: replaces malloc as profilers do, by counting and passing on to
// the next one, which it asks dlsym for at the first call, before most of the process is there.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>

namespace {

std::atomic<unsigned long> mallocs{0};

}  // namespace

extern "C" {

[[gnu::visibility("default")]] void* malloc(size_t bytes) {
  using Malloc = void* (*)(size_t);
  static std::atomic<Malloc> next{nullptr};
  if (next.load() == nullptr) next.store(reinterpret_cast<Malloc>(dlsym(RTLD_NEXT, "malloc")));
  mallocs.fetch_add(1);
  return next.load()(bytes);
}

[[gnu::visibility("default")]] unsigned long counted_mallocs() {
  return mallocs.load();
}

}  // extern "C"
