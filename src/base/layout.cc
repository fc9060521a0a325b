#include "src/base/layout.h"

#include <filesystem>
#include <system_error>

namespace tandem {

namespace fs = std::filesystem;

Result<Layout> LayoutOf(const std::string& executable) {
  const fs::path bin = fs::path(executable).parent_path();
  const fs::path lib = bin.parent_path() / "lib";
  std::error_code ignored;
  const fs::path installed = lib / "tandem" / "libtandem.so";
  const Layout layout{bin / "tandemd",
                      fs::exists(installed, ignored) ? installed : lib / "libtandem.so",
                      lib / "tandem" / "soft"};
  for (const std::string& file : {layout.daemon, layout.shim}) {
    if (!fs::exists(file, ignored)) {
      return Error{ErrorCode::kNotFound,
                   file + " is missing: this installation of Tandem is not complete"};
    }
  }
  return layout;
}

Result<Layout> OwnLayout() {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) return Error{ErrorCode::kFailed, "cannot read /proc/self/exe: " + error.message()};
  return LayoutOf(executable);
}

}  // namespace tandem
