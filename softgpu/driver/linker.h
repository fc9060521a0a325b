// Linker: what cuLink* put together. Its product is PTX again: the texts as one module, which
// cuModuleLoadData takes like any other.
//
// Threading: one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/cuda/driver_types.h"

namespace tandem::soft {

// One module of several: one header, with the newest version and target; declarations of what
// another of them defines, second declarations of the same, and weak definitions but for one, left
// out: a .common variable's largest stays, or the one with an initial value. Comments go. A name
// that is local to a text and known to another gets a number. Order is kept. Kernels that set no
// limit to their registers are given `max_registers`, if that is not zero.
std::string JoinPtx(const std::vector<std::string>& texts, uint32_t max_registers = 0);

class Linker {
 public:
  // The values are the program's own array: lengths of logs are written back to it.
  Linker(unsigned int count, const CUjit_option* options, void** values)
      : options_(options, options + count), values_(values) {}

  // A text that does not parse is refused, and the log says why.
  CUresult Add(CUjitInputType type, const void* data, size_t size, const std::string& name);
  // The whole; it stays until the linker goes. Text that does not compile is refused here.
  CUresult Complete(void** image, size_t* size);

 private:
  CUresult AddText(std::string text, const std::string& name);
  void Log(const std::string& errors, const std::string& info, float wall_ms);

  const std::vector<CUjit_option> options_;
  void** const values_;
  std::vector<std::string> texts_;
  std::string errors_;
  std::string whole_;
};

}  // namespace tandem::soft
