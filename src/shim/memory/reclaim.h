// Reclaim: memory that is kept without being used gives way to an allocation that finds no room.
//
// Threading: as GiveWay says.
#pragma once

#include "src/base/bytes.h"
#include "src/cuda/driver_types.h"

namespace tandem::shim {

inline bool IsOutOfMemory(bool room) {
  return !room;
}
inline bool IsOutOfMemory(CUresult result) {
  return result == CUDA_ERROR_OUT_OF_MEMORY;
}

// What `attempt` answers, a CUresult or whether there was room. Where memory is out and `give_way`
// has given some back, what a second attempt answers.
template <typename Attempt, typename GiveWay>
auto RetryAfter(GiveWay give_way, Attempt attempt) {
  const auto first = attempt();
  return IsOutOfMemory(first) && give_way() ? attempt() : first;
}

class Reclaim {
 public:
  // Gives back what is kept. Whether there was any. May wait for work.
  virtual bool GiveWay() = 0;
  // Waits for room for memory that cannot be swapped, which FixedMemory counts from then on. False:
  // memory is out.
  virtual bool MakeRoom(Bytes bytes) = 0;

  template <typename Attempt>
  auto Retry(Attempt attempt) {
    return RetryAfter([this] { return GiveWay(); }, attempt);
  }

 protected:
  ~Reclaim() = default;
};

}  // namespace tandem::shim
