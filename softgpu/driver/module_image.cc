#include "softgpu/driver/module_image.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "softgpu/driver/driver.h"
#include "src/base/time.h"
#include "src/base/unique_fd.h"

namespace tandem::soft {
namespace {

constexpr int kLastJitOption = 34;  // CU_JIT_SPLIT_COMPILE: the last one of CUDA 13.0

constexpr std::string_view kElf = "\177ELF";

// Compares as far as the bytes agree, so nothing past a short text's NUL is read.
bool StartsWith(const char* image, std::string_view magic) {
  return std::strncmp(image, magic.data(), magic.size()) == 0;
}

// The number in `.target sm_NN`, zero if there is none. The compiler judges the rest.
int TargetOf(std::string_view text) {
  const size_t at = text.find(".target");
  if (at == std::string_view::npos) return 0;
  const size_t line_end = std::min(text.find('\n', at), text.size());
  const size_t sm = text.find("sm_", at);
  if (sm == std::string_view::npos || sm > line_end) return 0;
  int number = 0;
  for (size_t i = sm + 3; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    number = std::min(number * 10 + (text[i] - '0'), 100000);
  }
  return number;
}

struct Log {
  char* buffer = nullptr;
  size_t room = 0;
  size_t size_index = 0;  // where its length is asked for
  bool has_size = false;
};

size_t ValueOf(void* value) {
  return reinterpret_cast<uintptr_t>(value) & 0xffff'ffff;
}

// The value of an option, zero if it is not there.
size_t FindValue(unsigned int count, const CUjit_option* options, void** values,
                 CUjit_option wanted) {
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] == wanted) return ValueOf(values[i]);
  }
  return 0;
}

Log FindLog(unsigned int count, const CUjit_option* options, void** values, CUjit_option buffer,
            CUjit_option size) {
  Log log;
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] == buffer) log.buffer = static_cast<char*>(values[i]);
    if (options[i] != size) continue;
    log.room = ValueOf(values[i]);
    log.size_index = i;
    log.has_size = true;
  }
  return log;
}

void FillLog(const Log& log, std::string_view text, void** values) {
  size_t written = 0;
  if (log.buffer != nullptr && log.room > 0) {
    written = std::min(text.size(), log.room - 1);
    std::memcpy(log.buffer, text.data(), written);
    log.buffer[written] = '\0';
  }
  if (log.has_size) values[log.size_index] = reinterpret_cast<void*>(written);
}

}  // namespace

CUresult CompileImage(const Image& image, uint32_t max_registers,
                      std::shared_ptr<const ptx::Program>* program, std::string* log) {
  if (image.begin == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const char* text = static_cast<const char*>(image.begin);
  std::string unpacked;
  if (IsFatBinary(image.begin)) {
    CU_TRY(PtxOfFatBinary(image, kComputeMajor * 10 + kComputeMinor, &unpacked, log));
    text = unpacked.c_str();
  }
  if (StartsWith(text, kElf)) {
    *log = "machine code; a software GPU takes PTX\n";
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (TargetOf(text) > kComputeMajor * 10 + kComputeMinor) {
    *log = "the module is for a newer device than this one\n";
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  auto compiled = ptx::Compile(text, max_registers);
  if (!compiled.ok()) {
    *log = compiled.error().message;
    return compiled.error().code == ErrorCode::kVersion ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                                                        : CUDA_ERROR_INVALID_PTX;
  }
  *program = std::move(compiled).value();
  return CUDA_SUCCESS;
}

CUresult ReadFile(const char* path, std::string* bytes) {
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  char buffer[64 << 10];
  ssize_t count = 0;
  while ((count = read(file.get(), buffer, sizeof(buffer))) > 0) bytes->append(buffer, count);
  return count < 0 ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_SUCCESS;  // a directory opens, too
}

CUresult CheckJitOptions(unsigned int count, const CUjit_option* options, void** values) {
  if (count > 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    if (options[i] < CU_JIT_MAX_REGISTERS || static_cast<int>(options[i]) > kLastJitOption) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

void AnswerJitOptions(unsigned int count, const CUjit_option* options, void** values,
                      const std::string& error_log, const std::string& info_log, float wall_ms) {
  const Log error =
      FindLog(count, options, values, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  const Log info =
      FindLog(count, options, values, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
  FillLog(error, error_log, values);
  FillLog(info, info_log, values);
  for (unsigned int i = 0; i < count; ++i) {
    // The slot itself holds the float.
    if (options[i] == CU_JIT_WALL_TIME) std::memcpy(&values[i], &wall_ms, sizeof(wall_ms));
  }
}

std::string DescribeKernels(const ptx::Program& program) {
  std::string text;
  for (const ptx::Kernel& kernel : program.kernels()) {
    text += "info: " + kernel.name + ": " + std::to_string(kernel.registers) + " registers, " +
            std::to_string(kernel.static_shared_bytes) + " bytes shared, " +
            std::to_string(kernel.local_bytes) + " bytes local, " +
            std::to_string(kernel.param_bytes) + " bytes of parameters\n";
  }
  return text;
}

bool WantsVerboseLog(unsigned int count, const CUjit_option* options, void** values) {
  return FindValue(count, options, values, CU_JIT_LOG_VERBOSE) != 0;
}

uint32_t MaxRegisters(unsigned int count, const CUjit_option* options, void** values) {
  return static_cast<uint32_t>(FindValue(count, options, values, CU_JIT_MAX_REGISTERS));
}

CUresult CompileWithOptions(const Image& image, unsigned int count, const CUjit_option* options,
                            void** values, std::shared_ptr<const ptx::Program>* program) {
  const Instant began = MonotonicNow();
  std::string log, info;
  const CUresult compiled =
      CompileImage(image, MaxRegisters(count, options, values), program, &log);
  if (compiled == CUDA_SUCCESS && WantsVerboseLog(count, options, values)) {
    info = DescribeKernels(**program);
  }
  const Duration took = MonotonicNow() - began;
  AnswerJitOptions(count, options, values, log, info, static_cast<float>(took.seconds() * 1e3));
  return compiled;
}

}  // namespace tandem::soft
