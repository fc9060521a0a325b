// What cuModuleLoad* was given: telling PTX from machine code, and the JIT options around it.
//
// Threading: plain functions.
#pragma once

#include <memory>
#include <string>

#include "softgpu/driver/fat_binary.h"
#include "softgpu/ptx/program.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

// Compiles `image`: NUL-terminated PTX text, or a fat binary with such text in it. Machine code,
// and PTX for newer devices, give CUDA_ERROR_NO_BINARY_FOR_GPU; PTX of a newer version
// CUDA_ERROR_UNSUPPORTED_PTX_VERSION; bad text CUDA_ERROR_INVALID_PTX. The reason is left in *log.
// REQUIRES: of known length, a NUL behind it. `max_registers`: of a kernel that sets no limit
// itself; zero for none.
CUresult CompileImage(const Image& image, uint32_t max_registers,
                      std::shared_ptr<const ptx::Program>* program, std::string* log);

// What lies in a file that a program names; CUDA_ERROR_FILE_NOT_FOUND for what cannot be read.
CUresult ReadFile(const char* path, std::string* bytes);

// Checks the options that a program passes beside an image.
CUresult CheckJitOptions(unsigned int count, const CUjit_option* options, void** values);
// Fills in what the program asked to be told: logs, cut to their buffers, and their lengths.
void AnswerJitOptions(unsigned int count, const CUjit_option* options, void** values,
                      const std::string& error_log, const std::string& info_log, float wall_ms);

// CompileImage, with the options checked before and answered after.
CUresult CompileWithOptions(const Image& image, unsigned int count, const CUjit_option* options,
                            void** values, std::shared_ptr<const ptx::Program>* program);

// One line for each kernel, for a verbose log.
std::string DescribeKernels(const ptx::Program& program);
bool WantsVerboseLog(unsigned int count, const CUjit_option* options, void** values);
// CU_JIT_MAX_REGISTERS; zero if it is not among them.
uint32_t MaxRegisters(unsigned int count, const CUjit_option* options, void** values);

}  // namespace tandem::soft
