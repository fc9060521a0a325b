#include "softgpu/card/shared_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "softgpu/card/busy_time.h"
#include "src/base/soft_gpu.h"
#include "src/base/user_directory.h"

namespace tandem::soft {
namespace {

constexpr int kInitByte = kSlotCount;  // of the file: locked while it is being set up

Error Failed(const std::string& what) {
  return Error{ErrorCode::kFailed, what + ": " + std::strerror(errno)};
}

struct flock LockOf(int byte, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

bool TryLock(int fd, int byte) {
  struct flock lock = LockOf(byte, F_WRLCK);
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

void Unlock(int fd, int byte) {
  struct flock lock = LockOf(byte, F_UNLCK);
  fcntl(fd, F_OFD_SETLK, &lock);
}

// Whether another description of the file (a living process, or this one's own mapping) has it.
bool IsLocked(int fd, int byte) {
  struct flock lock = LockOf(byte, F_WRLCK);
  return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool AnybodyThere(int fd) {
  for (int slot = 0; slot < kSlotCount; ++slot) {
    if (IsLocked(fd, slot)) return true;
  }
  return false;
}

bool IsOwners(const struct stat& info, Users users) {
  return info.st_uid == geteuid() || (users == Users::kAll && info.st_uid == 0);
}

Result<UniqueFd> OpenFile(const std::string& path, Users users) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return Failed("cannot open " + path);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return Failed(path);
  const bool open_to_others = (info.st_mode & 077) != 0;
  if (!S_ISREG(info.st_mode) || !IsOwners(info, users) ||
      (users == Users::kThis && open_to_others)) {
    return Error{ErrorCode::kRefused, path + " is not a private file of this user; remove it"};
  }
  if (users == Users::kAll && !open_to_others && fchmod(fd.get(), 0666) != 0) return Failed(path);
  return fd;
}

// Bounded: setting the file up takes microseconds, unless that process was stopped there.
Status LockForSetup(int fd, const std::string& path) {
  for (int attempt = 0; attempt < 500; ++attempt) {
    if (TryLock(fd, kInitByte)) return {};
    const timespec pause = {0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
  return Error{ErrorCode::kUnavailable, path + " is locked by a process that does not go on"};
}

Status CheckHeader(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Failed(path);
  struct {
    uint64_t magic = 0;
    uint32_t version = 0;
    uint32_t page_bytes = 0;
  } header;
  static_assert(sizeof(header) == offsetof(SharedPage, vram_bytes));
  const ssize_t got = pread(fd, &header, sizeof(header), 0);
  if (got != static_cast<ssize_t>(sizeof(header)) || header.magic != kSharedMagic ||
      header.version != kSharedVersion || header.page_bytes != sizeof(SharedPage) ||
      info.st_size != static_cast<off_t>(sizeof(SharedPage))) {
    return Error{ErrorCode::kVersion,
                 path + " is damaged or of another version, and in use; end its users first"};
  }
  return {};
}

// What the file says of a device whose size nothing set; the file need not be a device's.
std::optional<Bytes> KeptVram(int fd, const std::string& path) {
  constexpr size_t kHeaderBytes = offsetof(SharedPage, ledger);
  SharedPage header = {};
  if (!CheckHeader(fd, path).ok()) return std::nullopt;
  const ssize_t got = pread(fd, &header, kHeaderBytes, 0);
  if (got != static_cast<ssize_t>(kHeaderBytes) || header.vram_from_host == 0) return std::nullopt;
  const Bytes vram(header.vram_bytes);
  const bool sensible = vram >= MiB(2) && vram <= kMaxSoftVram;
  return sensible ? std::optional(vram) : std::nullopt;
}

Status Initialise(int fd, const std::string& path, Bytes vram, bool model_clock,
                  VramSource source) {
  if (source == VramSource::kHost) vram = KeptVram(fd, path).value_or(vram);
  if (ftruncate(fd, 0) != 0 || ftruncate(fd, sizeof(SharedPage)) != 0) return Failed(path);
  SharedPage header = {};
  header.magic = kSharedMagic;
  header.version = kSharedVersion;
  header.page_bytes = sizeof(SharedPage);
  header.vram_bytes = vram.count;
  header.model_clock = model_clock ? 1 : 0;
  header.vram_from_host = source == VramSource::kHost ? 1 : 0;
  constexpr size_t kHeaderBytes = offsetof(SharedPage, ledger);
  // posix_fallocate too: a full disk must fail here, not by SIGBUS later.
  if (posix_fallocate(fd, 0, sizeof(SharedPage)) != 0 ||
      pwrite(fd, &header, kHeaderBytes, 0) != static_cast<ssize_t>(kHeaderBytes)) {
    return Failed("cannot write " + path);
  }
  return {};
}

std::optional<int> TakeSlot(int fd) {
  for (int slot = 0; slot < kSlotCount; ++slot) {
    if (TryLock(fd, slot)) return slot;
  }
  return std::nullopt;
}

Result<std::string> CheckDirectory(const std::string& path, Users users) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return Failed(path);
  if (!S_ISDIR(info.st_mode) || !IsOwners(info, users) || (info.st_mode & 022) != 0) {
    return Error{ErrorCode::kRefused, path + " is not a directory that only " +
                                          (users == Users::kAll ? "root" : "this user") +
                                          " may write"};
  }
  return path;
}

}  // namespace

Result<std::string> SharedDirectory(const std::string& configured, Users users) {
  if (!configured.empty()) {
    const bool made = mkdir(configured.c_str(), 0700) == 0;
    if (!made && errno != EEXIST) return Failed("cannot make " + configured);
    // Whatever the umask: the daemon's lets no other user in.
    if (made && users == Users::kAll && chmod(configured.c_str(), 0755) != 0) {
      return Failed("cannot open " + configured + " to all users");
    }
    return CheckDirectory(configured, users);
  }
  const std::string path = UserDirectory(geteuid());
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Failed("cannot make " + path);
  return CheckDirectory(path, users);
}

Result<DeviceUse> LookAt(const std::string& directory, const std::string& name, Bytes vram,
                         VramSource source) {
  const std::string path = directory + "/tandem-soft-" + name;
  DeviceUse use;
  use.total = vram;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd && source == VramSource::kHost) use.total = KeptVram(fd.get(), path).value_or(vram);
  if (!fd || !AnybodyThere(fd.get())) return use;
  TRY(CheckHeader(fd.get(), path));
  void* mapped = mmap(nullptr, sizeof(SharedPage), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) return Failed("cannot map " + path);
  auto* page = static_cast<SharedPage*>(mapped);
  const Ledger ledger(page);
  const Instant now = MonotonicNow();
  use.total = ledger.total();
  for (int slot = 0; slot < kSlotCount; ++slot) {
    if (!IsLocked(fd.get(), slot)) continue;
    const Slot& theirs = page->slots[slot];
    use.processes.push_back({theirs.pid.load(), ledger.held_by(slot), BusyPercent(theirs, now)});
    use.used += use.processes.back().used;
  }
  munmap(mapped, sizeof(SharedPage));
  return use;
}

Result<std::unique_ptr<SharedDevice>> SharedDevice::Open(const std::string& directory,
                                                         const std::string& name, Bytes vram,
                                                         bool model_clock, Users users,
                                                         VramSource source) {
  const std::string path = directory + "/tandem-soft-" + name;
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, users));
  TRY(LockForSetup(fd.get(), path));
  if (AnybodyThere(fd.get())) {
    TRY(CheckHeader(fd.get(), path));
  } else {
    TRY(Initialise(fd.get(), path, vram, model_clock, source));
  }
  const std::optional<int> slot = TakeSlot(fd.get());
  if (!slot) return Error{ErrorCode::kUnavailable, "too many processes use device " + name};
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return Failed(path);
  void* page = mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (page == MAP_FAILED) return Failed("cannot map " + path);
  if (madvise(page, sizeof(SharedPage), MADV_DONTFORK) != 0) return Failed(path);
  Unlock(fd.get(), kInitByte);
  return std::unique_ptr<SharedDevice>(
      new SharedDevice(path, info.st_ino, static_cast<SharedPage*>(page), *slot));
}

SharedDevice::SharedDevice(std::string path, uint64_t inode, SharedPage* page, int slot)
    : path_(std::move(path)), inode_(inode), page_(page), slot_(slot), ledger_(page) {
  ledger_.Claim(slot_);
  for (EngineState& engine : page_->engines) {
    engine.waiting[slot / 64].fetch_and(~(uint64_t{1} << (slot % 64)));
  }
  own().priority.store(0);
  ClearBusyTime(own());
  own().pid.store(static_cast<uint32_t>(getpid()));
}

SharedDevice::~SharedDevice() {
  Return(ledger_.held_by(slot_));
  munmap(page_, sizeof(SharedPage));
}

bool SharedDevice::Charge(Bytes bytes) {
  MutexLock lock(mutex_);
  if (ledger_.Charge(slot_, bytes)) return true;
  ReapDead();
  return ledger_.Charge(slot_, bytes);
}

void SharedDevice::Return(Bytes bytes) {
  MutexLock lock(mutex_);
  ledger_.Return(slot_, bytes);
}

Bytes SharedDevice::Held() {
  MutexLock lock(mutex_);
  return ledger_.held_by(slot_);
}

Bytes SharedDevice::Free() {
  MutexLock lock(mutex_);
  ReapDead();
  return SaturatingSubtract(ledger_.total(), ledger_.used());
}

// Empty if the file was removed or replaced: the end of a process can be seen no more.
UniqueFd SharedDevice::OpenAgain() const {
  UniqueFd fd(open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct stat info;
  if (fd && (fstat(fd.get(), &info) != 0 || info.st_ino != inode_)) fd.Reset();
  return fd;
}

bool SharedDevice::IsHeld(int slot) const {
  const UniqueFd fd = OpenAgain();
  return !fd || IsLocked(fd.get(), slot);
}

void SharedDevice::ReapDead() {
  ledger_.Complete();
  UniqueFd fd;  // opened only when there is a process to ask about
  for (int slot = 0; slot < kSlotCount; ++slot) {
    if (slot == slot_ || ledger_.held_by(slot) == Bytes()) continue;
    if (!fd) fd = OpenAgain();
    if (!fd) return;
    ledger_.Reap(slot, [&](int candidate) { return !IsLocked(fd.get(), candidate); });
  }
}

}  // namespace tandem::soft
