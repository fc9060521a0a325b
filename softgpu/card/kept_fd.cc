#include "softgpu/card/kept_fd.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <set>
#include <string>
#include <utility>

#include "src/base/mutex.h"

namespace tandem::soft {
namespace {

struct List {
  Mutex mutex;
  std::set<KeptFd*> kept GUARDED_BY(mutex);
};

// Never destroyed: threads may keep descriptors while the process exits.
List& TheList() {
  static List* const list = new List();
  return *list;
}

}  // namespace

uint64_t InodeOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

KeptFd::KeptFd(UniqueFd fd) : fd_(std::move(fd)), inode_(InodeOf(fd_.get())) {
  MutexLock lock(TheList().mutex);
  TheList().kept.insert(this);
}

KeptFd::~KeptFd() {
  MutexLock lock(TheList().mutex);
  TheList().kept.erase(this);
  Close();
}

void KeptFd::Close() {
  if (get() >= 0) {
    fd_.Reset();
  } else {
    fd_.Release();
  }
}

int KeptFd::get() const {
  return InodeOf(fd_.get()) == inode_ ? fd_.get() : -1;
}

int KeptFd::Duplicate() const {
  const int fd = get();
  return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

void KeptFd::BeforeFork() NO_THREAD_SAFETY_ANALYSIS {
  TheList().mutex.Lock();
}

void KeptFd::AfterFork() NO_THREAD_SAFETY_ANALYSIS {
  TheList().mutex.Unlock();
}

void KeptFd::CloseAll() {
  MutexLock lock(TheList().mutex);
  for (KeptFd* kept : TheList().kept) kept->Close();
}

UniqueFd OpenKept(int pid, int fd, uint64_t inode, int mode) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  UniqueFd opened(open(path.c_str(), mode | O_CLOEXEC));
  if (opened && InodeOf(opened.get()) != inode) opened.Reset();
  return opened;
}

}  // namespace tandem::soft
