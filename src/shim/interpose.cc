// dlopen, dlsym and dlvsym, as every object of the process sees them.
//
// For RTLD_NEXT and RTLD_DEFAULT the linker's own function must see its caller's return address, or
// it would look from our place in the search order instead of the caller's. So these go on by a
// jump, with everything as the caller left it. For a true handle we call and look at the result.
//
// dlopen goes on by a jump, too: it searches the RUNPATH of its caller. It is here because a
// library opened with RTLD_DEEPBIND finds the functions of the libraries it is linked to before it
// finds ours. Only where TANDEM_NO_DEEPBIND=1 asks for it the flag is taken away: who sets it may
// need it.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

#include "src/shim/process.h"
#include "src/shim/true_symbols.h"

extern "C" {

// Called from the code below only.
[[gnu::used]] __attribute__((visibility("hidden"))) void* tandem_dlsym_in_handle(void* handle,
                                                                                 const char* name) {
  const tandem::shim::DlsymFunction look_up = tandem::shim::TrueDlsym();
  return look_up == nullptr ? nullptr : tandem::shim::Substitute(look_up(handle, name), name);
}

[[gnu::used]] __attribute__((visibility("hidden"))) void* tandem_dlvsym_in_handle(
    void* handle, const char* name, const char* version) {
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

void* OpensNothing(const char*, int) {
  return nullptr;
}

// What to jump to, and with which flags: two registers.
struct Opening {
  void* function;
  long flags;
};

// The next dlopen, as others may replace it, too.
[[gnu::used]] __attribute__((visibility("hidden"))) Opening tandem_opening(const char*, int flags) {
  static constinit std::atomic<void*> next{nullptr};
  void* function = next.load(std::memory_order_acquire);
  if (function == nullptr) {
    const tandem::shim::DlsymFunction look_up = tandem::shim::TrueDlsym();
    function = look_up == nullptr ? nullptr : look_up(RTLD_NEXT, "dlopen");
    next.store(function, std::memory_order_release);
  }
  if (function == nullptr) function = reinterpret_cast<void*>(&OpensNothing);
  if ((flags & RTLD_DEEPBIND) == 0) return {function, flags};
  const char* const wanted = std::getenv("TANDEM_NO_DEEPBIND");
  const bool shallow = wanted != nullptr && wanted[0] == '1' && wanted[1] == 0;
  return {function, shallow ? flags & ~RTLD_DEEPBIND : flags};
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
    ".size dlopen, .-dlopen\n");
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
    ".size dlopen, .-dlopen\n");
#else
#error "write the look-up for this architecture"
#endif

TANDEM_LOOK_UP(dlsym);
TANDEM_LOOK_UP(dlvsym);
