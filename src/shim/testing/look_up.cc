// Looks driver functions up as programs do, under LD_PRELOAD=libtandem.so, and says what is wrong.
//
//   look_up CASE [PATH]
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "src/cuda/driver_types.h"

namespace {

int failures = 0;

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("wrong: %s\n", what);
  ++failures;
}

std::string ObjectOf(void* function) {
  Dl_info info{};
  if (function == nullptr || dladdr(function, &info) == 0) return "none";
  const char* const slash = std::strrchr(info.dli_fname, '/');
  return slash == nullptr ? info.dli_fname : slash + 1;
}

bool FromShim(void* function) {
  return ObjectOf(function).rfind("libtandem", 0) == 0;
}

bool FromDriver(void* function) {
  return ObjectOf(function).rfind("libcuda", 0) == 0;
}

void LookIn(void* driver) {
  Expect(driver != nullptr, "the driver opens");
  if (driver == nullptr) return;
  void* const init = dlsym(driver, "cuInit");
  Expect(FromShim(init), "a hooked function is the shim's");
  Expect(FromDriver(dlsym(driver, "cuDriverGetVersion")), "others are the driver's");
  Expect(FromDriver(dlsym(driver, "cudnnCreate")), "a name that only begins alike is let be");
  Expect(dlsym(driver, "cuNone") == nullptr, "what the driver lacks is absent");
  Expect(dlvsym(driver, "cuInit", "NONE_1.0") == nullptr, "dlvsym asks for the version");
  using Init = CUresult (*)(unsigned int);
  Expect(reinterpret_cast<Init>(init)(0) == CUDA_ERROR_NO_DEVICE, "the driver's answer comes back");

  using GetProc =
      CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const auto get = reinterpret_cast<GetProc>(dlsym(driver, "cuGetProcAddress_v2"));
  Expect(FromShim(reinterpret_cast<void*>(get)), "cuGetProcAddress_v2 is the shim's");
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  Expect(get("cuMemAlloc", &found, 12000, 0, &status) == CUDA_SUCCESS, "a known name is found");
  Expect(FromShim(found) && status == CU_GET_PROC_ADDRESS_SUCCESS, "and is the shim's");
  Expect(get("cuNone", &found, 12000, 0, &status) == CUDA_SUCCESS, "an unknown is asked for");
  Expect(found == nullptr && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "and not found");
}

void ByHandle(const char* path) {
  LookIn(dlopen(path, RTLD_NOW));
}

// A driver opened in a namespace of its own is the one in the base namespace.
void Apart(const char* path) {
  LookIn(dlmopen(LM_ID_NEWLM, path, RTLD_NOW));
  Expect(dlmopen(LM_ID_NEWLM, path, RTLD_NOW) == dlopen(path, RTLD_NOW), "it is there once");
}

void NvmlApart() {
  void* const library = dlmopen(LM_ID_NEWLM, "libnvidia-ml.so.1", RTLD_NOW);
  Expect(library != nullptr, "the library opens");
  if (library == nullptr) return;
  Expect(FromShim(dlsym(library, "nvmlDeviceGetMemoryInfo")), "a hooked function is the shim's");
}

// A library in a namespace of its own which is linked to the driver: both are there.
void LinkedApart(const char* path) {
  void* const library = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
  Expect(library != nullptr, "the library opens");
  if (library == nullptr) return;
  const auto init = reinterpret_cast<void* (*)()>(dlsym(library, "deep_bound_init"));
  Expect(FromDriver(init()), "it has a driver of its own");
  Expect(dlsym(library, "deep_bound_init") != nullptr, "and is looked into again");
  Lmid_t space = LM_ID_BASE;
  Expect(dlinfo(library, RTLD_DI_LMID, &space) == 0 && space != LM_ID_BASE, "it is apart");
  Expect(dlmopen(space, "libcuda.so.1", RTLD_NOW) == dlopen("libcuda.so.1", RTLD_NOW),
         "a request for the driver itself gets the shared one");
}

// A library without a driver, in the base namespace and in one of its own.
void OthersApart() {
  for (const Lmid_t space : {Lmid_t{LM_ID_BASE}, Lmid_t{LM_ID_NEWLM}}) {
    void* const library = dlmopen(space, "libm.so.6", RTLD_NOW);
    Expect(library != nullptr && dlsym(library, "cos") != nullptr, "other libraries are let be");
    Expect(dlerror() == nullptr, "no error is left");
  }
  Expect(dlmopen(LM_ID_NEWLM, "libnone.so", RTLD_NOW) == nullptr, "absent libraries are absent");
  Expect(dlerror() != nullptr, "and leave an error");
}

// What a later driver has, by its symbol and by the name that it is asked for: refused where it
// would allocate or submit, else the driver's.
__attribute__((no_sanitize("undefined"))) void Newer() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto get = reinterpret_cast<CUresult (*)(const char*, void**, int, cuuint64_t,
                                                 CUdriverProcAddressQueryResult*)>(
      dlsym(driver, "cuGetProcAddress_v2"));
  const auto found = [get](const char* name, int version) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult status{};
    get(name, &function, version, 0, &status);
    return function;
  };
  Expect(FromShim(found("cuMemAlloc", 13000)), "a name that the shim knows is hooked");
  for (void* refused : {dlsym(driver, "cuMemAlloc_v3"), found("cuMemAlloc", 99000),
                        dlsym(driver, "cuLaunchAnew"), found("cuLaunchAnew", 99000)}) {
    Expect(FromShim(refused), "what would pass the shim by is the shim's");
    Expect(reinterpret_cast<CUresult (*)(void*)>(refused)(nullptr) == CUDA_ERROR_NOT_SUPPORTED,
           "and refused");
  }
  for (void* passed : {dlsym(driver, "cuAskAnew"), found("cuAskAnew", 99000)}) {
    int answer = 0;
    Expect(reinterpret_cast<CUresult (*)(int*)>(passed)(&answer) == CUDA_SUCCESS && answer == 42,
           "a question is the driver's");
  }
}

