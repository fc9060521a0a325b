// A launch, or one block of a cooperative one, as it goes on. See execute.h.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "softgpu/ptx/barriers.h"
#include "softgpu/ptx/execute.h"
#include "softgpu/ptx/print.h"
#include "softgpu/ptx/warp.h"

namespace tandem::ptx {

class Execution::State {
 public:
  // With a block, only that one of the grid is run.
  State(Launch launch, const MemoryMap& memory, Path path, const uint32_t* block);

  Stop Run(const std::function<bool()>& should_yield);

  Fault fault;
  PrintBuffer printed;
  std::string assertions;

 private:
  // Instructions between two questions to should_yield: some ten microseconds.
  static constexpr int64_t kInstructionsPerQuestion = 2048;
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };

  enum class Event { kParked, kTurnOver, kYielded, kFault };
  // What became of the group in hand after a control instruction.
  enum class Flow { kOn, kPick, kParked, kTurnOver, kYielded, kFault };

  Stop RunBlocks();
  std::optional<Stop> RunBlock();
  void StartBlock();
  Event RunWarp(Warp& warp);
  Event Fail(const Warp& warp, const Instruction& in);
  Flow Control(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow Jump(Warp& warp, Group* group, const Instruction& in);
  Flow Split(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow Loop(Warp& warp, const Instruction& in, uint32_t instructions);
  Flow Call(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow CallPointer(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow Return(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow Park(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow Arrive(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow MeetLanes(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow Print(Warp& warp, Group* group, const Instruction& in, uint32_t active);
  Flow BadBarrier(const Warp& warp, const Instruction& in);
  bool TimeToYield(int64_t instructions) {
    budget_ -= instructions;
    if (budget_ > 0) [[likely]]
      return false;
    budget_ = kInstructionsPerQuestion;
    return (*should_yield_)();
  }
  void Count(int64_t instructions) { progress_->instructions += instructions; }
  void Describe(const Warp& warp, const Instruction& in, const std::string& what, uint64_t address,
                Stop stop);
  void FillContext(const MemoryMap& memory, uint32_t index);
  uint64_t SharedBytes() const;

  const Launch launch_;
  Progress own_progress_;
  Progress* const progress_;
  const Code& code_;
  const int path_;
  uint32_t threads_;
  uint32_t block_[3] = {0, 0, 0};
  const bool alone_;
  std::vector<Warp> warps_;
  std::unique_ptr<Line[]> frames_;
  std::vector<Line> shared_;
  std::vector<uint32_t> predicates_, thread_ids_;
  std::vector<uint8_t> params_;
  std::unique_ptr<uint8_t, Free> local_;
  Line scratch_[4];

  Barriers barriers_;
  size_t warp_ = 0;                            // the one to go on with
  bool started_ = false, unfinished_ = false;  // the latter: a warp could have gone on
  int64_t budget_ = kInstructionsPerQuestion;
  Stop stop_ = Stop::kYielded;  // kYielded: not at its end
  const std::function<bool()>* should_yield_ = nullptr;
};

}  // namespace tandem::ptx
