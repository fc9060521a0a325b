#include "src/cuda/driver_state.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/unique_fd.h"
#include "src/cuda/real_driver.h"

namespace tandem::cuda {
namespace {

// What the child answers, beside cuInit's results.
constexpr int32_t kNoLibrary = -1;

bool IsSoftwareGpu(void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return false;
  return std::string_view(info.dli_fname).ends_with("/tandem/soft/libcuda.so.1");
}

int32_t InitResult(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return kNoLibrary;
  const auto init = reinterpret_cast<Fn_cuInit>(dlsym(handle, "cuInit"));
  const auto count = reinterpret_cast<Fn_cuDeviceGetCount>(dlsym(handle, "cuDeviceGetCount"));
  if (init == nullptr || count == nullptr) return kNoLibrary;
  if (IsSoftwareGpu(reinterpret_cast<void*>(init))) return kNoLibrary;
  if (const CUresult result = init(0); result != CUDA_SUCCESS) return result;
  int devices = 0;
  if (const CUresult result = count(&devices); result != CUDA_SUCCESS) return result;
  return devices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

[[noreturn]] void AnswerAndExit(const std::string& library, int answers) {
  const int32_t result = InitResult(library);
  const bool written = write(answers, &result, sizeof(result)) == sizeof(result);
  _exit(written ? 0 : 1);
}

DriverState Broken(std::string why) {
  return {DriverState::Kind::kBroken, std::move(why)};
}

DriverState StateOf(int32_t result) {
  if (result == CUDA_SUCCESS) return {DriverState::Kind::kWorks, ""};
  if (result == kNoLibrary || result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_STUB_LIBRARY) {
    return {};
  }
  const char* const name = ErrorName(static_cast<CUresult>(result));
  return Broken(std::string("cuInit failed: ") + (name != nullptr ? name : std::to_string(result)));
}

bool Wait(int fd, Duration patience) {
  const Instant deadline = MonotonicNow() + patience;
  for (;;) {
    const Duration left = std::max(deadline - MonotonicNow(), Duration());
    pollfd entry{fd, POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>((left.ns + 999999) / 1000000));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

}  // namespace

DriverState AskDriver(const std::string& library, Duration patience) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Broken(std::strerror(errno));
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t child = fork();
  if (child < 0) return Broken(std::strerror(errno));
  if (child == 0) AnswerAndExit(library, writer.get());
  writer.Reset();
  // Not waited for after this: a process that the driver holds does not even die.
  if (!Wait(reader.get(), patience)) {
    kill(child, SIGKILL);
    return Broken("cuInit does not return");
  }
  int32_t result = 0;
  const ssize_t got = read(reader.get(), &result, sizeof(result));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (got == sizeof(result)) return StateOf(result);
  return Broken("the process that calls cuInit ends without an answer");
}

}  // namespace tandem::cuda
