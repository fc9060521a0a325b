#include "src/cdi/file.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace tandem::cdi {

namespace fs = std::filesystem;

Status WriteSpec(const std::string& file, const std::string& text) {
  const fs::path folder = fs::path(file).parent_path();
  std::error_code error;
  // Runtimes take files that end in .json or .yaml.
  const std::string part = file + ".part";
  if (fs::create_directories(folder, error)) {
    fs::permissions(folder, fs::perms(0755), error);
  }
  std::ofstream stream(part);
  stream << text;
  stream.close();
  if (stream) fs::permissions(part, fs::perms(0644), error);
  if (stream && !error) fs::rename(part, file, error);
  if (stream && !error) return {};
  std::error_code ignored;
  fs::remove(part, ignored);
  return Error{ErrorCode::kFailed,
               "cannot write " + file + (error ? ": " + error.message() : "; are you root?")};
}

}  // namespace tandem::cdi
