#include "src/serve/pages.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

namespace tandem::serve {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLargestFile = 4 << 20;
constexpr size_t kMostFiles = 200;

constexpr const char* kNoPage = R"(<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>Tandem</title>
<h1>Tandem</h1>
<p>The page is not installed. Building it needs npm (Debian: <code>apt install nodejs npm</code>), then
<code>./dev install</code> again.</p>
<p>These work without it: <a href="metrics">metrics</a>, <a href="api/v1/gpus">GPUs</a>,
<a href="api/v1/sessions">sessions</a>, <a href="api/v1/report">report</a>; and <code>tandem top</code>.</p>
</html>
)";

constexpr std::pair<const char*, const char*> kTypes[] = {
    {".html", "text/html; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".svg", "image/svg+xml"},
    {".png", "image/png"},
    {".ico", "image/x-icon"},
    {".json", "application/json"},
    {".webmanifest", "application/manifest+json"},
    {".txt", "text/plain; charset=utf-8"},
    {".woff2", "font/woff2"},
};

const char* TypeOf(const fs::path& file) {
  for (const auto& [ending, type] : kTypes) {
    if (file.extension() == ending) return type;
  }
  return nullptr;
}

std::optional<Answer> ReadFile(const fs::directory_entry& entry) {
  std::error_code error;
  const char* type = TypeOf(entry.path());
  if (type == nullptr || !entry.is_regular_file(error)) return std::nullopt;
  const uintmax_t size = entry.file_size(error);
  if (error || size > kLargestFile) return std::nullopt;
  std::ifstream file(entry.path(), std::ios::binary);
  Answer answer;
  answer.type = type;
  answer.body.assign(std::istreambuf_iterator<char>(file), {});
  return file.good() || file.eof() ? std::optional(std::move(answer)) : std::nullopt;
}

}  // namespace

Pages Pages::Read(const std::string& directory) {
  Pages pages;
  const auto read_folder = [&](const fs::path& folder, const std::string& path, bool lasting) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      std::optional<Answer> answer = ReadFile(*entry);
      if (!answer.has_value() || pages.files_.size() == kMostFiles) continue;
      answer->lasting = lasting;
      pages.files_[path + entry->path().filename().string()] = std::move(*answer);
    }
  };
  read_folder(directory, "/", false);
  read_folder(fs::path(directory) / "assets", "/assets/", true);  // named by what is in them
  if (const auto index = pages.files_.find("/index.html"); index != pages.files_.end()) {
    pages.files_["/"] = index->second;
  } else {
    pages.files_["/"] = {200, "text/html; charset=utf-8", kNoPage, "", false};
  }
  return pages;
}

const Answer* Pages::Find(const std::string& path) const {
  const auto found = files_.find(path);
  return found == files_.end() ? nullptr : &found->second;
}

}  // namespace tandem::serve
