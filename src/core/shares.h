// Shares: the parts of a GPU's time that projects, users and sessions get if they do not fit
// together.
//
// Time is divided among projects, a project's among its users, a user's among its sessions. On each
// level, members that want time get it in proportion to their weights. A member with a fraction
// gets that part of its level's time, and the others divide the rest by their weights.
//
// Threading: none. Pure.
#pragma once

#include <map>

#include "src/core/types.h"

namespace tandem::core {

class Shares {
 public:
  void Set(const ShareKey& of, Share share) { shares_[of] = share; }
  void Forget(const ShareKey& of) { shares_.erase(of); }
  // The weight 1 where nothing was said.
  Share Of(const ShareKey& of) const {
    const auto at = shares_.find(of);
    return at == shares_.end() ? Share() : at->second;
  }
  const std::map<ShareKey, Share>& all() const { return shares_; }

 private:
  std::map<ShareKey, Share> shares_;
};

}  // namespace tandem::core
