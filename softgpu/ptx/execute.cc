#include "softgpu/ptx/execute.h"

#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <new>
#include <optional>
#include <utility>

#include "softgpu/ptx/execution_state.h"

namespace tandem::ptx {

Execution::State::State(Launch launch, const MemoryMap& memory, Path path, const uint32_t* block)
    : launch_(std::move(launch)),
      progress_(launch_.progress != nullptr ? launch_.progress : &own_progress_),
      code_(*launch_.kernel->code),
      path_(HandlerOf(path)),
      threads_(launch_.block[0] * launch_.block[1] * launch_.block[2]),
      alone_(block != nullptr) {
  if (alone_) std::copy_n(block, 3, block_);
  const size_t count = (threads_ + kLanes - 1) / kLanes;
  warps_.resize(count);
  frames_.reset(new (std::nothrow) Line[count * code_.frame_bytes / sizeof(Line)]());
  predicates_.resize(count * code_.predicates);
  thread_ids_.resize(count * 3 * kLanes);
  shared_.resize(SharedBytes() / sizeof(Line) + 1);
  params_ = launch_.params;
  params_.resize(launch_.kernel->param_bytes);
  const size_t local = size_t{code_.local_bytes} * count * kLanes;
  if (local != 0) local_.reset(static_cast<uint8_t*>(std::calloc(local, 1)));
  for (uint32_t i = 0; i < count; ++i) FillContext(memory, i);
}

// Reserved shared memory lies behind the block's own, where a kernel asks for it.
uint64_t Execution::State::SharedBytes() const {
  const uint64_t own = uint64_t{launch_.kernel->static_shared_bytes} + launch_.dynamic_shared_bytes;
  const uint64_t reserved = code_.reserved_shared_bytes;
  return reserved == 0 ? own : (own + 15) / 16 * 16 + reserved;
}

void Execution::State::FillContext(const MemoryMap& memory, uint32_t index) {
  WarpContext& w = warps_[index].context;
  w.frame = reinterpret_cast<uint8_t*>(frames_.get()) + size_t{index} * code_.frame_bytes;
  FillConstants(code_, w.frame);
  w.predicates = predicates_.data() + size_t{index} * code_.predicates;
  w.scratch = reinterpret_cast<uint8_t*>(scratch_);
  w.device_base = memory.base;
  w.device_size = memory.size;
  w.granule_shift = memory.granule_shift;
  w.readable = memory.readable;
  w.writable = memory.writable;
  w.host = memory.host;
  w.shared = reinterpret_cast<uint8_t*>(shared_.data());
  w.static_shared_bytes = launch_.kernel->static_shared_bytes;
  w.reserved_shared_bytes = code_.reserved_shared_bytes;
  w.own_shared_bytes = uint64_t{w.static_shared_bytes} + launch_.dynamic_shared_bytes;
  w.shared_bytes = SharedBytes();
  w.local_bytes = code_.local_bytes;
  w.local = local_.get() + size_t{index} * kLanes * code_.local_bytes;
  w.params = params_.data();
  w.param_bytes = params_.size();
  w.image_address = launch_.image_address;
  w.textures = launch_.textures == nullptr ? nullptr : launch_.textures->data();
  w.texture_count = launch_.textures == nullptr ? 0 : launch_.textures->size();
  w.grid_workspace = launch_.grid_workspace;
  w.warp_id = index;
  w.progress = progress_;
  uint32_t* ids = thread_ids_.data() + size_t{index} * 3 * kLanes;
  for (size_t axis = 0; axis < 3; ++axis) {
    w.tid[axis] = ids + axis * kLanes;
    w.ntid[axis] = launch_.block[axis];
    w.nctaid[axis] = launch_.grid[axis];
  }
  NumberThreads(index, launch_.block, ids);
}

void Execution::State::StartBlock() {
  barriers_.Start(warps_.size());
  // Lanes may have left the block before from inside functions.
  if (!code_.pointers.empty()) std::fill(predicates_.begin(), predicates_.end(), 0);
  warp_ = 0;
  unfinished_ = false;
  for (size_t i = 0; i < warps_.size(); ++i) {
    const size_t left = threads_ - i * kLanes;
    warps_[i].context.predicates[kTruePredicate] = ~0u;
    warps_[i].Start(code_.entry, left >= kLanes ? ~0u : (1u << left) - 1);
    std::copy_n(block_, 3, warps_[i].context.ctaid);
  }
}

Stop Execution::State::Run(const std::function<bool()>& should_yield) {
  if (stop_ != Stop::kYielded) return stop_;
  should_yield_ = &should_yield;
  if (frames_ == nullptr || (code_.local_bytes != 0 && local_ == nullptr)) {
    fault.what = "no host memory for the threads' registers and local memory";
    return stop_ = Stop::kTrap;
  }
  // A program may have left this thread with another rounding mode, or flushing subnormals.
  std::fenv_t environment;
  std::fegetenv(&environment);
  std::fesetenv(FE_DFL_ENV);
  const Stop stop = RunBlocks();
#ifdef TANDEM_PTX_X86
  // Handlers leave the upper halves of vector registers in use, with which code for SSE is slow.
  if (path_ != 0) __asm__ volatile("vzeroupper");
#endif
  std::fesetenv(&environment);
  return stop;
}

Stop Execution::State::RunBlocks() {
  if (!std::exchange(started_, true)) StartBlock();
  for (;;) {
    if (const std::optional<Stop> stop = RunBlock()) return *stop;
    const auto instructions = static_cast<int64_t>(code_.instructions.size() * warps_.size());
    Count(instructions);
    if (alone_ || !NextBlock(launch_.grid, block_)) return stop_ = Stop::kDone;
    StartBlock();
    if (TimeToYield(instructions)) return Stop::kYielded;
  }
}

// Nothing when the block is done.
std::optional<Stop> Execution::State::RunBlock() {
  for (;;) {
    // Every warp runs until it ends, waits or has had its turn; then the barriers are looked at.
    for (; warp_ < warps_.size(); ++warp_) {
      switch (RunWarp(warps_[warp_])) {
        case Event::kParked:
          break;
        case Event::kTurnOver:
          unfinished_ = true;
          break;
        case Event::kYielded:
          return Stop::kYielded;
        case Event::kFault:
          return stop_;
      }
    }
    const bool released = barriers_.LookAtAll(warps_, code_);
    if (!std::exchange(unfinished_, false) && !released) break;
    warp_ = 0;
  }
  const bool stuck =
      std::any_of(warps_.begin(), warps_.end(), [](const Warp& warp) { return warp.live() != 0; });
  if (!stuck) return std::nullopt;
  fault.what = launch_.kernel->name + ": threads wait at a barrier that the rest never reach";
  return stop_ = Stop::kTrap;
}

Execution::Execution(const Launch& launch, const MemoryMap& memory, Path path,
                     const uint32_t* block)
    : state_(std::make_unique<State>(launch, memory, path, block)) {}

Execution::Execution(const Launch& launch, const MemoryMap& memory, Path path) {
  if (launch.cooperative) MakeBlocks(launch, memory, path);
  if (!launch.cooperative) state_ = std::make_unique<State>(launch, memory, path, nullptr);
}

Execution::~Execution() = default;
Execution::Execution(Execution&&) noexcept = default;
Execution& Execution::operator=(Execution&&) noexcept = default;

Stop Execution::Run(const std::function<bool()>& should_yield) {
  return state_ != nullptr ? state_->Run(should_yield) : RunTogether(should_yield);
}

const Fault& Execution::fault() const {
  return state_ != nullptr ? state_->fault : blocks_[turn_].fault();
}

std::string Execution::TakeOutput() {
  std::string output = state_ != nullptr ? state_->printed.Take() : "";
  for (Execution& block : blocks_) output += block.TakeOutput();
  return output;
}

const std::string& Execution::assertions() const {
  return state_ != nullptr ? state_->assertions : blocks_[turn_].assertions();
}

}  // namespace tandem::ptx
