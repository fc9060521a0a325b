#include "bench/worker_device.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <thread>

#include "softgpu/ptx/module_head.h"
#include "src/base/time.h"

namespace bench {
namespace {

using tandem::MonotonicNow;

constexpr unsigned int kThreads = 256;
constexpr uint64_t kBytesPerThread = 16;
constexpr uint64_t kMostPerLaunch = 1 << 20;  // a piece of work short enough to drain soon
constexpr uint64_t kStampRounds = 2000;       // of a kernel that does nothing but take its time
constexpr uint64_t kUnitNs = 500'000;         // of a kernel of a cell
constexpr uint64_t kStampsUnderWay = 4;
constexpr uint64_t kStampBytes = 2 * sizeof(uint64_t);
constexpr uint64_t kLaunchesUnderWay = 256;
constexpr uint64_t kLeastTogetherNs = 10'000'000;  // more than a turn of a thread on a processor

constexpr char kPtx[] = PTX_HEAD R"(

.visible .entry nothing()
{
  ret;
}

// Each thread writes 16 bytes.
.visible .entry fill(.param .u64 to, .param .u64 bytes, .param .u32 value)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [to];
  ld.param.u64 %rd2, [bytes];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  mul.wide.u32 %rd3, %r5, 16;
  setp.ge.u64 %p1, %rd3, %rd2;
  @%p1 bra END;
  add.s64 %rd4, %rd1, %rd3;
  st.global.v4.u32 [%rd4], {%r1, %r5, %r1, %r5};
END:
  ret;
}

// When it began and when it ended, at `out`.
.visible .entry stamp(.param .u64 out, .param .u64 rounds)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<6>;
  mov.u64 %rd4, %globaltimer;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [rounds];
  mov.u64 %rd3, 0;
LOOP:
  add.s64 %rd3, %rd3, 1;
  setp.lt.u64 %p1, %rd3, %rd2;
  @%p1 bra LOOP;
  mov.u64 %rd5, %globaltimer;
  st.global.v2.u64 [%rd1], {%rd4, %rd5};
  ret;
}

// Takes that long.
.visible .entry spend(.param .u64 ns)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<5>;
  mov.u64 %rd1, %globaltimer;
  ld.param.u64 %rd2, [ns];
  add.s64 %rd3, %rd1, %rd2;
LOOP:
  mov.u64 %rd4, %globaltimer;
  setp.lt.u64 %p1, %rd4, %rd3;
  @%p1 bra LOOP;
  ret;
}
)";

[[noreturn]] void Fail(const char* call, const std::string& why) {
  std::fprintf(stderr, "bench_worker: %s: %s\n", call, why.c_str());
  std::_Exit(1);
}

void Check(const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) return;
  const char* const name = tandem::cuda::ErrorName(result);
  Fail(call, name != nullptr ? name : std::to_string(result));
}

int64_t RealNow() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

uint64_t Since(tandem::Instant begin) {
  return static_cast<uint64_t>((MonotonicNow() - begin).ns);
}

}  // namespace

Device::Device(bool kernels, int index) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) Fail("dlopen", dlerror());
  driver_ = tandem::cuda::LoadRealDriver(
      library, [](void* handle, const char* symbol) { return dlsym(handle, symbol); });
  Check("cuInit", driver_.cuInit(0));
  CUdevice device = 0;
  Check("cuDeviceGet", driver_.cuDeviceGet(&device, index));
  Check("cuCtxCreate", driver_.cuCtxCreate_v2(&context_, 0, device));
  Check("cuStreamCreate", driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  if (!kernels) return;
  Check("cuModuleLoadData", driver_.cuModuleLoadData(&module_, kPtx));
  nothing_ = Kernel("nothing");
  fill_ = Kernel("fill");
  stamp_ = Kernel("stamp");
  spend_ = Kernel("spend");
}

Device::~Device() {
  driver_.cuCtxDestroy_v2(context_);  // and all that is in it
}

CUfunction Device::Kernel(const char* name) {
  CUfunction kernel = nullptr;
  Check("cuModuleGetFunction", driver_.cuModuleGetFunction(&kernel, module_, name));
  return kernel;
}

void Device::Launch(CUfunction kernel, unsigned int blocks, unsigned int threads,
                    void** parameters) {
  Check("cuLaunchKernel", driver_.cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream_,
                                                 parameters, nullptr));
}

void Device::Wait() {
  Check("cuStreamSynchronize", driver_.cuStreamSynchronize(stream_));
}

uint64_t Device::Launches(uint64_t count) {
  // Neither a check of our own nor a wait for the driver's queue may hide what a launch costs.
  const auto launch = driver_.cuLaunchKernel;
  const bool queues = nothing_ != nullptr;
  CUresult result = CUDA_SUCCESS;
  const tandem::Instant begin = MonotonicNow();
  for (uint64_t i = 1; i <= count; ++i) {
    const CUresult this_one = launch(nothing_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr);
    if (this_one != CUDA_SUCCESS) result = this_one;
    if (queues && i % kLaunchesUnderWay == 0) Wait();
  }
  Wait();
  const uint64_t took = Since(begin);
  Check("cuLaunchKernel", result);
  return took;
}

