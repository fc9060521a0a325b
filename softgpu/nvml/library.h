// Library: the monitoring library's state between nvmlInit and the last nvmlShutdown: the devices
// that the environment names. It uses none of them, it only looks.
//
// Threading: any thread.
#pragma once

#include <memory>
#include <string>

#include "softgpu/card/options.h"
#include "softgpu/card/shared_device.h"
#include "src/cuda/nvml_types.h"

// Declarations of all that is exported.
extern "C" {
#define NVML(symbol, parameters) \
  __attribute__((visibility("default"))) nvmlReturn_t symbol parameters noexcept;
#define NVML_TEXT(symbol, parameters) \
  __attribute__((visibility("default"))) const char* symbol parameters noexcept;
#define NVML_WITHOUT(symbol, parameters, arguments) NVML(symbol, parameters)
#include "softgpu/nvml/nvml_api.def"
#undef NVML_WITHOUT
#undef NVML_TEXT
#undef NVML
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

// Whether the library is initialised, the handle is a device's and the pointer is one.
nvmlReturn_t Check();
nvmlReturn_t Check(nvmlDevice_t device);
nvmlReturn_t Check(const void* pointer);
template <class First, class Second, class... More>
nvmlReturn_t Check(First first, Second second, More... more) {
  const nvmlReturn_t result = Check(first);
  return result != NVML_SUCCESS ? result : Check(second, more...);
}

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
