// Running one kernel launch: a SIMT interpreter over warps of 32 lanes.
//
// Blocks run one after the other, in order, so that a launch gives the same bits every time; those
// of a cooperative launch take turns, a fixed number of instructions each. Lanes
// that part ways are kept as groups; the group with the lowest program counter runs first and
// groups meeting at the same place become one (minimum-PC reconvergence). A barrier parks a group
// until the block's other threads arrive. A warp that
// loops for long gives way to the block's next one, after a fixed number of back-edges.
//
// Threading: an Execution belongs to one thread at a time; different ones are independent.
//
// Invariants:
// 1. The device is touched only where MemoryMap says so; everything else is a fault.
// 2. Run() after kYielded goes on exactly where it stopped; results do not depend on yields.
// 3. All paths (baseline, AVX2, AVX-512) compute the same bits.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "softgpu/ptx/host_range.h"
#include "softgpu/ptx/program.h"
#include "softgpu/ptx/progress.h"
#include "softgpu/ptx/texture.h"

namespace tandem::ptx {

// Which device bytes exist. Device addresses are host virtual addresses inside
// [base, base + size). One bit per granule of 1 << granule_shift bytes, counted from base, lowest
// bit first. REQUIRES: granule_shift >= 10; base and size are multiples of a granule; the bitmaps
// and the mapped granules outlive the launch.
struct MemoryMap {
  uint64_t base = 0;
  uint64_t size = 0;
  uint32_t granule_shift = 0;
  const std::atomic<uint64_t>* readable = nullptr;
  const std::atomic<uint64_t>* writable = nullptr;
  // To the byte, sorted, none of them in the device or in another; null: none. Outlives the launch,
  // and stays as it is while it runs. For loads, stores and atomics, not for textures.
  const std::vector<HostRange>* host = nullptr;
};

// REQUIRES: every grid and block dimension >= 1; at most 1024 threads in a block; params holds
// kernel->param_bytes bytes; the program outlives the execution.
struct Launch {
  const Program* program = nullptr;
  const Kernel* kernel = nullptr;
  uint64_t image_address = 0;  // where the program's image was written
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  std::vector<uint8_t> params;
  // The texture objects there are when the kernel is launched; null: none. Element i has a handle
  // whose low 20 bits are i + 1, or none.
  std::shared_ptr<const std::vector<Texture>> textures;
  // All blocks take turns, so that each may wait for any other. They exist at the same time: what
  // a block needs of the host's memory is needed as often as there are blocks.
  bool cooperative = false;
  uint64_t grid_workspace = 0;   // two zero words in the device, where the grid's barrier counts
  Progress* progress = nullptr;  // if not null, outlives the execution; for the caller to reset
};

enum class Stop {
  kDone,
  kYielded,
  kIllegalAddress,
  kMisalignedAddress,
  kTrap,
  kAssert,
  kInvalidAddressSpace,
};

struct Fault {
  uint64_t address = 0;
  std::string what;  // the instruction, its line and the thread block
};

// How handlers are compiled: for any machine, AVX2 with FMA, or AVX-512.
enum class Path { kAuto, kBaseline, kAvx2, kAvx512 };

// Those that are built in and that this machine can run, the fastest last. kAuto is that one, and
// so is what would be faster still.
const std::vector<Path>& Paths();
int HandlerOf(Path path);  // which of an instruction's handlers

class Execution {
 public:
  Execution(const Launch& launch, const MemoryMap& memory, Path path);
  ~Execution();
  Execution(Execution&&) noexcept;
  Execution& operator=(Execution&&) noexcept;

  // Runs until the launch ends, faults, or should_yield says true. should_yield is asked at block
  // boundaries and at back-edges, every few thousand instructions, so an endless loop can be
  // left. The caller's floating-point environment neither matters nor changes.
  Stop Run(const std::function<bool()>& should_yield);

  // REQUIRES: Run() returned a fault.
  const Fault& fault() const;

  // What the kernel printed since the last call, in order, and what failed assertions say.
  std::string TakeOutput();
  const std::string& assertions() const;

 private:
  class State;
  Execution(const Launch& launch, const MemoryMap& memory, Path path, const uint32_t* block);
  void MakeBlocks(const Launch& launch, const MemoryMap& memory, Path path);
  Stop RunTogether(const std::function<bool()>& should_yield);

  std::unique_ptr<State> state_;   // null while there are blocks_
  std::vector<Execution> blocks_;  // of a cooperative launch
  size_t turn_ = 0;                // the one of blocks_ to go on with, or that has failed
};

}  // namespace tandem::ptx