void Device::Hold(uint64_t bytes) {
  for (const Piece& piece : held_) Check("cuMemFree", driver_.cuMemFree_v2(piece.address));
  held_.clear();
  const uint64_t most = (bytes / kPieces / kPiece + 1) * kPiece;
  while (bytes > 0) {
    Piece piece{0, std::min(bytes, most)};
    Check("cuMemAlloc", driver_.cuMemAlloc_v2(&piece.address, piece.bytes));
    held_.push_back(piece);
    bytes -= piece.bytes;
  }
}

void Device::Pass() {
  unsigned int value = static_cast<unsigned int>(++passes_);
  for (const Piece& piece : held_) {
    for (uint64_t done = 0; done < piece.bytes; done += kMostPerLaunch) {
      CUdeviceptr to = piece.address + done;
      uint64_t bytes = std::min(piece.bytes - done, kMostPerLaunch);
      void* parameters[] = {&to, &bytes, &value};
      const uint64_t per_block = kThreads * kBytesPerThread;
      Launch(fill_, static_cast<unsigned int>((bytes + per_block - 1) / per_block), kThreads,
             parameters);
    }
  }
  Wait();
}

uint64_t Device::Rewrite(uint64_t passes) {
  const tandem::Instant begin = MonotonicNow();
  for (uint64_t i = 0; i < passes; ++i) Pass();
  return Since(begin);
}

uint64_t Device::Work(double seconds) {
  const auto ns = static_cast<uint64_t>(seconds * 1e9);
  const tandem::Instant begin = MonotonicNow();
  uint64_t passes = 0;
  for (; Since(begin) < ns; ++passes) Pass();
  return passes;
}

uint64_t Device::Job(uint64_t phases, uint64_t passes, uint64_t pause_ns) {
  const tandem::Instant begin = MonotonicNow();
  for (uint64_t phase = 0; phase < phases; ++phase) {
    Rewrite(passes);
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  }
  return Since(begin);
}

uint64_t Device::Copies(bool up, uint64_t bytes, uint64_t count) {
  void* host = nullptr;
  Check("cuMemHostAlloc", driver_.cuMemHostAlloc(&host, bytes, 0));
  std::memset(host, 0, bytes);  // else the first copy would wait for its pages
  const CUdeviceptr there = held_.at(0).address;
  const tandem::Instant begin = MonotonicNow();
  for (uint64_t i = 0; i < count; ++i) {
    if (up) {
      Check("cuMemcpyHtoDAsync", driver_.cuMemcpyHtoDAsync_v2(there, host, bytes, stream_));
    } else {
      Check("cuMemcpyDtoHAsync", driver_.cuMemcpyDtoHAsync_v2(host, there, bytes, stream_));
    }
  }
  Wait();
  const uint64_t took = Since(begin);
  Check("cuMemFreeHost", driver_.cuMemFreeHost(host));
  return took;
}

// In a slot of its own it notes when it began and ended.
void Device::Stamp(uint64_t slot, uint64_t rounds) {
  if (stamps_ == 0) Check("cuMemAlloc", driver_.cuMemAlloc_v2(&stamps_, kMostStamps * kStampBytes));
  CUdeviceptr out = stamps_ + slot * kStampBytes;
  void* parameters[] = {&out, &rounds};
  Launch(stamp_, 1, 1, parameters);
}

void Device::Spend(uint64_t kernels) {
  for (uint64_t done = 1; done <= kernels; ++done) {
    uint64_t ns = kUnitNs;
    void* parameters[] = {&ns};
    Launch(spend_, 1, 1, parameters);
    if (done % kStampsUnderWay == 0) Wait();
  }
  Wait();
}

uint64_t Device::Unit(uint64_t count) {
  const tandem::Instant begin = MonotonicNow();
  Spend(count);
  return Since(begin);
}

void Device::Touch() {
  unsigned int value = static_cast<unsigned int>(++passes_);
  for (const Piece& piece : held_) {
    for (uint64_t done = 0; done < piece.bytes; done += kTouched) {
      CUdeviceptr to = piece.address + done;
      uint64_t bytes = kBytesPerThread;
      void* parameters[] = {&to, &bytes, &value};
      Launch(fill_, 1, 1, parameters);
    }
  }
}

// By how much CLOCK_REALTIME is ahead of %globaltimer; with a little more, that of a call.
int64_t Device::TimerOffset() {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 20; ++i) {
    Stamp(0, 0);
    Wait();
    const int64_t now = RealNow();
    uint64_t times[2];
    Check("cuMemcpyDtoH", driver_.cuMemcpyDtoH_v2(times, stamps_, sizeof(times)));
    least = std::min(least, now - static_cast<int64_t>(times[1]));
  }
  return least;
}

