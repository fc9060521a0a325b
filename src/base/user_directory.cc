#include "src/base/user_directory.h"

#include <sys/stat.h>

#include <optional>

namespace tandem {
namespace {

std::optional<uid_t> OwnerOf(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  return info.st_uid;
}

}  // namespace

std::string UserDirectory(uid_t uid, const std::string& root) {
  const std::string number = std::to_string(uid);
  std::string usual = root + "/tmp/tandem-" + number;
  const std::optional<uid_t> owner = OwnerOf(usual);
  const std::string of_login = root + "/run/user/" + number;
  const bool taken = owner.has_value() && *owner != uid;
  return taken && OwnerOf(of_login) == uid ? of_login + "/tandem" : usual;
}

}  // namespace tandem
