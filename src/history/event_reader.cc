#include "src/history/event_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>

#include "src/base/json.h"

namespace tandem::history {
namespace {

using Json = nlohmann::json;

constexpr size_t kBlock = size_t{256} << 10;
constexpr size_t kMostOfLine = size_t{4} << 20;  // longer ones are skipped
constexpr int kMostFiles = 100;

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && stop == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

// Of the monotonic clock; 0 where the line has none.
uint64_t NsOf(std::string_view line) {
  const Json json = ParseJson(line);
  const auto at = json.is_object() ? json.find("ns") : json.end();
  return at != json.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

bool IsCopied(std::string_view line) {
  return line.find("\"event\":\"daemon\"") != std::string_view::npos ||
         line.find("\"event\":\"session\"") != std::string_view::npos;
}

bool Takes(const EventFilter& filter, std::string_view line) {
  if (filter.events.empty() && !filter.session.has_value() && !filter.gpu.has_value()) return true;
  const Json json = ParseJson(line);
  if (!json.is_object()) return false;
  const auto has = [&](const char* key, uint64_t value) {
    const auto at = json.find(key);
    return at != json.end() && at->is_number_unsigned() && at->get<uint64_t>() == value;
  };
  if (!filter.events.empty()) {
    const auto event = json.find("event");
    if (event == json.end() || !event->is_string()) return false;
    if (filter.events.count(event->get<std::string>()) == 0) return false;
  }
  if (filter.gpu.has_value() && !has("gpu", static_cast<uint64_t>(*filter.gpu))) return false;
  if (!filter.session.has_value()) return true;
  return has("session", *filter.session) || has("to", *filter.session);  // hand-overs
}

}  // namespace

std::string LogPlace::Text() const {
  return std::to_string(file) + "-" + std::to_string(offset);
}

std::optional<LogPlace> LogPlace::Parse(const std::string& text) {
  const size_t dash = text.find('-');
  if (dash == std::string::npos) return std::nullopt;
  const auto file = Number(std::string_view(text).substr(0, dash));
  const auto offset = Number(std::string_view(text).substr(dash + 1));
  if (!file.has_value() || !offset.has_value()) return std::nullopt;
  return LogPlace{*file, *offset};
}

Result<EventReader> EventReader::Open(const std::string& path) {
  std::vector<File> files;
  int reason = 0;
  for (int age = 0; age < kMostFiles; ++age) {
    const std::string name = age == 0 ? path : path + "." + std::to_string(age);
    File file;
    file.fd = UniqueFd(open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!file.fd || fstat(file.fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
      if (age == 0) reason = file.fd ? EINVAL : errno;
      if (age > 0) break;
      continue;  // it has just been renamed
    }
    file.inode = info.st_ino;
    file.size = static_cast<uint64_t>(info.st_size);
    const bool again = std::any_of(files.begin(), files.end(),
                                   [&](const File& other) { return other.inode == file.inode; });
    if (!again) files.push_back(std::move(file));
  }
  if (files.empty()) {
    const ErrorCode code = reason == EACCES   ? ErrorCode::kRefused
                           : reason == ENOENT ? ErrorCode::kNotFound
                                              : ErrorCode::kFailed;
    return Error{code, "cannot read the event log " + path + ": " + std::strerror(reason)};
  }
  std::reverse(files.begin(), files.end());
  for (size_t i = 1; i < files.size(); ++i) MeasureHead(files[i - 1], &files[i]);
  return EventReader(std::move(files));
}

// A newer file begins with the lines of the daemon and its sessions, from before its own.
void EventReader::MeasureHead(const File& before, File* file) {
  constexpr uint64_t kTail = 64 << 10;
  std::string last_line;
  VisitFile(before, before.size > kTail ? before.size - kTail : 0,
            [&](std::string_view line, uint64_t) {
              last_line = line;
              return true;
            });
  const uint64_t last = NsOf(last_line);
  VisitFile(*file, 0, [&](std::string_view line, uint64_t end) {
    if (!IsCopied(line) || NsOf(line) > last) return false;
    file->head = end;
    return true;
  });
}

bool EventReader::VisitFile(const File& file, uint64_t offset,
                            const std::function<bool(std::string_view, uint64_t)>& visit) {
  std::string rest;  // of a line that the block cut
  bool skips = false;
  std::vector<char> block(kBlock);
  while (offset < file.size) {
    const uint64_t wanted = std::min<uint64_t>(block.size(), file.size - offset);
    const ssize_t got = pread(file.fd.get(), block.data(), wanted, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    std::string_view text(block.data(), static_cast<size_t>(got));
    uint64_t at = offset;
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      at += end + 1;
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end + 1);
      if (!rest.empty()) {
        rest += line;
        line = rest;
      }
      if (!std::exchange(skips, false) && !line.empty() && !visit(line, at)) return false;
      rest.clear();
    }
    rest += text;
    if (rest.size() > kMostOfLine) {
      rest.clear();
      skips = true;
    }
    offset += static_cast<uint64_t>(got);
  }
  return true;
}

void EventReader::Visit(const std::function<bool(std::string_view)>& visit) const {
  for (const File& file : files_) {
    const auto each = [&](std::string_view line, uint64_t) { return visit(line); };
    if (!VisitFile(file, file.head, each)) return;
  }
}

EventPage EventReader::Newest(const EventFilter& filter, size_t limit) const {
  EventPage page;
  page.next = LogPlace{files_.back().inode, files_.back().head};
  // Blocks from the end, each with twice as much as the one before, until there is enough.
  uint64_t total = 0;
  for (const File& file : files_) total += file.size - file.head;
  for (uint64_t span = kBlock;; span *= 4) {
    span = std::min({span, total, kMostScanned});
    std::deque<std::string> lines;
    uint64_t skip = total - span;
    for (const File& file : files_) {
      const uint64_t own = file.size - file.head;
      const uint64_t here = std::min(skip, own);
      skip -= here;
      bool cut = here > 0 && here < own;  // in the middle of a line, as a rule
      VisitFile(file, file.head + here, [&](std::string_view line, uint64_t end) {
        if (&file == &files_.back()) page.next = LogPlace{file.inode, end};
        if (std::exchange(cut, false) || !Takes(filter, line)) return true;
        lines.emplace_back(line);
        if (lines.size() > limit) lines.pop_front();
        return true;
      });
    }
    if (lines.size() >= limit || span == total || span == kMostScanned) {
      page.lines.assign(lines.begin(), lines.end());
      return page;
    }
  }
}

EventPage EventReader::After(const LogPlace& place, const EventFilter& filter, size_t limit) const {
  EventPage page;
  const auto found = std::find_if(files_.begin(), files_.end(), [&](const File& file) {
    return file.inode == place.file && place.offset <= file.size;
  });
  page.gap = found == files_.end();
  page.next = page.gap ? LogPlace{files_.front().inode, files_.front().head} : place;
  uint64_t scanned = 0;
  for (auto file = page.gap ? files_.begin() : found; file != files_.end(); ++file) {
    const bool first = !page.gap && file == found;
    const uint64_t begin = first ? std::max(place.offset, file->head) : file->head;
    const bool on = VisitFile(*file, begin, [&](std::string_view line, uint64_t end) {
      if (page.lines.size() >= limit || scanned > kMostScanned) return false;
      if (Takes(filter, line)) page.lines.emplace_back(line);
      scanned += line.size() + 1;
      page.next = LogPlace{file->inode, end};
      return true;
    });
    if (!on) break;
  }
  return page;
}

}  // namespace tandem::history
