// The PTX front end: text in, kernels ready for the warp interpreter (execute.h) out.
//
// Compile() reads a whole module and lowers every kernel in it. What it does not know it refuses,
// naming the line and the instruction, so that nothing unsupported is met at run time.
//
// Threading: Compile() may be called from any thread. A Program never changes after that and may
// be shared freely.
//
// Invariants:
// 1. A Program holds no address of the device: WriteImage() writes the module's variables for
//    whatever address the caller gives them, and a Launch names that address again.
// 2. Untrusted text gives a Program or an Error. Time and memory are bounded by the text's size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace tandem::ptx {

struct Code;

// One kernel parameter, laid out as the driver lays it out: in order, each aligned to `align`.
struct Param {
  uint32_t offset = 0;
  uint32_t size = 0;
  uint32_t align = 1;
};

struct Kernel {
  std::string name;
  std::vector<Param> params;
  uint32_t param_bytes = 0;
  uint32_t static_shared_bytes = 0;
  uint32_t local_bytes = 0;          // per thread
  uint32_t registers = 0;            // per thread, in 32-bit units, at most 255
  uint32_t max_threads = 1024;       // of a block: .maxntid, .reqntid
  uint32_t required_block[3] = {};   // the only shape of a block: .reqntid; zeros: any
  std::shared_ptr<const Code> code;  // shared: a Kernel is a value that callers may copy
};

// A .global or .const variable of the module.
struct Variable {
  // An element that is not zero from the start.
  struct Value {
    uint64_t offset = 0;
    uint64_t value = 0;
    bool is_address = false;  // the device address of the image is added to the value
    uint8_t shift = 0;        // then the byte that starts at this bit is taken
  };
  std::string name;
  uint64_t size = 0;
  uint32_t align = 1;
  bool constant = false;
  bool managed = false;
  uint32_t element_bytes = 1;
  std::vector<Value> init;
  uint64_t offset = 0;  // inside the module's image
};

class Program {
 public:
  const Kernel* FindKernel(std::string_view name) const;
  const Variable* FindVariable(std::string_view name) const;
  const std::vector<Kernel>& kernels() const { return kernels_; }
  const std::vector<Variable>& variables() const { return variables_; }

  // All .global and .const variables lie in one image, to be placed at an address aligned to 256.
  uint64_t image_bytes() const { return image_bytes_; }
  // Writes the image as it must look at `device_address`. REQUIRES: image_bytes() at `image`.
  void WriteImage(uint8_t* image, uint64_t device_address) const;

 private:
  friend class ModuleCompiler;
  std::vector<Kernel> kernels_;
  std::vector<Variable> variables_;
  uint64_t image_bytes_ = 0;
};

// The text may end in NUL bytes. Kernels without .maxnreg have at most `max_registers`, if that is
// not zero. On failure error().message is the JIT log: one line per error; kVersion is the code for
// a .version newer than is known here.
Result<std::shared_ptr<const Program>> Compile(std::string_view text, uint32_t max_registers = 0);

// The error that a text has whatever other texts it is linked with.
Status CheckPart(std::string_view text);

}  // namespace tandem::ptx
