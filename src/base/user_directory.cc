#include "src/base/user_directory.h"

#include <sys/stat.h>

#include <optional>
#include <utility>
#include <vector>

namespace tandem {
namespace {

constexpr int kMoreNames = 8;

std::optional<uid_t> OwnerOf(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  return info.st_uid;
}

}  // namespace

std::string UsualUserDirectory(uid_t uid, const std::string& root) {
  return root + "/tmp/tandem-" + std::to_string(uid);
}

std::string UserDirectory(uid_t uid, const std::string& root) {
  const std::string usual = UsualUserDirectory(uid, root);
  const std::string of_login = root + "/run/user/" + std::to_string(uid);
  std::vector<std::string> candidates = {usual};
  if (OwnerOf(of_login) == uid) candidates.push_back(of_login + "/tandem");
  for (int i = 1; i <= kMoreNames; ++i) candidates.push_back(usual + "." + std::to_string(i));
  std::optional<std::string> absent;
  for (std::string& candidate : candidates) {
    const std::optional<uid_t> owner = OwnerOf(candidate);
    if (owner == uid) return candidate;
    if (!owner.has_value() && !absent.has_value()) absent = std::move(candidate);
  }
  return absent.value_or(usual);
}

}  // namespace tandem
