// dlopen, dlmopen, dlsym and dlvsym, as every object of the process sees them.
//
// For RTLD_NEXT and RTLD_DEFAULT the linker's own function must see its caller's return address, or
// it would look from our place in the search order instead of the caller's. So these go on by a
// jump, with everything as the caller left it. For a true handle we call and look at the result.
//
// dlopen goes on by a jump, too: it searches the RUNPATH of its caller. It is here because a
// library opened with RTLD_DEEPBIND finds the functions of the libraries it is linked to before it
// finds ours. The hook removes the flag only where TANDEM_NO_DEEPBIND=1 asks for it: the caller may
// need it.
//
// dlmopen makes namespaces of their own, in which we are not. A driver that is asked for by its
// name is opened in the base namespace instead. One that another library brings with it is there
// only when that call has returned, which for us it never does: so it is looked for when the
// program first looks something up in that library.
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "src/shim/hooks/hook_table.h"
#include "src/shim/os/log.h"
#include "src/shim/os/true_symbols.h"

namespace {

using tandem::shim::DlsymFunction;
using tandem::shim::TrueDlsym;

// Set while libraries in other namespaces have to be looked at.
constinit std::atomic<bool> watch_namespaces{false};

bool IsLibrary(const char* path, const char* name) {
  const char* const slash = std::strrchr(path, '/');
  return std::strncmp(slash == nullptr ? path : slash + 1, name, std::strlen(name)) == 0;
}

// By the linker, while it holds the lock without which no namespace changes. `data` points to a
// library, which becomes null if there is no driver in its namespace.
int LookForDriver(dl_phdr_info*, size_t, void* data) {
  auto** const library = static_cast<link_map**>(data);
  const link_map* each = *library;
  while (each->l_prev != nullptr) each = each->l_prev;
  while (each != nullptr && !IsLibrary(each->l_name, "libcuda.so")) each = each->l_next;
  if (each == nullptr) *library = nullptr;
  return 1;
}

// Says once that there is a driver beside the library which we cannot stand before.
void LookAtNamespace(void* handle) {
  Lmid_t space = LM_ID_BASE;
  link_map* library = nullptr;
  if (dlinfo(handle, RTLD_DI_LMID, &space) != 0 || space == LM_ID_BASE ||
      dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&library)) != 0) {
    return;
  }
  const char* const name = library->l_name;  // it is open
  dl_iterate_phdr(&LookForDriver, static_cast<void*>(&library));
  if (library == nullptr || !watch_namespaces.exchange(false, std::memory_order_relaxed)) return;
  tandem::shim::Log(tandem::shim::LogLevel::kWarn,
                    "%s is not shared: it has a driver of its own in another namespace", name);
}

void LookAtNamespaceIfWatched(void* handle) {
  if (watch_namespaces.load(std::memory_order_relaxed)) LookAtNamespace(handle);
}

// The next function of that name, as others may replace it, too.
void* Next(std::atomic<void*>* known, const char* name) {
  void* function = known->load(std::memory_order_acquire);
  if (function != nullptr) return function;
  const DlsymFunction look_up = TrueDlsym();
  function = look_up == nullptr ? nullptr : look_up(RTLD_NEXT, name);
  known->store(function, std::memory_order_release);
  return function;
}

// Takes no notice of what it is given.
void* OpensNothing() {
  return nullptr;
}

int FlagsFor(int flags) {
  if ((flags & RTLD_DEEPBIND) == 0) return flags;
  const char* const wanted = std::getenv("TANDEM_NO_DEEPBIND");
  const bool shallow = wanted != nullptr && wanted[0] == '1' && wanted[1] == 0;
  return shallow ? flags & ~RTLD_DEEPBIND : flags;
}

}  // namespace

