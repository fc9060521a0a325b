/* tandem.h: what a program may ask of Tandem, version 1.
 *
 * A program needs none of this to share a GPU: Tandem takes and gives the card back behind ordinary
 * CUDA calls. This interface is for programs that know where their GPU work begins and ends, such
 * as notebooks: they can wait visibly, stop waiting, and say when they are done.
 *
 * Header only. The functions are found in the libtandem.so that `tandem run` preloads; a program
 * links nothing. Without Tandem each answers TANDEM_UNAVAILABLE, and the program runs as it is.
 *
 *   tandem_lease_options options = TANDEM_LEASE_OPTIONS;
 *   options.wait_ms = 60000;
 *   tandem_lease *lease = NULL;
 *   if (tandem_lease_create(&options, &lease) == TANDEM_OK &&
 *       tandem_lease_begin(lease) == TANDEM_OK) {
 *     ... CUDA calls ...
 *     tandem_lease_end(lease);
 *   }
 *   tandem_lease_destroy(lease);
 *
 * A lease is the right to submit work to a GPU. It does not exclude others: programs that fit on
 * the card together run together, and a long lease is interrupted at the end of its turn and comes
 * back by itself. Within a lease a pause of less than a second does not give the card away.
 *
 * All functions may be called from any thread. A lease belongs to no thread in particular.
 * Times are in milliseconds, sizes in bytes. Strings are UTF-8 and end with a zero byte.
 */
#ifndef TANDEM_TANDEM_H_
#define TANDEM_TANDEM_H_

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TANDEM_API_VERSION 1

typedef struct tandem_api tandem_api;

typedef struct tandem_lease {
  const tandem_api* api; /* of the library that made it; what follows is the library's own */
} tandem_lease;

typedef enum tandem_result {
  TANDEM_OK = 0,
  TANDEM_UNAVAILABLE = 1, /* the program does not run under Tandem, or its GPU is not shared */
  TANDEM_NO_DEVICE = 2,   /* there is no such GPU */
  TANDEM_TIMEOUT = 3,     /* the wait lasted as long as it may */
  TANDEM_CANCELLED = 4,   /* by tandem_lease_cancel, or by the callback */
  TANDEM_INVALID = 5,     /* an argument is out of range, or the call is out of place */
  TANDEM_TOO_LARGE = 6,   /* memory_bytes is above the limit of the run */
  TANDEM_NO_ANSWER = 7    /* the daemon does not answer */
} tandem_result;

/* A result in words. */
static inline const char* tandem_result_text(tandem_result result) {
  switch (result) {
    case TANDEM_OK:
      return "ok";
    case TANDEM_UNAVAILABLE:
      return "not under Tandem: start the program with `tandem run`";
    case TANDEM_NO_DEVICE:
      return "there is no such GPU";
    case TANDEM_TIMEOUT:
      return "the GPU did not come free within the time to wait";
    case TANDEM_CANCELLED:
      return "the wait was cancelled";
    case TANDEM_INVALID:
      return "an argument is out of range, or the call is out of place";
    case TANDEM_TOO_LARGE:
      return "more memory than the run may have: raise it with `tandem limit`";
    case TANDEM_NO_ANSWER:
      return "tandemd does not answer";
  }
  return "unknown";
}

/* What a lease waits for. Strings are never null and hold during the call only. */
typedef struct tandem_wait {
  uint32_t size;        /* of this structure, as the library knows it */
  uint32_t interrupted; /* 1: a signal handler has run, and nothing else is new */
  uint64_t waited_ms;
  uint64_t place;      /* in line, from 1; 0: in none, or not known yet */
  int64_t expected_ms; /* until it is our turn; negative: not known */
  uint64_t holders;    /* programs that hold the GPU */
  const char* holder;  /* the name of one of them; "": none, or not known yet */
  const char* state;   /* a code of docs/json.md, such as "waiting"; "": not known yet */
  const char* reason;  /* a code of why it waits; "": none */
  const char* gpu;     /* "gpu0"; "": not known yet */
} tandem_wait;

/* Called while a lease waits, on the thread that waits: when something changes, about once a
 * second, and after a signal handler has run. Not 0: the wait ends with TANDEM_CANCELLED. */
typedef int (*tandem_wait_callback)(void* context, const tandem_wait* wait);

/* Start from TANDEM_LEASE_OPTIONS: later versions may add fields at the end. */
typedef struct tandem_lease_options {
  uint32_t size;          /* of this structure */
  int32_t device;         /* CUDA ordinal, as the program sees it */
  int64_t wait_ms;        /* how long to wait; negative: for as long as it takes. Less than
                             250 counts as 250: an answer takes its time */
  uint64_t memory_bytes;  /* how much the program will have on the GPU; 0: what it has by now */
  uint64_t expected_ms;   /* about how long the lease will be needed; 0: not known. Under the policy
                             `interactive` short ones go first, as long as they keep to it */
  const char* work_class; /* "production", "interactive", "batch" or "opportunistic" until the lease
                             ends; null: as the run has it */
  tandem_wait_callback on_wait; /* may be null */
  void* context;                /* passed to on_wait */
} tandem_lease_options;

