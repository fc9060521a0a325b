// HostLimits: how much of the host is promised to what may have to leave the cards of one daemon,
// and the most that may be: first of its memory, then of a file, where there is one.
//
// Threading: none. Pure, but for what it is given to ask how much the host has.
// Invariants
// 1. A promise that Fits keeps the sums within the limits. (What has to be promised in any case may
//    break that of the memory: what was there before the daemon, or an order to suspend.)
// 2. What a session was promised of the memory stays memory until it needs less.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/core/types.h"

namespace tandem::core {

// The most of a session's memory that the host may have to hold at once.
struct HostNeed {
  SessionId id;
  Bytes bytes;
  bool memory_only = false;  // a file will not do
  std::string_view user = {};
};
using HostNeeds = std::vector<HostNeed>;

// Where it is to lie.
struct HostPlace {
  Bytes memory;
  Bytes spilled;
  Bytes total() const { return memory + spilled; }
  HostPlace More(const HostPlace& other) const {
    return {memory + other.memory, spilled + other.spilled};
  }
  HostPlace Less(const HostPlace& other) const {
    return {memory - other.memory, spilled - other.spilled};
  }
};

class HostLimits {
 public:
  // Of the memory. `available`: what the host could give now; only asked where a promise is to
  // grow. Without it the limit alone counts. `measured`: the administrator has not set the limit;
  // it was measured, and grows where there is more later on.
  explicit HostLimits(Bytes limit, std::function<Bytes()> available = {}, bool measured = false)
      : memory_{limit, std::move(available)}, measured_(measured) {}
  // Of the file; none before.
  void AllowSpilling(Bytes limit, std::function<Bytes()> available = {}) {
    file_ = {limit, std::move(available)};
  }
  // From now on a user is promised more only up to kMostOfLeft times what is then left for others,
  // so that newcomers find some, and greedy users have equal parts: the dynamic threshold of
  // Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998. The same of the memory
  // alone, for what no file will do for.
  void ShareAmongUsers() { shared_ = true; }
  static constexpr uint64_t kMostOfLeft = 4;
  // The limit if `available` bytes are available: other programs keep a part.
  static Bytes Measured(Bytes available) { return available - Bytes(available.count / 10); }

  // Whether these sessions of the GPU may have as much promised, or have already, beside what all
  // others have.
  // `user`: for whose sake; bounded by ShareAmongUsers where what this user has would grow.
  bool Fits(int gpu, const HostNeeds& needs, std::string_view user = {});
  // Whether the user may have that much more promised in any case, as it is there already: where
  // users share, up to the most that one could get alone.
  bool MayClaim(Bytes more, std::string_view user) const;
  // From now on these are their promises.
  void Promise(int gpu, const HostNeeds& needs);
  void Forget(int gpu, SessionId id, std::string_view user = {});  // it is gone
  void Raise(Bytes by) { memory_.limit += by; }

  Bytes limit() const { return memory_.limit + file_.limit; }
  Bytes spill_limit() const { return file_.limit; }
  Bytes promised() const { return promised_.total(); }
  Bytes spilled() const { return promised_.spilled; }  // of it
  HostPlace PlaceOf(int gpu, SessionId id) const;
  // To be promised.
  Bytes LeftInMemory();
  Bytes LeftInFile() const;

 private:
  struct Store {
    Bytes limit;
    std::function<Bytes()> available;
  };
  using Places = std::map<std::pair<int, SessionId>, HostPlace>;  // by GPU

  bool KeepsToItsShare(int gpu, const HostNeeds& needs, const Places& places,
                       std::string_view user);
  bool Grows(int gpu, const HostNeeds& needs) const;
  Places Keep(int gpu, const HostNeeds& needs) const;
  bool Grow(int gpu, const HostNeeds& needs, Places* places);
  void Put(int gpu, SessionId id, std::string_view user, const HostPlace& place);

  Store memory_;
  Store file_ = {};
  bool measured_;
  bool shared_ = false;
  Places places_;
  HostPlace promised_;                                     // their sum
  std::map<std::string, HostPlace, std::less<>> of_user_;  // and each user's
};

}  // namespace tandem::core
