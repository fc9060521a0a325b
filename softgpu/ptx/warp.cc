#include "softgpu/ptx/warp.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tandem::ptx {
namespace {

uint64_t LaneOffset(uint32_t lanes) {
  return uint64_t{sizeof(uint32_t)} * std::countr_zero(lanes);  // the first of them
}

}  // namespace

uint32_t ReadLane(const WarpContext& w, uint32_t ref, uint32_t lanes) {
  uint32_t value;
  std::memcpy(&value, w.frame + ref + LaneOffset(lanes), sizeof value);
  return value;
}

uint64_t ReadWideLane(const WarpContext& w, uint32_t ref, uint32_t lanes) {
  uint64_t value;
  std::memcpy(&value, w.frame + ref + 2 * LaneOffset(lanes), sizeof value);
  return value;
}

void WriteLanes(const WarpContext& w, uint32_t ref, uint32_t lanes, uint32_t value) {
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    std::memcpy(w.frame + ref + LaneOffset(rest), &value, sizeof value);
  }
}

void Warp::Start(uint32_t entry, uint32_t lanes) {
  groups_.assign(1, Group{.pc = entry, .mask = lanes});
  live_ = lanes;
  floor_ = loop_ = loops_ = all_loops_ = polls_ = 0;
  forced_ = false;
  std::fill(std::begin(context.stack), std::end(context.stack), 0);
}

void Warp::Add(uint32_t pc, uint32_t mask) {
  groups_.push_back({.pc = pc, .mask = mask});
}

void Warp::Exit(Group* group, uint32_t lanes) {
  group->mask &= ~lanes;
  live_ &= ~lanes;
}

void Warp::EndTurn(uint32_t pc) {
  loops_ = all_loops_ = polls_ = 0;
  if (!alone()) floor_ = pc + 1;
}

// Drops empty groups, and joins those at one place unless a barrier holds them.
void Warp::Merge() {
  std::erase_if(groups_, [](const Group& group) { return group.mask == 0; });
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].wait == Group::Wait::kBarrier) continue;
    for (size_t j = i + 1; j < groups_.size();) {
      const Group& other = groups_[j];
      if (other.pc != groups_[i].pc || other.wait == Group::Wait::kBarrier) {
        ++j;
        continue;
      }
      groups_[i].mask |= other.mask;
      groups_[i].wait = Group::Wait::kNone;
      groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
}

Group* Warp::Pick(uint32_t* limit) {
  *limit = ~0u;
  forced_ = false;
  if (groups_.size() == 1) {
    Group& only = groups_.front();
    if (only.mask == 0 || only.wait == Group::Wait::kBarrier) return nullptr;
    forced_ = only.wait == Group::Wait::kWarp;
    only.wait = Group::Wait::kNone;
    return &only;
  }
  Merge();
  Group* lowest = nullptr;
  Group* preferred = nullptr;
  Group* waiting = nullptr;
  for (Group& group : groups_) {
    if (group.wait == Group::Wait::kBarrier) continue;
    Group*& best = group.wait == Group::Wait::kWarp ? waiting : lowest;
    if (best == nullptr || group.pc < best->pc) best = &group;
    if (group.wait == Group::Wait::kNone && group.pc >= floor_ &&
        (preferred == nullptr || group.pc < preferred->pc)) {
      preferred = &group;
    }
  }
  Group* chosen = preferred != nullptr ? preferred : lowest;
  if (preferred == nullptr) floor_ = 0;
  lowest_ = floor_ == 0 && waiting == nullptr;
  if (chosen == nullptr && waiting != nullptr) {
    chosen = waiting;
    chosen->wait = Group::Wait::kNone;
    forced_ = true;
  }
  if (chosen == nullptr) return nullptr;
  for (const Group& group : groups_) {
    if (&group != chosen && group.wait != Group::Wait::kBarrier && group.pc > chosen->pc) {
      *limit = std::min(*limit, group.pc);
    }
  }
  return chosen;
}

void FillConstants(const Code& code, uint8_t* frame) {
  for (size_t i = 0; i < code.constants.size(); ++i) {
    std::memcpy(frame + code.constant_places[i], &code.constants[i], sizeof(Line));
  }
}

void NumberThreads(uint32_t warp, const uint32_t block[3], uint32_t* ids) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t thread = warp * kLanes + lane;
    ids[lane] = thread % block[0];
    ids[kLanes + lane] = thread / block[0] % block[1];
    ids[2 * kLanes + lane] = thread / block[0] / block[1];
  }
}

bool NextBlock(const uint32_t grid[3], uint32_t block[3]) {
  for (int axis = 0; axis < 3; ++axis) {
    if (++block[axis] < grid[axis]) return true;
    block[axis] = 0;
  }
  return false;
}

}  // namespace tandem::ptx
