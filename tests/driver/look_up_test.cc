// cuGetProcAddress: a function by its name, the version of CUDA that the caller was written for and
// the default stream that it means.
#include <dlfcn.h>

#include <iterator>
#include <map>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

constexpr int kNow = 12000;
constexpr int kFirstPerThread = 7000;  // that had default streams of threads
constexpr cuuint64_t kDefault = 0;     // CU_GET_PROC_ADDRESS_DEFAULT
constexpr cuuint64_t kLegacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

// A function that the software GPU exports, and the one beside it for programs whose default stream
// is one per thread; the same one where it has no stream.
struct Form {
  std::string symbol, per_thread;
};

// The forms of every name, by the version that each came with.
std::map<std::string, std::map<int, Form>> FormsOfNames() {
  std::map<std::string, std::map<int, Form>> names;
#define FORM_YES(base, since, symbol, per_thread) names[#base][since] = {#symbol, #per_thread};
#define FORM_LOADER(base, since, symbol, per_thread) FORM_YES(base, since, symbol, per_thread)
#define FORM_NO(base, since, symbol, per_thread)
#define CU(symbol, base, since, shim, soft, parameters, arguments) \
  FORM_##soft(base, since, symbol, symbol)
#define CU_PT(symbol, suffix, base, since, shim, soft, parameters, arguments) \
  FORM_##soft(base, since, symbol, symbol##suffix)
#include "src/cuda/driver_api.def"
#undef CU_PT
#undef CU
#undef FORM_NO
#undef FORM_LOADER
#undef FORM_YES
  return names;
}

class LookUpTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (Cu().cuGetProcAddress_v2 == nullptr) GTEST_SKIP() << "a driver older than CUDA 12";
  }

  // The status that a look-up has to have; the function, which is there if the status says so.
  template <typename Function = void*>
  Function LookUp(CUdriverProcAddressQueryResult expected, const char* name, int version,
                  cuuint64_t flags = kDefault) {
    int here = 0;
    void* function = &here;
    auto status = static_cast<CUdriverProcAddressQueryResult>(99);
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGetProcAddress_v2(name, &function, version, flags, &status));
    EXPECT_EQ(status, expected) << name << " of " << version;
    EXPECT_EQ(function != nullptr, expected == CU_GET_PROC_ADDRESS_SUCCESS)
        << name << " of " << version;
    return reinterpret_cast<Function>(function);
  }
  template <typename Function = void*>
  Function Find(const char* name, int version, cuuint64_t flags = kDefault) {
    return LookUp<Function>(CU_GET_PROC_ADDRESS_SUCCESS, name, version, flags);
  }

  void CompareWithExport(void* library, const std::string& name, const std::map<int, Form>& forms,
                         int version, cuuint64_t flags) {
    const auto newer = forms.upper_bound(version);
    if (newer == forms.begin()) {
      LookUp(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, name.c_str(), version, flags);
      return;
    }
    const Form& form = std::prev(newer)->second;
    const bool per_thread = flags == kPerThread && version >= kFirstPerThread;
    const std::string& symbol = per_thread ? form.per_thread : form.symbol;
    void* const found = Find(name.c_str(), version, flags);
    EXPECT_EQ(found, dlsym(library, symbol.c_str())) << symbol << " of " << version;
    void* same = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGetProcAddress(name.c_str(), &same, version, flags));
    EXPECT_EQ(same, found) << symbol << " of " << version;
  }
};

TEST_F(LookUpTest, FindsWhatCanBeCalled) {
  CUdeviceptr pointer = 0;
  const auto allocate = Find<cuda::Fn_cuMemAlloc_v2>("cuMemAlloc", kNow);
  ASSERT_NE(allocate, nullptr);
  ASSERT_CU(allocate(&pointer, 4096));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(pointer));
}

