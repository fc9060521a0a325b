#include "src/serve/token.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "src/base/unique_fd.h"

namespace tandem::serve {
namespace {

constexpr size_t kRandomBytes = 32;
// Of RFC 6750.
constexpr const char* kOfToken =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=";
constexpr size_t kShortest = 16, kLongest = 512;

Error Failed(const std::string& what, const std::string& path) {
  return Error{ErrorCode::kFailed, "cannot " + what + " " + path + ": " + std::strerror(errno)};
}

Result<std::string> Make(const std::string& path, int fd) {
  std::array<unsigned char, kRandomBytes> random;
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return Failed("draw a token for", path);
  }
  std::string token;
  for (const unsigned char byte : random) token += fmt::format("{:02x}", byte);
  const std::string line = token + "\n";
  if (write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    const Error error = Failed("write", path);
    unlink(path.c_str());
    return error;
  }
  return token;
}

Result<std::string> Read(const std::string& path, int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Failed("read", path);
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::kRefused, path + " is no file"};
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return Error{ErrorCode::kRefused, path + " is another user's; name a file of your own"};
  }
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Error{ErrorCode::kRefused, "other users have access to " + path +
                                          ": `chmod 600` it, or delete it for a new "
                                          "token"};
  }
  std::array<char, kLongest + 2> text;
  const ssize_t size = read(fd, text.data(), text.size());
  if (size < 0) return Failed("read", path);
  std::string_view token(text.data(), static_cast<size_t>(size));
  while (token.ends_with('\n') || token.ends_with('\r')) token.remove_suffix(1);
  const bool plain = token.find_first_not_of(kOfToken) == token.npos;
  if (!plain || token.size() < kShortest || token.size() > kLongest) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("{} has no token: it takes {} to {} letters and digits; delete the "
                             "file for a new one",
                             path, kShortest, kLongest)};
  }
  return std::string(token);
}

}  // namespace

Result<std::string> ReadOrMakeToken(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd) return Make(path, fd.get());
  if (errno != EEXIST) return Failed("make", path);
  fd.Reset(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return Failed("read", path);
  return Read(path, fd.get());
}

bool SameToken(std::string_view given, std::string_view token) {
  if (token.empty()) return false;
  size_t different = given.size() ^ token.size();
  for (size_t i = 0; i < given.size(); ++i) {
    different |= static_cast<unsigned char>(given[i] ^ token[i % token.size()]);
  }
  return different == 0;
}

}  // namespace tandem::serve
