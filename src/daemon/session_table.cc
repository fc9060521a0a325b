#include "src/daemon/session_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>

#include "src/daemon/process.h"

namespace tandem::daemon {
namespace {

constexpr uint64_t kMagic = 0x6c62615453444e54;  // of the file and its layout
constexpr uint64_t kLayout = 1;

Error SystemError(const std::string& what) {
  return Error{ErrorCode::kFailed, what + ": " + std::strerror(errno)};
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

struct SessionTable::File {
  std::atomic<uint64_t> magic;  // written last
  uint64_t layout;
  char boot[40];
  std::atomic<uint64_t> last_session;
  service::SavedSession entries[kEntries];
};

Result<std::unique_ptr<SessionTable>> SessionTable::Open(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat status {};
  if (!fd || fstat(fd.get(), &status) != 0) return SystemError("cannot open " + path);
  const bool same_size = status.st_size == off_t{sizeof(File)};
  if (!same_size && ftruncate(fd.get(), 0) != 0) return SystemError("cannot empty " + path);
  const int failed = posix_fallocate(fd.get(), 0, sizeof(File));
  if (failed != 0) {
    errno = failed;
    return SystemError("no room for " + path);
  }
  void* const address =
      mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return SystemError("cannot map " + path);
  std::unique_ptr<SessionTable> table(new SessionTable(static_cast<File*>(address)));
  const std::string boot = BootId();
  const File& file = *table->file_;
  table->complete_ = file.magic == kMagic && file.layout == kLayout &&
                     boot == std::string(file.boot, strnlen(file.boot, sizeof(file.boot)));
  if (table->complete_) {
    table->Find();
  } else {
    table->Begin(boot);
  }
  return table;
}

SessionTable::~SessionTable() {
  munmap(file_, sizeof(File));
}

void SessionTable::Begin(const std::string& boot) {
  file_->magic = 0;
  new (file_) File{};
  file_->layout = kLayout;
  boot.copy(file_->boot, sizeof(file_->boot) - 1);
  file_->magic = kMagic;
}

// The process first, then whether it is still the one that is meant.
void SessionTable::Find() {
  for (service::SavedSession& entry : file_->entries) {
    if (entry.id == 0) continue;
    const int pid = static_cast<int>(entry.pid);
    UniqueFd process = OpenProcess(pid);
    if (process && StartTicks(pid) == entry.started_ticks && !HasEnded(process)) {
      found_.push_back(&entry);
      processes_[pid] = std::move(process);
    } else {
      entry.id = 0;
    }
  }
  const auto by_id = [](const auto* a, const auto* b) { return a->id.load() < b->id.load(); };
  std::sort(found_.begin(), found_.end(), by_id);
}

service::SavedSession* SessionTable::Add() {
  for (size_t i = 0; i < kEntries; ++i) {
    service::SavedSession& entry = file_->entries[(next_ + i) % kEntries];
    if (entry.id != 0) continue;
    next_ = (next_ + i + 1) % kEntries;
    return new (&entry) service::SavedSession{};
  }
  return nullptr;
}

std::atomic<uint64_t>& SessionTable::last_session() {
  return file_->last_session;
}

}  // namespace tandem::daemon
