// Library: the monitoring library's state between nvmlInit and the last nvmlShutdown: the devices
// that the environment names. It uses none of them, it only looks.
//
// Threading: any thread.
#pragma once

#include <memory>
#include <string>

#include "src/softgpu/nvml/nvml_types.h"
#include "src/softgpu/options.h"
#include "src/softgpu/shared_device.h"

// Declarations of all that is exported. nvmlErrorString is not in the table, for it returns a text.
extern "C" {
#define NVML(symbol, parameters) \
  __attribute__((visibility("default"))) nvmlReturn_t symbol parameters noexcept;
#define NVML_WITHOUT(symbol, parameters) NVML(symbol, parameters)
#include "src/softgpu/nvml/nvml_api.def"
#undef NVML_WITHOUT
#undef NVML
__attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn_t result) noexcept;
}

namespace tandem::soft::nvml {

struct Library {
  Options options;
  std::string directory;  // of the devices' shared files

  // Null for a handle that is none.
  const DeviceOption* Find(nvmlDevice_t device) const;
};

// The library, or null before nvmlInit and after the last nvmlShutdown.
std::shared_ptr<const Library> TheLibrary();

// The library and one of its devices, or the error to return.
nvmlReturn_t FindDevice(nvmlDevice_t device, std::shared_ptr<const Library>* library,
                        const DeviceOption** option);
nvmlReturn_t LookAtDevice(nvmlDevice_t device, DeviceUse* use);

nvmlDevice_t HandleOf(size_t index);
size_t IndexOf(nvmlDevice_t device);

// Copies a text with its NUL; NVML_ERROR_INSUFFICIENT_SIZE where it does not fit.
nvmlReturn_t CopyText(const std::string& text, char* to, unsigned int length);

#define NVML_TRY(expression)                                     \
  do {                                                           \
    const nvmlReturn_t nvml_try_result = (expression);           \
    if (nvml_try_result != NVML_SUCCESS) return nvml_try_result; \
  } while (false)

}  // namespace tandem::soft::nvml
