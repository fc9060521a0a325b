// HookTable: which functions of the driver and of NVML libtandem.so hooks, and by what.
//
// Threading: any thread. Nothing here holds a lock while it calls the dynamic linker: a program may
// be inside its lock and wait for us.
#pragma once

namespace tandem::shim {

// The hook for a function of the real driver or of NVML; `found` itself for everything else.
void* Substitute(void* found, const char* name);
// The same for a name that begins as NVML's do (nvml_hooks.cc).
void* SubstituteNvml(void* found, const char* name);
// The hook for a symbol, null for those that are not hooked.
void* HookOf(const char* symbol);

}  // namespace tandem::shim