extern "C" {

// Called from the code below only.
[[gnu::used]] __attribute__((visibility("hidden"))) void* tandem_dlsym_in_handle(void* handle,
                                                                                 const char* name) {
  LookAtNamespaceIfWatched(handle);
  const tandem::shim::DlsymFunction look_up = tandem::shim::TrueDlsym();
  return look_up == nullptr ? nullptr : tandem::shim::Substitute(look_up(handle, name), name);
}

[[gnu::used]] __attribute__((visibility("hidden"))) void* tandem_dlvsym_in_handle(
    void* handle, const char* name, const char* version) {
  LookAtNamespaceIfWatched(handle);
  const tandem::shim::DlvsymFunction look_up = tandem::shim::TrueDlvsym();
  return look_up == nullptr ? nullptr
                            : tandem::shim::Substitute(look_up(handle, name, version), name);
}

[[gnu::used]] __attribute__((visibility("hidden"))) void* tandem_true_dlsym() {
  return reinterpret_cast<void*>(tandem::shim::TrueDlsym());
}

[[gnu::used]] __attribute__((visibility("hidden"))) void* tandem_true_dlvsym() {
  return reinterpret_cast<void*>(tandem::shim::TrueDlvsym());
}

// What to jump to, and with which flags: two registers.
struct Opening {
  void* function;
  long flags;
};

[[gnu::used]] __attribute__((visibility("hidden"))) Opening tandem_opening(const char*, int flags) {
  static constinit std::atomic<void*> next{nullptr};
  void* const function = Next(&next, "dlopen");
  if (function == nullptr) return {reinterpret_cast<void*>(&OpensNothing), flags};
  return {function, FlagsFor(flags)};
}

// The arguments of dlmopen, in the order in which the code below puts them on the stack.
struct OpeningApart {
  Lmid_t space;
  const char* name;
  int flags;
};

// Gives what to jump to, and changes what it is called with.
[[gnu::used]] __attribute__((visibility("hidden"))) void* tandem_opening_apart(
    OpeningApart* opening) {
  static constinit std::atomic<void*> next{nullptr};
  void* const function = Next(&next, "dlmopen");
  if (function == nullptr) return reinterpret_cast<void*>(&OpensNothing);
  const char* const name = opening->name;
  if (opening->space != LM_ID_BASE && name != nullptr) {
    if (IsLibrary(name, "libcuda.so") || IsLibrary(name, "libnvidia-ml.so")) {
      opening->space = LM_ID_BASE;
    } else {
      watch_namespaces.store(true, std::memory_order_relaxed);
    }
  }
  if (opening->space == LM_ID_BASE) opening->flags = FlagsFor(opening->flags);
  return function;
}

}  // extern "C"

// RTLD_NEXT is −1 and RTLD_DEFAULT is 0: handle + 1 is at most 1, unsigned.
static_assert(sizeof(void*) == 8);

