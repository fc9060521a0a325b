// dlsym and dlvsym, as every object of the process sees them.
//
// For RTLD_NEXT and RTLD_DEFAULT the linker's own function must see its caller's return address, or
// it would look from our place in the search order instead of the caller's. So these go on by a
// jump, with everything as the caller left it. For a true handle we call and look at the result.
#include <dlfcn.h>

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
#else
#error "write the look-up for this architecture"
#endif

TANDEM_LOOK_UP(dlsym);
TANDEM_LOOK_UP(dlvsym);
