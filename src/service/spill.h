// Where what the host's memory has no room for may lie: files, one for each session.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "src/base/bytes.h"

namespace tandem::service {

// A process has one session on each GPU.
struct SpillOwner {
  int pid = 0;
  int gpu = 0;
  auto operator<=>(const SpillOwner&) const = default;
};

// What the files of each hold.
using SpillSizes = std::map<SpillOwner, Bytes>;

struct Spill {
  std::string directory;                  // for people
  Bytes limit = {};                       // of all files together; 0: there are none
  std::function<Bytes()> available = {};  // on the disk, as it was asked last
  // Asks for an empty file that no other process can open. Service::OnSpillFile brings it to the
  // connection. False: there is none.
  std::function<bool(uint64_t connection, const SpillOwner& owner, unsigned uid, unsigned gid)>
      ask = {};
  std::function<void(int pid)> end = {};  // the process has no use for its files any more
};

}  // namespace tandem::service