#if defined(__x86_64__)
#define TANDEM_LOOK_UP(name)               \
  asm(".text\n"                            \
      ".globl " #name                      \
      "\n"                                 \
      ".type " #name ", @function\n" #name \
      ":\n"                                \
      ".cfi_startproc\n"                   \
      "  endbr64\n"                        \
      "  leaq 1(%rdi), %rax\n"             \
      "  cmpq $1, %rax\n"                  \
      "  ja tandem_" #name                 \
      "_in_handle\n"                       \
      "  pushq %rdi\n"                     \
      "  .cfi_adjust_cfa_offset 8\n"       \
      "  pushq %rsi\n"                     \
      "  .cfi_adjust_cfa_offset 8\n"       \
      "  pushq %rdx\n"                     \
      "  .cfi_adjust_cfa_offset 8\n"       \
      "  call tandem_true_" #name          \
      "\n"                                 \
      "  popq %rdx\n"                      \
      "  .cfi_adjust_cfa_offset -8\n"      \
      "  popq %rsi\n"                      \
      "  .cfi_adjust_cfa_offset -8\n"      \
      "  popq %rdi\n"                      \
      "  .cfi_adjust_cfa_offset -8\n"      \
      "  jmp *%rax\n"                      \
      ".cfi_endproc\n"                     \
      ".size " #name ", .-" #name "\n")
asm(".text\n"
    ".globl dlopen\n"
    ".type dlopen, @function\ndlopen:\n"
    ".cfi_startproc\n"
    "  endbr64\n"
    "  pushq %rdi\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  call tandem_opening\n"
    "  popq %rdi\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  movl %edx, %esi\n"
    "  jmp *%rax\n"
    ".cfi_endproc\n"
    ".size dlopen, .-dlopen\n"
    ".globl dlmopen\n"
    ".type dlmopen, @function\ndlmopen:\n"
    ".cfi_startproc\n"
    "  endbr64\n"
    "  pushq %rdx\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  pushq %rsi\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  pushq %rdi\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  movq %rsp, %rdi\n"
    "  call tandem_opening_apart\n"
    "  popq %rdi\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  popq %rsi\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  popq %rdx\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  jmp *%rax\n"
    ".cfi_endproc\n"
    ".size dlmopen, .-dlmopen\n");
#elif defined(__aarch64__)
#define TANDEM_LOOK_UP(name)               \
  asm(".text\n"                            \
      ".globl " #name                      \
      "\n"                                 \
      ".type " #name ", %function\n" #name \
      ":\n"                                \
      ".cfi_startproc\n"                   \
      "  add x3, x0, #1\n"                 \
      "  cmp x3, #1\n"                     \
      "  b.ls 1f\n"                        \
      "  b tandem_" #name                  \
      "_in_handle\n"                       \
      "1:\n"                               \
      "  stp x29, x30, [sp, #-48]!\n"      \
      "  .cfi_def_cfa_offset 48\n"         \
      "  .cfi_offset 29, -48\n"            \
      "  .cfi_offset 30, -40\n"            \
      "  stp x0, x1, [sp, #16]\n"          \
      "  str x2, [sp, #32]\n"              \
      "  bl tandem_true_" #name            \
      "\n"                                 \
      "  mov x16, x0\n"                    \
      "  ldp x0, x1, [sp, #16]\n"          \
      "  ldr x2, [sp, #32]\n"              \
      "  ldp x29, x30, [sp], #48\n"        \
      "  .cfi_restore 29\n"                \
      "  .cfi_restore 30\n"                \
      "  .cfi_def_cfa_offset 0\n"          \
      "  br x16\n"                         \
      ".cfi_endproc\n"                     \
      ".size " #name ", .-" #name "\n")
asm(".text\n"
    ".globl dlopen\n"
    ".type dlopen, %function\ndlopen:\n"
    ".cfi_startproc\n"
    "  stp x29, x30, [sp, #-32]!\n"
    "  .cfi_def_cfa_offset 32\n"
    "  .cfi_offset 29, -32\n"
    "  .cfi_offset 30, -24\n"
    "  str x0, [sp, #16]\n"
    "  bl tandem_opening\n"
    "  mov x16, x0\n"
    "  ldr x0, [sp, #16]\n"
    "  ldp x29, x30, [sp], #32\n"
    "  .cfi_restore 29\n"
    "  .cfi_restore 30\n"
    "  .cfi_def_cfa_offset 0\n"
    "  br x16\n"
    ".cfi_endproc\n"
    ".size dlopen, .-dlopen\n"
    ".globl dlmopen\n"
    ".type dlmopen, %function\ndlmopen:\n"
    ".cfi_startproc\n"
    "  stp x29, x30, [sp, #-48]!\n"
    "  .cfi_def_cfa_offset 48\n"
    "  .cfi_offset 29, -48\n"
    "  .cfi_offset 30, -40\n"
    "  stp x0, x1, [sp, #16]\n"
    "  str x2, [sp, #32]\n"
    "  add x0, sp, #16\n"
    "  bl tandem_opening_apart\n"
    "  mov x16, x0\n"
    "  ldp x0, x1, [sp, #16]\n"
    "  ldr x2, [sp, #32]\n"
    "  ldp x29, x30, [sp], #48\n"
    "  .cfi_restore 29\n"
    "  .cfi_restore 30\n"
    "  .cfi_def_cfa_offset 0\n"
    "  br x16\n"
    ".cfi_endproc\n"
    ".size dlmopen, .-dlmopen\n");
#else
#error "write the look-up for this architecture"
#endif

TANDEM_LOOK_UP(dlsym);
TANDEM_LOOK_UP(dlvsym);
