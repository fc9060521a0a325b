// Device: what bench_worker does on a GPU, through the driver API.
//
// Threading: one thread; Allocations makes more of its own. Errors end the program with a line that
// names the call: a benchmark that goes on has measured something else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/cuda/real_driver.h"

namespace bench {

// Times are nanoseconds of the monotonic clock, from before the first call until all is done.
class Device {
 public:
  // Opens libcuda.so.1 and makes a context on its first GPU; `kernels`: loads the kernels.
  Device(bool kernels, int index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  // Of an empty kernel; of no kernel at all where none were loaded.
  uint64_t Launches(uint64_t count);

  // Holds this much memory instead of what it held, in pieces of kPiece; beyond kPieces of them, in
  // that many larger ones.
  void Hold(uint64_t bytes);
  // Passes over all memory held, which write every byte of it.
  uint64_t Rewrite(uint64_t passes);
  // Passes until `seconds` are over; how many those were.
  uint64_t Work(double seconds);
  // Passes and pauses in turns; how long all of it took.
  uint64_t Job(uint64_t phases, uint64_t passes, uint64_t pause_ns);
  // REQUIRES: a piece of at least `bytes` is held.
  uint64_t Copies(bool up, uint64_t bytes, uint64_t count);

  // A kernel, then calls `begun`; then kernels one after the other until `ns` are over since. Each
  // notes when it began and ended.
  void Burst(uint64_t ns, void (*begun)());
  // Steps of `kernels` such kernels of `rounds` rounds each, and a pause after each step.
  void Serve(uint64_t steps, uint64_t kernels, uint64_t rounds, uint64_t pause_ns);
  // What the latest kMostStamps of them noted since this was last asked, by the device's
  // %globaltimer in nanoseconds, separated by spaces.
  std::string Stamps();

  // `count` kernels like those of a cell.
  uint64_t Unit(uint64_t count);
  // A notebook user's cells, one for each line of the file, "THINK_NS KERNELS": a pause, then a
  // kernel that notes when it began, one for each kTouched of the memory held that writes to it,
  // and KERNELS that only take their time. Returns when each cell was ready to begin, and when its
  // first kernel did by %globaltimer, both as CLOCK_REALTIME has it; in nanoseconds, separated by
  // spaces.
  std::string Cells(const std::string& file);

  // Allocates and frees in all of the threads at once, while `kept` blocks of that size are there;
  // what `count` of these took a thread, on average. Each thread does at least `count`, and goes on
  // long enough for the others to come to work beside it.
  uint64_t Allocations(uint64_t bytes, uint64_t count, uint64_t threads, uint64_t kept);
  // Creates, maps, makes accessible, unmaps and releases at an address reserved before, in pieces.
  uint64_t Mappings(uint64_t bytes, uint64_t count, uint64_t piece);

  static constexpr uint64_t kPiece = 4 << 20;
  static constexpr uint64_t kPieces = 1024;
  static constexpr uint64_t kTouched = 2 << 20;
  static constexpr uint64_t kMostStamps = 1 << 18;

 private:
  struct Piece {
    CUdeviceptr address;
    uint64_t bytes;
  };

  CUfunction Kernel(const char* name);
  void Launch(CUfunction kernel, unsigned int blocks, unsigned int threads, void** parameters);
  void Pass();
  void Stamp(uint64_t slot, uint64_t rounds);
  void Touch();
  int64_t TimerOffset();
  void Spend(uint64_t kernels);
  void Wait();

  tandem::cuda::RealDriver driver_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction nothing_ = nullptr, fill_ = nullptr, stamp_ = nullptr, spend_ = nullptr;
  CUstream stream_ = nullptr;
  std::vector<Piece> held_;
  uint64_t passes_ = 0;  // so far: what the next one writes
  CUdeviceptr stamps_ = 0;
  uint64_t stamped_ = 0;
};

}  // namespace bench
