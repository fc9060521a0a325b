// Hooks of driver_api.def's OWN rows for memory of other interfaces: imported, it is on the card
// and counts for the importing program.
#include "src/shim/hooks/fixed_call.h"

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuImportExternalMemory(CUexternalMemory* memory,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* description) noexcept {
  const bool sound = memory != nullptr && description != nullptr;
  return MakeFixed(FixedMemory::Kind::kNone, sound ? Bytes(description->size) : Bytes(), memory,
                   [=] { return Call(Real().cuImportExternalMemory, memory, description); });
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory) noexcept {
  return EndFixed(memory, [=] { return Call(Real().cuDestroyExternalMemory, memory); });
}

}  // extern "C"
