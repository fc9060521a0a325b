#include "src/base/user_name.h"

#include <pwd.h>

#include <array>
#include <charconv>

namespace tandem {

std::string UserNameOf(unsigned uid) {
  std::array<char, 16384> room;
  passwd entry{};
  passwd* user = nullptr;
  getpwuid_r(uid, &entry, room.data(), room.size(), &user);
  return user != nullptr ? user->pw_name : std::to_string(uid);
}

Result<unsigned> UserNumberOf(const std::string& text) {
  unsigned number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return number;
  std::array<char, 16384> room;
  passwd entry{};
  passwd* user = nullptr;
  getpwnam_r(text.c_str(), &entry, room.data(), room.size(), &user);
  if (user != nullptr) return user->pw_uid;
  return Error{ErrorCode::kInvalid, "there is no user called \"" + text + "\""};
}

}  // namespace tandem
