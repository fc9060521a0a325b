#include "src/history/event_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tandem::history {
namespace {

constexpr Duration kRetry = Seconds(1);

Error Failed(const std::string& what) {
  return Error{ErrorCode::kFailed, what + ": " + std::strerror(errno)};
}

// The length of `file` up to the end of its last whole line.
uint64_t WholeLines(int file, uint64_t size) {
  std::array<char, 4096> piece;
  while (size > 0) {
    const uint64_t begin = size > piece.size() ? size - piece.size() : 0;
    const ssize_t read = pread(file, piece.data(), size - begin, static_cast<off_t>(begin));
    if (read <= 0) return size;
    const void* const end = memrchr(piece.data(), '\n', static_cast<size_t>(read));
    if (end != nullptr) {
      return begin + static_cast<uint64_t>(static_cast<const char*>(end) - piece.data()) + 1;
    }
    size = begin;
  }
  return 0;
}

}  // namespace

EventLog::EventLog(EventLogOptions options, std::function<void(const std::string&)> note,
                   std::function<std::string()> head)
    : options_(std::move(options)), note_(std::move(note)), head_(std::move(head)) {}

void EventLog::Append(const std::string& lines, uint64_t count, Instant now) {
  if (lines.empty()) return;
  if (failed_ && now < retry_at_) {
    lost_ += count;
    lost_since_ += count;
    return;
  }
  struct stat info;
  const bool removed = file_ && fstat(file_.get(), &info) == 0 && info.st_nlink == 0;
  if (removed) file_.Reset();
  Status status = file_ ? Status() : Open();
  if (status.ok()) status = MakeRoomFor(lines.size());
  if (status.ok()) status = Write(lines);
  begun_ = true;
  if (!status.ok()) return Fail(status.error(), count, now);
  if (!failed_) return;
  failed_ = false;
  note_("the event log is written again; lines lost: " + std::to_string(lost_since_));
}

void EventLog::Fail(const Error& error, uint64_t lines, Instant now) {
  if (!failed_) {
    lost_since_ = 0;
    note_("the event log is not written: " + error.message);
  }
  failed_ = true;
  retry_at_ = now + kRetry;
  lost_ += lines;
  lost_since_ += lines;
}

Status EventLog::Open() {
  const mode_t mode = options_.everybody_reads ? 0644 : 0600;
  // O_NONBLOCK: a pipe in the place of the file must not stop the daemon.
  UniqueFd file(open(options_.path.c_str(),
                     O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
  if (!file) return Failed(options_.path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return Failed(options_.path);
  if (!S_ISREG(info.st_mode)) {
    return Error{ErrorCode::kFailed, options_.path + " is not a regular file"};
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{ErrorCode::kFailed, options_.path + " is another daemon's"};
  }
  if (info.st_uid == geteuid() && fchmod(file.get(), mode) != 0) return Failed(options_.path);
  size_ = static_cast<uint64_t>(info.st_size);
  const uint64_t whole = WholeLines(file.get(), size_);
  if (whole != size_ && ftruncate(file.get(), static_cast<off_t>(whole)) != 0) {
    return Failed(options_.path);
  }
  size_ = whole;
  file_ = std::move(file);
  return begun_ ? Write(head_()) : Status();
}

Status EventLog::MakeRoomFor(size_t bytes) {
  if (size_ == 0 || size_ + bytes <= options_.most_bytes) return {};
  const auto name = [&](int age) {
    return age == 0 ? options_.path : options_.path + "." + std::to_string(age);
  };
  for (int age = options_.older_files; age > 0; --age) {
    if (rename(name(age - 1).c_str(), name(age).c_str()) != 0 && errno != ENOENT) {
      return Failed(name(age));
    }
  }
  if (options_.older_files == 0 && unlink(options_.path.c_str()) != 0) return Failed(options_.path);
  file_.Reset();
  return Open();
}

Status EventLog::Write(const std::string& lines) {
  size_t done = 0;
  while (done < lines.size()) {
    const ssize_t written = write(file_.get(), lines.data() + done, lines.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const Error error = Failed(options_.path);
      // The part of it that is there goes, or the next line would be added to half a one.
      if (ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) file_.Reset();
      return error;
    }
    done += static_cast<size_t>(written);
  }
  size_ += lines.size();
  return {};
}

}  // namespace tandem::history
