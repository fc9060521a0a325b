#include "src/service/log_rate.h"

#include <algorithm>
#include <utility>

namespace tandem::service {

std::optional<uint64_t> LogRate::Take(unsigned uid, Instant now) {
  if (uid == 0) return 0;
  std::erase_if(users_, [&](const auto& entry) {
    return entry.first != uid && entry.second.full_at <= now && entry.second.left_out == 0;
  });
  User& user = users_[uid];
  const Instant next = std::max(user.full_at, now) + kPause;
  if (next > now + kPause * kBurst) {
    ++user.left_out;
    return std::nullopt;
  }
  user.full_at = next;
  return std::exchange(user.left_out, 0);
}

}  // namespace tandem::service
