/* lease: a C program that says when it needs the GPU. It waits visibly, stops waiting at Ctrl-C, and
 * works for a moment. Run it under `tandem run`, twice at once; without Tandem it runs as well.
 *
 *   cc -Iinclude lease.c -ldl -o lease && tandem run ./lease 4 512
 *
 * Arguments: how many rounds (default 3), and MiB of device memory (default 64).
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

static int (*cuInit)(unsigned);
static int (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *);
static int (*cuMemAlloc)(uint64_t *, size_t);
static int (*cuMemsetD8)(uint64_t, unsigned char, size_t);
static int (*cuMemcpyDtoH)(void *, uint64_t, size_t);

static tandem_lease *lease;

static void leave(int signal) {
  (void)signal;
  tandem_lease_cancel(lease);
}

static int show(void *context, const tandem_wait *wait) {
  (void)context;
  if (wait->interrupted || wait->state[0] == '\0') return 0;
  fprintf(stderr, "waiting for %s: number %llu in line, for %.0f s; %s holds it; Ctrl-C to leave\n",
          wait->gpu, (unsigned long long)wait->place, (double)wait->waited_ms / 1000,
          wait->holder[0] != '\0' ? wait->holder : "no program");
  return 0;
}

static void fail(const char *what) {
  fprintf(stderr, "lease: %s\n", what);
  exit(1);
}

static void find(void *library, const char *name, void *function) {
  void *const symbol = dlsym(library, name);
  if (symbol == NULL) fail(name);
  memcpy(function, &symbol, sizeof(symbol));
}

static void load_driver(void) {
  void *const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) fail("no CUDA driver here; `tandem run` brings a software GPU along");
  find(library, "cuInit", &cuInit);
  find(library, "cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain);
  find(library, "cuCtxSetCurrent", &cuCtxSetCurrent);
  find(library, "cuMemAlloc_v2", &cuMemAlloc);
  find(library, "cuMemsetD8_v2", &cuMemsetD8);
  find(library, "cuMemcpyDtoH_v2", &cuMemcpyDtoH);
}

/* Fills the memory, having looked whether it still holds what the last round wrote. */
static void work(uint64_t memory, size_t bytes, int round) {
  unsigned char last = 0;
  if (round > 0 && (cuMemcpyDtoH(&last, memory + bytes - 1, 1) != 0 || last != round)) {
    fail("the memory has changed");
  }
  if (cuMemsetD8(memory, (unsigned char)(round + 1), bytes) != 0) fail("cuMemsetD8");
}

int main(int argc, char **argv) {
  const int rounds = argc > 1 ? atoi(argv[1]) : 3;
  const size_t bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 64) << 20;
  void *context = NULL;
  uint64_t memory = 0;
  tandem_lease_options options = TANDEM_LEASE_OPTIONS;
  options.memory_bytes = bytes;
  options.on_wait = show;
  load_driver();
  tandem_result result = tandem_lease_create(&options, &lease);
  if (result != TANDEM_OK) fprintf(stderr, "lease: %s\n", tandem_result_text(result));
  signal(SIGINT, leave);
  for (int round = 0; round < rounds; ++round) {
    result = tandem_lease_begin(lease);
    if (result != TANDEM_OK && result != TANDEM_UNAVAILABLE) fail(tandem_result_text(result));
    if (context == NULL &&
        (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 ||
         cuCtxSetCurrent(context) != 0 || cuMemAlloc(&memory, bytes) != 0)) {
      fail("no GPU memory");
    }
    work(memory, bytes, round);
    tandem_lease_end(lease);
    printf("round %d of %d is done\n", round + 1, rounds);
  }
  tandem_lease_destroy(lease);
  return 0;
}
