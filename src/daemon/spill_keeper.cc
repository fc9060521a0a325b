#include "src/daemon/spill_keeper.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "src/wire/channel.h"

namespace tandem::daemon {
namespace {

constexpr uint64_t kBlock = 512;  // of st_blocks, everywhere

Error System(const std::string& what) {
  return Error{ErrorCode::kFailed, what + ": " + std::strerror(errno)};
}

// Whether another open file is the same one, as far as the file system tells: only then is a lease
// to write refused.
bool IsOpenElsewhere(const UniqueFd& file) {
  if (fcntl(file.get(), F_SETLEASE, F_WRLCK) != 0) return errno == EAGAIN;
  fcntl(file.get(), F_SETLEASE, F_UNLCK);
  return false;
}

}  // namespace

// It has no name to open it by, and its blocks are free again once no process has it open. It has
// none at first, however long it is.
Result<UniqueFd> SpillKeeper::MakeNameless() const {
  // O_EXCL: nor can a process give it one.
  UniqueFd fd(open(directory_.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (!fd && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    // A file system without unnamed files. A process killed in between leaves the file there.
    std::string path = directory_ + "/tandem-spill-XXXXXX";
    fd = UniqueFd(mkostemp(path.data(), O_CLOEXEC));
    if (fd && unlink(path.c_str()) != 0) return System("cannot remove " + path);
  }
  if (!fd) return System("cannot make a file in " + directory_);
  if (ftruncate(fd.get(), static_cast<off_t>(limit_.count)) != 0) {
    return System("no file of " + FormatBytes(limit_) + " can be made in " + directory_);
  }
  return fd;
}

Status SpillKeeper::Try() const {
  ASSIGN_OR_RETURN(const UniqueFd trial, MakeNameless());
  if (fallocate(trial.get(), FALLOC_FL_KEEP_SIZE, 0, 4096) == 0) return {};
  return System("room for files in " + directory_ + " cannot be reserved");
}

Result<UniqueFd> SpillKeeper::Make(const service::SpillOwner& owner, unsigned uid, unsigned gid) {
  DropUnused();
  const auto of_session = std::count_if(files_.begin(), files_.end(),
                                        [&](const File& each) { return each.owner == owner; });
  const auto of_user = std::count_if(files_.begin(), files_.end(),
                                     [&](const File& each) { return each.uid == uid; });
  if (static_cast<size_t>(of_session) >= kMostOfSession ||
      static_cast<size_t>(of_user) >= kMostOfUser || files_.size() >= kMost) {
    return Error{ErrorCode::kFailed, "process " + std::to_string(owner.pid) + " has " +
                                         std::to_string(of_session) + " spill files, its user " +
                                         std::to_string(of_user)};
  }
  ASSIGN_OR_RETURN(UniqueFd fd, MakeNameless());
  const std::string here = "/proc/self/fd/" + std::to_string(fd.get());
  UniqueFd theirs(open(here.c_str(), O_RDWR | O_CLOEXEC));
  if (!theirs) return System("cannot open a file in " + directory_ + " again");
  if (uid != geteuid() && fchown(fd.get(), uid, gid) != 0) {
    return System("cannot give user " + std::to_string(uid) + " a file in " + directory_);
  }
  for (File& each : files_) each.newest = each.newest && each.owner != owner;
  files_.push_back({std::move(fd), owner, uid});
  return theirs;
}

void SpillKeeper::End(int pid) {
  for (File& each : files_) {
    if (each.owner.pid != pid || each.ended) continue;
    each.ended = true;
    static_cast<void>(ftruncate(each.fd.get(), 0));
  }
  DropUnused();
}

service::SpillSizes SpillKeeper::Look() {
  DropUnused();
  service::SpillSizes sizes;
  for (const File& each : files_) {
    struct stat status {};
    if (fstat(each.fd.get(), &status) != 0) continue;
    if (!each.ended) {
      sizes[each.owner] += Bytes(static_cast<uint64_t>(status.st_blocks) * kBlock);
    } else if (status.st_blocks != 0 || status.st_size != 0) {
      static_cast<void>(ftruncate(each.fd.get(), 0));
    }
  }
  return sizes;
}

void SpillKeeper::DropUnused() {
  std::erase_if(files_, [](const File& each) {
    return (each.ended || !each.newest) && !IsOpenElsewhere(each.fd);
  });
}

Bytes SpillKeeper::Available() const {
  struct statvfs status {};
  if (statvfs(directory_.c_str(), &status) != 0) return {};
  return Bytes(uint64_t{status.f_bavail} * status.f_frsize);
}

namespace {

// Serves one order. `text`: what comes behind the answer.
Result<UniqueFd> Obey(std::optional<SpillKeeper>& keeper, const std::string& packet,
                      std::string* text) {
  SpillOrder order;
  std::memcpy(&order, packet.data(), sizeof(order));
  if (order.what == SpillOrder::kOpen) {
    SpillOpening opening;
    std::memcpy(&opening, packet.data(), sizeof(opening));
    keeper.emplace(packet.substr(sizeof(opening)), Bytes(opening.limit));
    TRY(keeper->Try());
  }
  if (order.what == SpillOrder::kMake) return keeper->Make(order.owner, order.uid, order.gid);
  if (order.what == SpillOrder::kEnd) keeper->End(order.owner.pid);
  if (order.what == SpillOrder::kLook) {
    for (const auto& [owner, bytes] : keeper->Look()) {
      const SpillSize size{owner, bytes.count};
      text->append(reinterpret_cast<const char*>(&size), sizeof(size));
    }
  }
  return UniqueFd();
}

bool Send(SpillAnswer answer, const std::string& text, int file) {
  iovec pieces[] = {{&answer, sizeof(answer)}, {const_cast<char*>(text.data()), text.size()}};
  msghdr header{};
  header.msg_iov = pieces;
  header.msg_iovlen = std::size(pieces);
  wire::FdSpace space{};
  if (file >= 0) wire::AttachFds(header, space, {&file, 1});
  return sendmsg(STDIN_FILENO, &header, MSG_NOSIGNAL) >= 0;
}

}  // namespace

int RunSpillKeeper() {
  std::signal(SIGIO, SIG_IGN);  // a lease that is in the way
  umask(077);
  std::optional<SpillKeeper> keeper;
  std::string packet(kMaxSpillPacket, '\0');
  for (;;) {
    const ssize_t n = recv(STDIN_FILENO, packet.data(), packet.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;  // the daemon has ended
    if (static_cast<size_t>(n) < sizeof(SpillOrder)) return 1;
    std::string text;
    const Result<UniqueFd> file = Obey(keeper, packet.substr(0, static_cast<size_t>(n)), &text);
    if (!keeper.has_value()) return 1;
    if (!file.ok()) text = file.error().message;
    const SpillAnswer answer{keeper->Available().count, keeper->files(), !file.ok()};
    if (!Send(answer, text, file.ok() ? file->get() : -1)) return 1;
  }
}

}  // namespace tandem::daemon
