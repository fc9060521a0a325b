// `./dev bench ptx`: how fast the warp interpreter runs some kernels, on each of its paths, beside
// native loops that do the same, in the same rounds; and how long it takes to compile those of
// ptx_kernels.h.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/ptx_kernels.h"
#include "bench/ptx_matrix.h"
#include "bench/ptx_native.h"
#include "softgpu/ptx/execute.h"

namespace tandem::bench {
namespace {

constexpr int kRounds = 7;
constexpr uint32_t kGranuleShift = 16;
constexpr uint32_t kVector = 1 << 20;
constexpr uint32_t kMatrix = 256, kImage = 256, kImageLimit = 256;
constexpr uint32_t kReducers = 16384;
constexpr uint32_t kScanBlock = 1024;
constexpr uint32_t kChainThreads = 4096, kChain = 4096;

// One stretch of memory in which everything lies.
class Memory {
 public:
  explicit Memory(uint64_t bytes) : storage_(bytes + kGranule), bits_(bytes / kGranule / 64 + 1) {
    map_.base = (reinterpret_cast<uint64_t>(storage_.data()) + kGranule - 1) & ~(kGranule - 1);
    map_.size = bytes & ~(kGranule - 1);
    map_.granule_shift = kGranuleShift;
    for (auto& word : bits_) word = ~uint64_t{0};
    map_.readable = map_.writable = bits_.data();
  }
  const ptx::MemoryMap& map() const { return map_; }
  template <class T>
  T* Take(size_t count) {
    T* taken = reinterpret_cast<T*>(map_.base + used_);
    used_ += (count * sizeof(T) + kGranule - 1) & ~(kGranule - 1);
    return taken;
  }