// From the program, "next" is the first library after it: the preloaded one.
void PseudoHandles() {
  Expect(FromShim(dlsym(RTLD_NEXT, "cuInit")), "RTLD_NEXT looks from its caller's place");
  Expect(FromShim(dlsym(RTLD_DEFAULT, "cuInit")), "RTLD_DEFAULT finds the preloaded library");
  Expect(FromShim(dlsym(RTLD_NEXT, "dlsym")), "also for dlsym");
  Expect(ObjectOf(dlsym(RTLD_NEXT, "getpid")) == "libc.so.6", "other names are untouched");
  Expect(dlsym(RTLD_NEXT, "no_such_name") == nullptr, "absent names are absent");
  Expect(dlerror() != nullptr, "and leave an error");
  Expect(dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_2.2.5") != nullptr ||
             dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_2.17") != nullptr,
         "dlvsym with a pseudo handle");
}

void WholeProgram() {
  void* const program = dlopen(nullptr, RTLD_NOW);
  Expect(FromShim(dlsym(program, "cuInit")), "the program's own handle");
}

void DeepBound(const char* path, bool shim) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
  Expect(library != nullptr, "the library opens");
  if (library == nullptr) return;
  const auto init = reinterpret_cast<void* (*)()>(dlsym(library, "deep_bound_init"));
  Expect(shim ? FromShim(init()) : FromDriver(init()), "bound as it should be");
}

// Beside a library that replaces malloc.
void Counted() {
  const auto count = reinterpret_cast<unsigned long (*)()>(dlsym(RTLD_DEFAULT, "counted_mallocs"));
  Expect(count != nullptr && count() > 0, "the other library is at work");
  ByHandle("libcuda.so.1");
  PseudoHandles();
}

// A look-up that went well leaves no error behind, also where there is no driver to be found.
void NoError() {
  void* const libc = dlopen("libc.so.6", RTLD_NOW);
  Expect(libc != nullptr && dlsym(libc, "cuserid") != nullptr,
         "a name that begins as the driver's");
  Expect(dlerror() == nullptr, "no error is left");
}

// The same where the first look-up finds a driver, which lacks functions that we ask for.
void NoErrorOfDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  Expect(library != nullptr && FromShim(dlsym(library, "cuInit")), "the driver is found");
  Expect(dlerror() == nullptr, "no error is left");
}

// Linked calls without a driver in reach: the shim has to find one, or say there is none.
void Direct() {
  using Alloc = CUresult (*)(CUdeviceptr*, size_t);
  const auto alloc = reinterpret_cast<Alloc>(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
  CUdeviceptr pointer = 0;
  Expect(alloc(&pointer, 8) == CUDA_ERROR_NOT_INITIALIZED, "a call before cuInit");
  using Set = CUresult (*)(CUdeviceptr, unsigned char, size_t);
  const auto set = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "cuMemsetD8_v2"));
  Expect(set(pointer, 0, 8) == CUDA_ERROR_NOT_INITIALIZED, "a gated call before cuInit");
}

// As built against CUDA 2.0, with arguments of any number and kind.
__attribute__((no_sanitize("undefined"))) void Refused() {
  const auto alloc =
      reinterpret_cast<CUresult (*)(unsigned*, unsigned)>(dlsym(RTLD_DEFAULT, "cuMemAlloc"));
  const auto launch = reinterpret_cast<CUresult (*)(void*, unsigned, unsigned)>(
      dlsym(RTLD_DEFAULT, "cuLaunchCooperativeKernelMultiDevice"));
  const auto make_green = reinterpret_cast<CUresult (*)(void**, void*, int, unsigned)>(
      dlsym(RTLD_DEFAULT, "cuGreenCtxCreate"));
  unsigned pointer = 7;
  void* green = &pointer;
  Expect(alloc(&pointer, 8) == CUDA_ERROR_NOT_SUPPORTED, "a refused call says so");
  Expect(alloc(&pointer, 8) == CUDA_ERROR_NOT_SUPPORTED, "and again");
  Expect(launch(nullptr, 0, 0) == CUDA_ERROR_NOT_SUPPORTED, "another one");
  Expect(make_green(&green, nullptr, 0, 1) == CUDA_ERROR_NOT_SUPPORTED, "and a context");
  Expect(pointer == 7 && green == &pointer, "nothing was written");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "";
  if (wanted == "handle" && argc > 2) ByHandle(argv[2]);
  if (wanted == "apart" && argc > 2) Apart(argv[2]);
  if (wanted == "nvml_apart") NvmlApart();
  if (wanted == "linked_apart" && argc > 2) LinkedApart(argv[2]);
  if (wanted == "others_apart") OthersApart();
  if (wanted == "pseudo") PseudoHandles();
  if (wanted == "program") WholeProgram();
  if (wanted == "direct") Direct();
  if (wanted == "no_error") NoError();
  if (wanted == "no_error_of_driver") NoErrorOfDriver();
  if (wanted == "refused") Refused();
  if (wanted == "newer") Newer();
  if (wanted == "counted") Counted();
  if (wanted == "deep_bound" && argc > 2) DeepBound(argv[2], false);
  if (wanted == "not_deep_bound" && argc > 2) DeepBound(argv[2], true);
  return failures == 0 ? 0 : 1;
}