// Every name, just before each of its forms came, with it, and now: the form that is found is the
// one that the library exports under its own name.
TEST_F(LookUpTest, GivesWhatIsExported) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "what a card's driver exports is its own affair";
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(library, nullptr);
  int now = 0;
  ASSERT_CU(Cu().cuDriverGetVersion(&now));
  for (const auto& [name, forms] : FormsOfNames()) {
    for (const auto& [since, form] : forms) {
      if (since > now) continue;
      for (const int version : {since - 1, since, now}) {
        for (const cuuint64_t flags : {kDefault, kLegacy, kPerThread}) {
          CompareWithExport(library, name, forms, version, flags);
        }
      }
    }
  }
  dlclose(library);
}

// Names have forms that take other arguments.
TEST_F(LookUpTest, GivesTheFormOfTheVersion) {
  CUcontext context = nullptr;
  const auto create3020 = Find<cuda::Fn_cuCtxCreate_v2>("cuCtxCreate", 3020);
  EXPECT_EQ(Find<cuda::Fn_cuCtxCreate_v2>("cuCtxCreate", 11030), create3020);
  const auto create11040 = Find<cuda::Fn_cuCtxCreate_v3>("cuCtxCreate", 11040);
  ASSERT_TRUE(create3020 != nullptr && create11040 != nullptr);
  ASSERT_CU(create3020(&context, 0, 0));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxDestroy_v2(context));
  ASSERT_CU(create11040(&context, nullptr, 0, 0, 0));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxDestroy_v2(context));
  // Sizes had 32 bits before 3.2. A driver that still has that form gives it as another function.
  int here = 0;
  void* allocate3010 = &here;
  auto status = static_cast<CUdriverProcAddressQueryResult>(99);
  ASSERT_CU(Cu().cuGetProcAddress_v2("cuMemAlloc", &allocate3010, 3010, kDefault, &status));
  if (status == CU_GET_PROC_ADDRESS_SUCCESS) {
    EXPECT_TRUE(allocate3010 != nullptr && allocate3010 != &here);
    EXPECT_NE(allocate3010, Find("cuMemAlloc", 3020));
  } else {
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT_EQ(allocate3010, nullptr);
  }
}

TEST_F(LookUpTest, GivesTheCaptureOfTheVersion) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUstreamCaptureStatus status = {};
  cuuint64_t id = 0, same = 0;
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto begin10000 = Find<cuda::Fn_cuStreamBeginCapture>("cuStreamBeginCapture", 10000);
  const auto begin10010 = Find<cuda::Fn_cuStreamBeginCapture_v2>("cuStreamBeginCapture", 10010);
  const auto info10010 = Find<cuda::Fn_cuStreamGetCaptureInfo>("cuStreamGetCaptureInfo", 10010);
  const auto info11030 = Find<cuda::Fn_cuStreamGetCaptureInfo_v2>("cuStreamGetCaptureInfo", 11030);
  ASSERT_TRUE(begin10000 != nullptr && begin10010 != nullptr);
  ASSERT_TRUE(info10010 != nullptr && info11030 != nullptr);
  ASSERT_CU(begin10000(stream));
  EXPECT_CU(CUDA_SUCCESS, info10010(stream, &status, &id));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_CU(CUDA_SUCCESS, info11030(stream, &status, &same, nullptr, nullptr, nullptr));
  EXPECT_EQ(same, id);
  ASSERT_CU(Cu().cuStreamEndCapture(stream, &graph));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphDestroy(graph));
  ASSERT_CU(begin10010(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(Cu().cuStreamEndCapture(stream, &graph));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphDestroy(graph));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamDestroy_v2(stream));
}

TEST_F(LookUpTest, FindsItselfByVersion) {
  void* function = nullptr;
  const auto get11030 = Find<cuda::Fn_cuGetProcAddress>("cuGetProcAddress", 11030);
  const auto get12000 = Find<cuda::Fn_cuGetProcAddress_v2>("cuGetProcAddress", 12000);
  ASSERT_TRUE(get11030 != nullptr && get12000 != nullptr);
  ASSERT_CU(get11030("cuInit", &function, 2000, kDefault));
  EXPECT_EQ(function, Find("cuInit", 2000));
  function = nullptr;
  ASSERT_CU(get12000("cuInit", &function, 2000, kDefault, nullptr));
  EXPECT_EQ(function, Find("cuInit", 2000));
}