 private:
  static constexpr uint64_t kGranule = uint64_t{1} << kGranuleShift;
  std::vector<uint8_t> storage_;
  std::vector<std::atomic<uint64_t>> bits_;
  ptx::MemoryMap map_;
  uint64_t used_ = 0;
};

class Params {
 public:
  template <class T>
  Params& Add(T value) {
    bytes_.resize((bytes_.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T) + sizeof(T));
    std::memcpy(bytes_.data() + bytes_.size() - sizeof(T), &value, sizeof value);
    return *this;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

struct Case {
  std::string name;
  const char* unit;
  double work;         // of one launch, in billions of the unit
  double native_work;  // of one native run
  uint32_t grid[2], block[2];
  Params params;
  std::function<void()> native;
  std::function<bool()> right = nullptr;  // whether the last launch gave what the native run does
};

struct Figures {
  std::vector<double> values;
  double median() const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  // The middle half of the rounds, over the median.
  double spread() const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return (sorted[sorted.size() * 3 / 4] - sorted[sorted.size() / 4]) / median();
  }
};

// Of this thread's own processor time: all of it is computing, and others may use the machine.
double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Seconds(const std::function<void()>& run) {
  const double start = ThreadSeconds();
  run();
  return ThreadSeconds() - start;
}

void Launch(const ptx::Program& program, const Memory& memory, const Case& one, ptx::Path path) {
  ptx::Launch launch;
  launch.program = &program;
  launch.kernel = program.FindKernel(one.name);
  std::copy_n(one.grid, 2, launch.grid);
  std::copy_n(one.block, 2, launch.block);
  launch.params = one.params.bytes();
  ptx::Execution execution(launch, memory.map(), path);
  if (execution.Run([] { return false; }) == ptx::Stop::kDone) return;
  std::fprintf(stderr, "bench ptx: %s\n", execution.fault().what.c_str());
  std::exit(1);
}

void Report(bool json, const char* kernel, const char* path, const Figures& rate,
            const Figures* native, const char* unit) {
  const std::string beside = native == nullptr ? "null" : std::to_string(native->median());
  if (json) {
    std::printf(
        "{\"kernel\": \"%s\", \"path\": \"%s\", \"rate\": %.6f, \"native_rate\": %s, "
        "\"unit\": \"%s\", \"rounds\": %d, \"spread\": %.3f}\n",
        kernel, path, rate.median(), beside.c_str(), unit, kRounds, rate.spread());
  } else {
    std::printf("%-14s %-9s %10.3f %10s %-10s %5.0f %%\n", kernel, path, rate.median(),
                native == nullptr ? "-" : beside.substr(0, 6).c_str(), unit, 100 * rate.spread());
  }
  std::fflush(stdout);
}

std::vector<Case> Cases(Memory& memory) {
  float* a = memory.Take<float>(kVector);
  float* b = memory.Take<float>(kVector);
  float* c = memory.Take<float>(kVector);
  int* image = memory.Take<int>(size_t{kImage} * kImage);
  for (uint32_t i = 0; i < kVector; ++i) {
    a[i] = static_cast<float>(i % 17) * 0.25f;
    b[i] = static_cast<float>(i % 13) * 0.5f;
  }
  // What the native loops write, beside what the kernels write.
  static std::vector<float> sums(kVector);
  static std::vector<int> picture(size_t{kImage} * kImage);
  static volatile float chain = 1.0f;
  NativeMandelbrot(picture.data(), kImage, kImageLimit);
  double iterations = 0;
  for (const int n : picture) iterations += n;

  const double elements = 1e-9 * kVector;
  const double flops = 2e-9 * kMatrix * kMatrix * kMatrix;
  const double links = 4e-9 * kChainThreads * kChain;
  return {
      {"vadd",
       "Gelement/s",
       elements,
       elements,
       {kVector / 256, 1},
       {256, 1},
       Params().Add(a).Add(b).Add(c),
       [=] { NativeVadd(a, b, sums.data(), kVector); }},
      {"fma_loop",
       "Gfma/s",
       links,
       16e-3,
       {kChainThreads / 256, 1},
       {256, 1},
       Params().Add(c).Add(0.5f).Add(1.0f).Add(static_cast<int>(kChain)),
       [] { chain = NativeFma(chain, 0.5f, 1.0f, 16'000'000); }},
      {"matmul",
       "GFLOP/s",
       flops,
       flops,
       {kMatrix / 16, kMatrix / 16},
       {16, 16},
       Params().Add(a).Add(b).Add(c).Add(static_cast<int>(kMatrix)),
       [=] { NativeMatmul(a, b, sums.data(), kMatrix); }},
      {"reduce",
       "Gelement/s",
       elements,
       elements,
       {kReducers / 256, 1},
       {256, 1},
       Params().Add(a).Add(c).Add(static_cast<int>(kVector)).Add(static_cast<int>(kReducers)),
       [=] { sums[0] = NativeReduce(a, kVector); }},
      {"mandelbrot",
       "Gstep/s",
       1e-9 * iterations,
       1e-9 * iterations,
       {kImage * kImage / 256, 1},
       {256, 1},
       Params().Add(image).Add(static_cast<int>(kImage)).Add(static_cast<int>(kImageLimit)),
       [] { NativeMandelbrot(picture.data(), kImage, kImageLimit); }},
  };
}

// Any number, the same one each time.
int Mixed(uint32_t i) {
  return static_cast<int>(i * 2654435761u >> 12);
}

// Prefix sums of each block of threads.
std::vector<Case> Scans(Memory& memory) {
  int* in = memory.Take<int>(kVector);
  int* out = memory.Take<int>(kVector);
  static std::vector<int> sums(kVector);
  for (uint32_t i = 0; i < kVector; ++i) in[i] = Mixed(i) % 4096;
  std::vector<Case> cases;
  for (const char* name : {"scan", "scan_shared"}) {
    cases.push_back({name,
                     "Gelement/s",
                     1e-9 * kVector,
                     1e-9 * kVector,
                     {kVector / kScanBlock, 1},
                     {kScanBlock, 1},
                     Params().Add(in).Add(out),
                     [=] { NativeScan(in, sums.data(), kVector, kScanBlock); },
                     [=] {
                       const bool right = std::equal(sums.begin(), sums.end(), out);
                       std::fill_n(out, kVector, -1);  // what no sum is
                       return right;
                     }});
  }
  return cases;
}

// Of n * n elements. Beside them stands the native product of floats.
std::vector<Case> Products(Memory& memory, uint32_t n) {
  const size_t count = size_t{n} * n;
  static std::vector<float> a, b, product;  // b by rows
  std::vector<int> left(count), right(count);
  a.resize(count), b.resize(count), product.resize(count);
  for (size_t i = 0; i < count; ++i) {
    left[i] = Mixed(static_cast<uint32_t>(i)) % 9 - 4;
    right[i] = Mixed(static_cast<uint32_t>(i + count)) % 9 - 4;
    a[i] = static_cast<float>(left[i]);
    b[i % n * n + i / n] = static_cast<float>(right[i]);
  }
  float* d = memory.Take<float>(count);
  std::vector<Case> cases;
  for (const Factor& factor : Factors()) {
    auto* of_a = memory.Take<uint8_t>(count * factor.bytes);
    auto* of_b = memory.Take<uint8_t>(count * factor.bytes);
    Encode(factor, left, of_a);
    Encode(factor, right, of_b);
    const bool whole = factor.sum == "s32";
    const auto is_right = [=] {
      for (size_t i = 0; i < count; ++i) {
        const float value = whole ? static_cast<float>(reinterpret_cast<const int*>(d)[i]) : d[i];
        if (value != product[i]) return false;
      }
      std::fill_n(d, count, 0.5f);  // what no product is
      return true;
    };
    const double flops = 2e-9 * n * static_cast<double>(count);
    Case one = {"wmma_" + factor.name,
                "GFLOP/s",
                flops,
                flops,
                {n / 64, n / 16},
                {128, 1},
                Params().Add(of_a).Add(of_b).Add(d).Add(n),
                [=] { NativeMatmul(a.data(), b.data(), product.data(), n); },
                is_right};
    cases.push_back(one);
    one.name = "mma_" + factor.name;
    one.grid[0] = n / 32;
    one.grid[1] = n / 64;
    cases.push_back(one);
    if (factor.name != "f16") continue;
    one.name = "mma_f16_async";
    cases.push_back(one);
  }
  return cases;
}

// `only`: the one kernel to run, or all; n: the rows of the matrices of matrix kernels.
int Run(bool json, const std::string& only, uint32_t n) {
  Memory memory((uint64_t{64} << 20) + uint64_t{32} * n * n);
  std::vector<Case> cases = Cases(memory);
  for (Case& one : Scans(memory)) cases.push_back(std::move(one));
  for (Case& one : Products(memory, n)) cases.push_back(std::move(one));
  const auto program = ptx::Compile(kBenchKernels), matrices = ptx::Compile(MatrixKernels());
  for (const auto* compiled : {&program, &matrices}) {
    if (compiled->ok()) continue;
    std::fprintf(stderr, "bench ptx: %s\n", compiled->error().message.c_str());
    return 1;
  }
  if (!json) {
    std::printf("%-14s %-9s %10s %10s %-10s %7s\n", "kernel", "path", "rate", "native", "unit",
                "spread");
  }
  constexpr const char* kNames[] = {"baseline", "avx2", "avx512"};
  const auto& paths = ptx::Paths();
  for (const Case& one : cases) {
    if (!only.empty() && only != one.name) continue;
    const bool matrix = (*program)->FindKernel(one.name) == nullptr;
    Figures rates[3], native;
    for (int round = 0; round < kRounds; ++round) {
      native.values.push_back(one.native_work / Seconds(one.native));
      for (size_t path = 0; path < paths.size(); ++path) {
        rates[path].values.push_back(
            one.work /
            Seconds([&] { Launch(matrix ? **matrices : **program, memory, one, paths[path]); }));
        if (one.right == nullptr || one.right()) continue;
        std::fprintf(stderr, "bench ptx: %s gives a wrong result\n", one.name.c_str());
        return 1;
      }
    }
    for (size_t path = paths.size(); path-- > 0;) {
      Report(json, one.name.c_str(), kNames[path], rates[path], &native, one.unit);
    }
  }
  if (!only.empty() && only != "compile") return 0;
  Figures compile;
  for (int round = 0; round < kRounds; ++round) {
    compile.values.push_back(1e3 * Seconds([] {
                               if (!ptx::Compile(kBenchKernels).ok()) std::abort();
                             }));
  }
  Report(json, "compile", "both", compile, nullptr, "ms");
  return 0;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  bool json = false;
  std::string only;
  int n = 256;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json") {
      json = true;
    } else if (argument.starts_with("--matrix=")) {
      n = std::atoi(argument.c_str() + std::strlen("--matrix="));
    } else if (!argument.starts_with('-') && only.empty()) {
      only = argument;
    } else {
      n = 0;
    }
  }
  if (n < 64 || n > 4096 || n % 64 != 0) {
    std::fprintf(stderr,
                 "usage: bench_ptx [--json] [--matrix=N] [KERNEL]\n"
                 "N: rows of the matrices of wmma and mma, a multiple of 64 up to 4096\n");
    return 2;
  }
  return tandem::bench::Run(json, only, static_cast<uint32_t>(n));
}
