// Where what the host's memory has no room for may lie: files, one for each session.
#pragma once

#include <functional>
#include <string>

#include "src/base/bytes.h"
#include "src/base/result.h"
#include "src/base/unique_fd.h"

namespace tandem::service {

struct Spill {
  std::string directory;                        // for people
  Bytes limit = {};                             // of all files together; 0: there are none
  std::function<Bytes()> available = {};        // on the disk, now
  std::function<Result<UniqueFd>()> make = {};  // an empty file that no other process can open
};

}  // namespace tandem::service
