// A small device for the tests: one block of memory, its granules, and launches on it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "softgpu/ptx/execute.h"

namespace tandem::ptx {

class TestDevice {
 public:
  static constexpr uint32_t kShift = 12;
  static constexpr uint64_t kGranule = uint64_t{1} << kShift;

  explicit TestDevice(uint64_t bytes = 1 << 20)
      : storage_(bytes + kGranule), readable_(Words(bytes)), writable_(Words(bytes)) {
    map_.base = (reinterpret_cast<uint64_t>(storage_.data()) + kGranule - 1) & ~(kGranule - 1);
    map_.size = bytes & ~(kGranule - 1);
    map_.granule_shift = kShift;
    map_.readable = readable_.data();
    map_.writable = writable_.data();
    for (auto* bits : {&readable_, &writable_}) {
      for (auto& word : *bits) word = ~uint64_t{0};
    }
  }

  const MemoryMap& map() const { return map_; }
  uint64_t At(uint64_t offset) const { return map_.base + offset; }
  template <class T>
  T* Array(uint64_t offset) {
    return reinterpret_cast<T*>(At(offset));
  }
  void Forbid(uint64_t granule, bool reading, bool writing) {
    if (reading) readable_[granule / 64] &= ~(uint64_t{1} << (granule % 64));
    if (writing) writable_[granule / 64] &= ~(uint64_t{1} << (granule % 64));
  }

 private:
  static uint64_t Words(uint64_t bytes) { return bytes / kGranule / 64 + 1; }

  std::vector<uint8_t> storage_;
  std::vector<std::atomic<uint64_t>> readable_, writable_;
  MemoryMap map_;
};

// Lays parameters out as the driver does.
class Params {
 public:
  template <class T>
  Params& Add(T value) {
    bytes_.resize((bytes_.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T) + sizeof(T));
    std::memcpy(bytes_.data() + bytes_.size() - sizeof(T), &value, sizeof value);
    return *this;
  }
  std::vector<uint8_t> bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

inline std::shared_ptr<const Program> MustCompile(std::string_view text) {
  auto program = Compile(text);
  EXPECT_TRUE(program.ok()) << program.error().message;
  return program.ok() ? *program : nullptr;
}

inline std::string CompileLog(std::string_view text) {
  auto program = Compile(text);
  EXPECT_FALSE(program.ok());
  return program.ok() ? "" : program.error().message;
}

struct Shape {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {32, 1, 1};
  uint32_t shared = 0;
  uint64_t image = 0;
};

inline Execution MakeExecution(const Program& program, const TestDevice& device, const Shape& shape,
                               const Params& params, Path path, std::string_view kernel = {}) {
  Launch launch;
  launch.program = &program;
  launch.kernel = kernel.empty() ? &program.kernels().front() : program.FindKernel(kernel);
  std::memcpy(launch.grid, shape.grid, sizeof shape.grid);
  std::memcpy(launch.block, shape.block, sizeof shape.block);
  launch.dynamic_shared_bytes = shape.shared;
  launch.image_address = shape.image;
  launch.params = params.bytes();
  return Execution(launch, device.map(), path);
}

inline bool Never() {
  return false;
}

// Runs to the end and expects it to go well.
inline void MustRun(const Program& program, const TestDevice& device, const Shape& shape,
                    const Params& params, Path path = Path::kAuto, std::string_view kernel = {}) {
  Execution execution = MakeExecution(program, device, shape, params, path, kernel);
  const Stop stop = execution.Run(Never);
  EXPECT_EQ(stop, Stop::kDone) << execution.fault().what;
}

inline std::string Modules(const std::string& rest) {
  return ".version 6.3\n.target sm_70\n.address_size 64\n" + rest;
}

// A module of one kernel `k` with these .param declarations and this body.
inline std::string Module(const std::string& params, const std::string& body) {
  return Modules(".visible .entry k(" + params + ")\n{\n" + body + "\n}\n");
}

// Registers of every kind and a variable in every space, and then `instruction`.
inline std::string WithRegisters(const std::string& instruction) {
  return Modules(R"(.global .align 8 .b8 gv[64]; .const .align 8 .b8 cv[64];
.visible .entry k(.param .u64 prm) {
  .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>;
  .reg .b64 %rd<9>; .shared .align 8 .b8 sv[64]; .local .align 8 .b8 lv[64];
L: )" + instruction +
                 "\nret; }");
}

// Of random tests: TANDEM_SEED, so that a failure can be had again.
inline uint32_t Seed() {
  const char* seed = std::getenv("TANDEM_SEED");
  return seed == nullptr ? 1 : static_cast<uint32_t>(std::strtoul(seed, nullptr, 0));
}

inline constexpr char kPrologue[] = R"(
  .reg .b64 %out, %at, %rd<10>;
  .reg .b32 %t, %r<20>;
  .reg .f32 %f<10>;
  .reg .pred %p<6>;
  ld.param.u64 %out, [result];
  mov.u32 %t, %tid.x;
  mul.wide.u32 %at, %t, 4;
  add.s64 %at, %out, %at;
)";

// A kernel with registers of every kind: %t is the thread, %at its word of %out.
inline std::string Body(const std::string& body) {
  return Module(".param .u64 result", kPrologue + body);
}

// On each path that this machine has.
class KernelTest : public ::testing::TestWithParam<Path> {
 protected:
  // Runs one block and returns the u32 that each thread stored.
  std::vector<uint32_t> Go(const std::string& body, uint32_t threads = 32, uint32_t shared = 0) {
    const auto program = MustCompile(Body(body));
    if (program == nullptr) return std::vector<uint32_t>(threads);
    MustRun(*program, device_, {.block = {threads, 1, 1}, .shared = shared},
            Params().Add(device_.At(0)), GetParam());
    const uint32_t* out = device_.Array<uint32_t>(0);
    return std::vector<uint32_t>(out, out + threads);
  }
  Stop Fails(const std::string& body, Fault* fault = nullptr) {
    const auto program = MustCompile(Body(body));
    if (program == nullptr) return Stop::kDone;
    Execution execution =
        MakeExecution(*program, device_, {}, Params().Add(device_.At(0)), GetParam());
    const Stop stop = execution.Run(Never);
    if (fault != nullptr) *fault = execution.fault();
    return stop;
  }
  TestDevice device_;
};

}  // namespace tandem::ptx
