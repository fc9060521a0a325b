#include "softgpu/ptx/barriers.h"

#include <algorithm>
#include <bit>

namespace tandem::ptx {

void Barriers::Start(size_t warps) {
  std::fill(std::begin(arrivals_), std::end(arrivals_), 0);
  arrived_.assign(warps, {});
}

bool Barriers::Arrive(std::vector<Warp>& warps, const Code& code, uint32_t warp, uint32_t lanes,
                      uint32_t barrier, uint32_t expected) {
  arrivals_[barrier] +=
      lanes == warps[warp].live() ? kLanes : static_cast<uint32_t>(std::popcount(lanes));
  arrived_[warp][barrier] |= lanes;
  return Look(warps, code, barrier, expected);
}

Barriers::Waiting Barriers::Count(const std::vector<Warp>& warps, uint32_t barrier) const {
  Waiting all;
  for (const Warp& warp : warps) {
    uint32_t lanes = 0;
    for (const Group& group : warp.groups()) {
      if (group.wait != Group::Wait::kBarrier || group.barrier != barrier) continue;
      lanes |= group.mask;
      all.expected = std::max(all.expected, group.expected);
      all.votes += static_cast<uint32_t>(std::popcount(group.votes));
    }
    const uint32_t threads = static_cast<uint32_t>(std::popcount(lanes));
    all.threads += threads;
    all.counted += lanes != 0 && lanes == warp.live() ? kLanes : threads;
    all.everybody &= (warp.live() & ~lanes & ~arrived_[warp.context.warp_id][barrier]) == 0;
  }
  return all;
}

bool Barriers::Look(std::vector<Warp>& warps, const Code& code, uint32_t barrier,
                    uint32_t expected) {
  const Waiting waiting = Count(warps, barrier);
  expected = std::max(expected, waiting.expected);
  const bool complete =
      expected == 0 ? waiting.everybody : waiting.counted + arrivals_[barrier] >= expected;
  if (!complete) return false;
  arrivals_[barrier] = 0;
  for (auto& arrived : arrived_) arrived[barrier] = 0;
  Release(warps, code, barrier, waiting);
  return waiting.threads != 0;
}

// The common case, for speed: all of the block waits at one barrier, as it does for the plain ones.
// False: not that case.
bool Barriers::LookAtOnly(std::vector<Warp>& warps, const Code& code) const {
  const Group* first = nullptr;
  for (const Warp& warp : warps) {
    if (warp.live() == 0) continue;
    const Group& group = warp.groups().front();
    if (first == nullptr) first = &group;
    if (!warp.alone() || group.mask != warp.live() || group.wait != Group::Wait::kBarrier ||
        group.barrier != first->barrier || group.expected != 0 ||
        code.instructions[group.pc].control != Control::kBarrier) {
      return false;
    }
  }
  if (first == nullptr || arrivals_[first->barrier] != 0) return false;
  for (Warp& warp : warps) {
    if (warp.live() == 0) continue;
    Group& group = warp.groups().front();
    group.wait = Group::Wait::kNone;
    ++group.pc;
  }
  return true;
}

bool Barriers::LookAtAll(std::vector<Warp>& warps, const Code& code) {
  if (LookAtOnly(warps, code)) return true;
  uint32_t used = 0;
  for (const Warp& warp : warps) {
    for (const Group& group : warp.groups()) {
      if (group.mask != 0 && group.wait == Group::Wait::kBarrier) used |= 1u << group.barrier;
    }
  }
  bool released = false;
  for (; used != 0; used &= used - 1) {
    released |= Look(warps, code, static_cast<uint32_t>(std::countr_zero(used)));
  }
  return released;
}

void Barriers::Release(std::vector<Warp>& warps, const Code& code, uint32_t barrier,
                       const Waiting& waiting) {
  for (Warp& warp : warps) {
    for (Group& group : warp.groups()) {
      if (group.wait != Group::Wait::kBarrier || group.barrier != barrier) continue;
      const Instruction& in = code.instructions[group.pc];
      if (in.control == Control::kBarrierReduce && in.reduction == Reduction::kPopc) {
        WriteLanes(warp.context, in.dst, group.mask, waiting.votes);
      } else if (in.control == Control::kBarrierReduce) {
        const bool answer =
            in.reduction == Reduction::kAnd ? waiting.votes == waiting.threads : waiting.votes != 0;
        uint32_t& predicate = warp.context.predicates[in.dst];
        predicate = (predicate & ~group.mask) | (answer ? group.mask : 0);
      }
      group.wait = Group::Wait::kNone;
      group.votes = 0;
      ++group.pc;
    }
  }
}

}  // namespace tandem::ptx