std::string Device::Cells(const std::string& file) {
  const int64_t offset = TimerOffset();
  std::ifstream lines(file);
  std::vector<int64_t> ready;
  for (uint64_t think_ns = 0, kernels = 0; lines >> think_ns >> kernels;) {
    if (ready.size() + 1 == kMostStamps) Fail("cells", "there are too many");
    std::this_thread::sleep_for(std::chrono::nanoseconds(think_ns));
    ready.push_back(RealNow());
    Stamp(ready.size(), 0);
    Touch();
    Spend(kernels);
  }
  std::vector<int64_t> times((ready.size() + 1) * 2);
  Check("cuMemcpyDtoH",
        driver_.cuMemcpyDtoH_v2(times.data(), stamps_, times.size() * sizeof(uint64_t)));
  std::string text;
  for (size_t i = 0; i < ready.size(); ++i) {
    const int64_t began = times[2 * i + 2] + offset;
    text += (i == 0 ? "" : " ") + std::to_string(ready[i]) + " " + std::to_string(began);
  }
  return text;
}

void Device::Burst(uint64_t ns, void (*begun)()) {
  const auto launch = [this] { Stamp(stamped_++ % kMostStamps, kStampRounds); };
  launch();
  Wait();
  begun();
  const tandem::Instant begin = MonotonicNow();  // waiting for the card is not part of it
  for (uint64_t done = 1; Since(begin) < ns; ++done) {
    launch();
    if (done % kStampsUnderWay == 0) Wait();
  }
  Wait();
}

void Device::Serve(uint64_t steps, uint64_t kernels, uint64_t rounds, uint64_t pause_ns) {
  for (uint64_t step = 0; step < steps; ++step) {
    for (uint64_t i = 0; i < kernels; ++i) Stamp(stamped_++ % kMostStamps, rounds);
    Wait();
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  }
}

std::string Device::Stamps() {
  std::vector<uint64_t> times(std::min(stamped_, kMostStamps) * 2);
  Check("cuMemcpyDtoH",
        driver_.cuMemcpyDtoH_v2(times.data(), stamps_, times.size() * sizeof(uint64_t)));
  std::string text;
  for (const uint64_t time : times) text += (text.empty() ? "" : " ") + std::to_string(time);
  stamped_ = 0;
  return text;
}

uint64_t Device::Allocations(uint64_t bytes, uint64_t count, uint64_t threads, uint64_t kept) {
  std::vector<CUdeviceptr> blocks(kept);
  for (CUdeviceptr& block : blocks) Check("cuMemAlloc", driver_.cuMemAlloc_v2(&block, bytes));
  std::atomic<uint64_t> arrived{0}, time{0}, total{0};
  std::vector<std::thread> workers;
  for (uint64_t i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      Check("cuCtxSetCurrent", driver_.cuCtxSetCurrent(context_));
      // A thread that had to be woken would come when the first ones are done.
      for (++arrived; arrived < threads;) std::this_thread::yield();
      const tandem::Instant begin = MonotonicNow();
      uint64_t done = 0;
      while (done < count || Since(begin) < kLeastTogetherNs) {
        for (uint64_t n = 0; n < count; ++n) {
          CUdeviceptr pointer = 0;
          Check("cuMemAlloc", driver_.cuMemAlloc_v2(&pointer, bytes));
          Check("cuMemFree", driver_.cuMemFree_v2(pointer));
        }
        done += count;
      }
      time += Since(begin);
      total += done;
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const CUdeviceptr block : blocks) Check("cuMemFree", driver_.cuMemFree_v2(block));
  return total == 0 ? 0 : time * count / total;
}

uint64_t Device::Mappings(uint64_t bytes, uint64_t count, uint64_t piece) {
  CUdeviceptr address = 0;
  Check("cuMemAddressReserve", driver_.cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  std::vector<CUmemGenericAllocationHandle> handles((bytes + piece - 1) / piece);
  const auto size = [=](uint64_t i) { return std::min(piece, bytes - i * piece); };
  const tandem::Instant begin = MonotonicNow();
  for (uint64_t n = 0; n < count; ++n) {
    for (uint64_t i = 0; i < handles.size(); ++i) {
      Check("cuMemCreate", driver_.cuMemCreate(&handles[i], size(i), &properties, 0));
      Check("cuMemMap", driver_.cuMemMap(address + i * piece, size(i), 0, handles[i], 0));
    }
    Check("cuMemSetAccess", driver_.cuMemSetAccess(address, bytes, &access, 1));
    for (uint64_t i = 0; i < handles.size(); ++i) {
      Check("cuMemUnmap", driver_.cuMemUnmap(address + i * piece, size(i)));
      Check("cuMemRelease", driver_.cuMemRelease(handles[i]));
    }
  }
  const uint64_t took = Since(begin);
  Check("cuMemAddressFree", driver_.cuMemAddressFree(address, bytes));
  return took;
}

}  // namespace bench