TEST_F(LookUpTest, TellsWhatItDoesNotKnowFromWhatIsNewer) {
  constexpr auto kUnknown = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  constexpr auto kNewer = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  LookUp(kUnknown, "cuNoSuchFunction", kNow);
  LookUp(kNewer, "cuDevicePrimaryCtxRetain", 4000);
  LookUp(kNewer, "cuGraphCreate", 7000);
  LookUp(kNewer, "cuMemAllocAsync", 10000);
  LookUp(kNewer, "cuLibraryLoadData", 11080);
  Find("cuDevicePrimaryCtxRetain", 7000);
  Find("cuGraphCreate", 10000);
  Find("cuLibraryLoadData", 12000);
}

// A status is asked for or not. The first form of the call has none, and gives an error instead.
TEST_F(LookUpTest, NeedsNoStatus) {
  for (const auto& [name, version] :
       {std::pair("cuNoSuchFunction", kNow), std::pair("cuGraphCreate", 7000)}) {
    int here = 0;
    void* function = &here;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGetProcAddress_v2(name, &function, version, kDefault, nullptr));
    EXPECT_EQ(function, nullptr) << name;
    EXPECT_CU(CUDA_ERROR_NOT_FOUND, Cu().cuGetProcAddress(name, &function, version, kDefault));
  }
  void* function = nullptr;
  EXPECT_CU(CUDA_SUCCESS, Cu().cuGetProcAddress("cuGraphCreate", &function, 10000, kDefault));
  EXPECT_NE(function, nullptr);
}

// Drivers of CUDA 13 refuse it; the reference of older ones does not say.
TEST_F(LookUpTest, AVersionBeyondTheDriversGivesItsNewestFormOrNone) {
  int version = 0;
  void* function = nullptr;
  ASSERT_CU(Cu().cuDriverGetVersion(&version));
  const CUresult result =
      Cu().cuGetProcAddress_v2("cuInit", &function, version + 1000, kDefault, nullptr);
  if (result == CUDA_SUCCESS) {
    EXPECT_NE(function, nullptr);
  } else {
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, result);
  }
}

TEST_F(LookUpTest, GivesTheDefaultStreamThatTheFlagsSay) {
  unsigned long long plain = 0, legacy = 0, per_thread = 0, expected = 0;
  const auto id = [&](cuuint64_t flags, unsigned long long* of_the_default_stream) {
    const auto get = Find<cuda::Fn_cuStreamGetId>("cuStreamGetId", kNow, flags);
    ASSERT_NE(get, nullptr);
    EXPECT_CU(CUDA_SUCCESS, get(nullptr, of_the_default_stream));
  };
  id(kDefault, &plain);
  id(kLegacy, &legacy);
  id(kPerThread, &per_thread);
  EXPECT_EQ(plain, legacy);
  EXPECT_NE(per_thread, legacy);
  ASSERT_CU(Cu().cuStreamGetId(reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD_VALUE), &expected));
  EXPECT_EQ(per_thread, expected);
  // A function without a stream has one form.
  Find("cuMemAlloc", kNow, kPerThread);
}

TEST_F(LookUpTest, RefusesWhatMakesNoSense) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status = {};
  if (OnSoftwareGpu()) {  // a card's driver follows them
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
              Cu().cuGetProcAddress_v2(nullptr, &function, kNow, kDefault, &status));
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
              Cu().cuGetProcAddress_v2("cuInit", nullptr, kNow, kDefault, &status));
  }
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuGetProcAddress_v2("cuInit", &function, kNow, 1 << 20, &status));
}

}  // namespace
}  // namespace tandem::driver_test