#ifdef __cplusplus
#define TANDEM_LEASE_OPTIONS                                             \
  tandem_lease_options {                                                 \
    sizeof(tandem_lease_options), 0, -1, 0, 0, nullptr, nullptr, nullptr \
  }
#else
#define TANDEM_LEASE_OPTIONS \
  ((tandem_lease_options){sizeof(tandem_lease_options), 0, -1, 0, 0, NULL, NULL, NULL})
#endif

/* How the program stands on one GPU. Set `size` before the call. */
typedef struct tandem_state {
  uint32_t size;
  uint32_t session;         /* 1: the program has a session on the GPU; 0: it has not used it yet */
  uint32_t holds;           /* 1: it holds the GPU */
  uint32_t contended;       /* 1: others wait for it */
  uint32_t suspended;       /* 1: by an order, until it is resumed */
  uint32_t leases;          /* that have begun and not ended */
  uint64_t allocated_bytes; /* GPU memory of the program */
  uint64_t resident_bytes;  /* of it on the card */
  uint64_t swapped_bytes;   /* of it in host memory */
  uint64_t limit_bytes;     /* that all programs of the run may have together */
  uint64_t used_bytes;      /* that they have */
} tandem_state;

/* The library's functions. Later versions only add to the end. */
struct tandem_api {
  uint32_t version;
  uint32_t size; /* of this structure */
  tandem_result (*lease_create)(const tandem_lease_options* options, tandem_lease** lease);
  tandem_result (*lease_begin)(tandem_lease* lease);
  void (*lease_cancel)(tandem_lease* lease);
  tandem_result (*lease_end)(tandem_lease* lease);
  void (*lease_destroy)(tandem_lease* lease);
  tandem_result (*release)(int32_t device);
  tandem_result (*get_state)(int32_t device, tandem_state* state);
  tandem_result (*query)(const char* what, char* json, size_t* bytes);
};

/* The functions, or null where the program does not run under Tandem. */
static inline const tandem_api* tandem_get_api(void) {
  typedef const tandem_api* (*find)(uint32_t);
  union {
    void* symbol;
    find function;
  } found;
  found.symbol =
      dlsym(NULL, "tandem_find_api"); /* NULL: RTLD_DEFAULT, which C lacks without _GNU_SOURCE */
  return found.symbol == NULL ? NULL : found.function(TANDEM_API_VERSION);
}

/* Makes a lease that has not begun. TANDEM_UNAVAILABLE, TANDEM_INVALID. */
static inline tandem_result tandem_lease_create(const tandem_lease_options* options,
                                                tandem_lease** lease) {
  const tandem_api* const api = tandem_get_api();
  if (lease != NULL) *lease = NULL;
  return api == NULL ? TANDEM_UNAVAILABLE : api->lease_create(options, lease);
}

/* Waits for the GPU. A lease that has ended may begin again; one that has begun is TANDEM_INVALID.
 */
static inline tandem_result tandem_lease_begin(tandem_lease* lease) {
  return lease == NULL ? TANDEM_UNAVAILABLE : lease->api->lease_begin(lease);
}

/* Ends the wait of tandem_lease_begin, or of the next one where none waits. Safe in a signal
 * handler. */
static inline void tandem_lease_cancel(tandem_lease* lease) {
  if (lease != NULL) lease->api->lease_cancel(lease);
}

/* The program needs the GPU no longer; it goes to others once the work in flight is done. Memory
 * stays on the card until another program needs the room. Does not wait. */
static inline tandem_result tandem_lease_end(tandem_lease* lease) {
  return lease == NULL ? TANDEM_UNAVAILABLE : lease->api->lease_end(lease);
}

/* Ends the lease where it has begun. Null is ignored. */
static inline void tandem_lease_destroy(tandem_lease* lease) {
  if (lease != NULL) lease->api->lease_destroy(lease);
}

/* The program's memory may leave the card now: it goes to host memory once the work in flight is
 * done, and comes back with the next work. Does not wait. */
static inline tandem_result tandem_release(int32_t device) {
  const tandem_api* const api = tandem_get_api();
  return api == NULL ? TANDEM_UNAVAILABLE : api->release(device);
}

/* Fills *state as far as state->size goes. */
static inline tandem_result tandem_get_state(int32_t device, tandem_state* state) {
  const tandem_api* const api = tandem_get_api();
  return api == NULL ? TANDEM_UNAVAILABLE : api->get_state(device, state);
}

/* What `tandem status --json` ("status"), `tandem ps --json` ("sessions") or "handovers" print.
 * *bytes is the size of the buffer; then that of the text with its zero byte. TANDEM_TOO_LARGE: it
 * did not fit, and *bytes says how much is needed. */
static inline tandem_result tandem_query(const char* what, char* json, size_t* bytes) {
  const tandem_api* const api = tandem_get_api();
  return api == NULL ? TANDEM_UNAVAILABLE : api->query(what, json, bytes);
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TANDEM_TANDEM_H_ */
