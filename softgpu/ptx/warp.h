// One warp's control state: which lanes are where.
//
// Lanes that run together form a group. Groups at the same place become one; the lowest program
// counter goes first, unless it has been looping for long (it may be spinning on a lock or a flag
// that another lane has to change), when the groups above it get a turn, and then the next warp.
#pragma once

#include <cstdint>
#include <vector>

#include "softgpu/ptx/code.h"

namespace tandem::ptx {

// A register of 32 bits: of the first of `lanes`, and to all of them.
uint32_t ReadLane(const WarpContext& w, uint32_t ref, uint32_t lanes);
uint64_t ReadWideLane(const WarpContext& w, uint32_t ref, uint32_t lanes);  // of 64 bits
void WriteLanes(const WarpContext& w, uint32_t ref, uint32_t lanes, uint32_t value);

struct Group {
  enum class Wait : uint8_t { kNone, kBarrier, kWarp };
  uint32_t pc = 0;
  uint32_t mask = 0;
  Wait wait = Wait::kNone;
  uint8_t barrier = 0;
  uint32_t expected = 0;  // threads that the barrier waits for; 0: all of the block
  uint32_t votes = 0;     // bar.red: lanes whose predicate held
};

class Warp {
 public:
  WarpContext context{};

  void Start(uint32_t entry, uint32_t lanes);

  // The group to run next and the place where it must stop to meet another; null when none can run.
  Group* Pick(uint32_t* limit);
  // Adds a group that may run. Pointers from Pick() end here.
  void Add(uint32_t pc, uint32_t mask);
  // Ends lanes of a group; a group without lanes goes at the next Pick().
  void Exit(Group* group, uint32_t lanes);
  // Counts a back-edge of the group at `pc`; `polls`: of a loop that may wait for other lanes.
  // True: the warp's turn is over.
  bool CountLoop(uint32_t pc, bool polls) {
    if (pc != loop_) loops_ = 0;
    loop_ = pc;
    polls_ += polls ? 1 : 0;
    if (++loops_ < kLoopsPerTurn && ++all_loops_ < kAllLoopsPerTurn && polls_ < kPollsPerTurn) {
      return false;
    }
    EndTurn(pc);
    return true;
  }

  uint32_t live() const { return live_; }
  bool alone() const { return groups_.size() == 1; }
  // Whether the group that Pick() gave may go on at a lower place: it is the lowest that can run
  // anyway, and all that it can meet is at the limit or above.
  bool RunsLowest() const { return alone() || lowest_; }
  // Whether the group that Pick() gave must not wait at bar.warp.sync, since no other lane can
  // come.
  bool forced() const { return forced_; }
  std::vector<Group>& groups() { return groups_; }
  const std::vector<Group>& groups() const { return groups_; }

 private:
  // Large, so that lanes which leave an ordinary loop early still wait for the others behind it.
  // Loops inside others start anew each time, but not for ever.
  static constexpr uint32_t kLoopsPerTurn = 1 << 14;
  static constexpr uint32_t kAllLoopsPerTurn = 1 << 20;
  // Of loops that look for what other lanes do.
  static constexpr uint32_t kPollsPerTurn = 64;

  void Merge();
  void EndTurn(uint32_t pc);

  std::vector<Group> groups_;
  uint32_t live_ = 0;
  uint32_t floor_ = 0;  // prefer groups at or above this place
  // Back-edges since the last turn ended: of the loop that ends at loop_, all, those that poll.
  uint32_t loop_ = 0, loops_ = 0, all_loops_ = 0, polls_ = 0;
  bool forced_ = false;
  bool lowest_ = false;  // see RunsLowest
};

// Puts a kernel's constants into a warp's frame.
void FillConstants(const Code& code, uint8_t* frame);

// %tid of a warp's lanes in a block of that shape: 32 numbers for each axis.
void NumberThreads(uint32_t warp, const uint32_t block[3], uint32_t* ids);

// Goes on to the grid's next block, in order; false after the last.
bool NextBlock(const uint32_t grid[3], uint32_t block[3]);

}  // namespace tandem::ptx
