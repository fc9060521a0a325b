#include "softgpu/engine/ipc_event.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <utility>

namespace tandem::soft {
namespace {

constexpr uint64_t kEventMagic = 0x5456'4553'4d44'4e54;  // "TNDMSEVT"
constexpr int kPageSeals = F_SEAL_SHRINK | F_SEAL_GROW;

struct EventHandle {
  uint64_t magic = kEventMagic;
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t inode = 0;
};
static_assert(sizeof(EventHandle) <= sizeof(CUipcEventHandle));

// This process's events, by the inodes of their files.
struct Known {
  Mutex mutex;
  std::map<uint64_t, std::weak_ptr<IpcEvent>> events GUARDED_BY(mutex);
};

// Never destroyed: threads may open events while the process exits.
Known& TheKnown() {
  static Known* const known = new Known();
  return *known;
}

}  // namespace

IpcEvent::Page* IpcEvent::Map(int fd) {
  void* page = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, sizeof(Page), MADV_DONTFORK) == 0) return static_cast<Page*>(page);
  munmap(page, sizeof(Page));
  return nullptr;
}

IpcEvent::IpcEvent(UniqueFd fd, Page* page, SharedDevice* device)
    : file_(std::move(fd)), page_(page), device_(device) {}

IpcEvent::~IpcEvent() {
  munmap(page_, sizeof(Page));
}

std::shared_ptr<IpcEvent> IpcEvent::Of(UniqueFd fd, SharedDevice* device) {
  Known& known = TheKnown();
  MutexLock lock(known.mutex);
  std::erase_if(known.events, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<IpcEvent>& place = known.events[InodeOf(fd.get())];
  if (auto event = place.lock()) return event;
  Page* page = Map(fd.get());
  if (page == nullptr) return nullptr;
  std::shared_ptr<IpcEvent> event(new IpcEvent(std::move(fd), page, device));
  place = event;
  return event;
}

std::shared_ptr<IpcEvent> IpcEvent::Create(SharedDevice* device, const CUuuid& uuid) {
  UniqueFd fd(memfd_create("tandem-soft-event", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), sizeof(Page)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kPageSeals) != 0) {
    return nullptr;
  }
  auto event = Of(std::move(fd), device);
  if (event == nullptr) return nullptr;
  event->page_->head = {kEventMagic, uuid};
  return event;
}

CUresult IpcEvent::Open(const CUipcEventHandle& handle, const FindDevice& find,
                        std::shared_ptr<IpcEvent>* event) {
  EventHandle named;
  std::memcpy(static_cast<void*>(&named), &handle, sizeof(named));
  if (named.magic != kEventMagic || named.pid <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (named.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  UniqueFd fd = OpenKept(named.pid, named.fd, named.inode, O_RDWR);
  struct stat info;
  // Sealed: no process can make the page go away.
  if (!fd || fstat(fd.get(), &info) != 0 || info.st_size != sizeof(Page) ||
      (fcntl(fd.get(), F_GET_SEALS) & kPageSeals) != kPageSeals) {
    return CUDA_ERROR_MAP_FAILED;
  }
  Head head;
  if (pread(fd.get(), &head, sizeof(head), 0) != sizeof(head) || head.magic != kEventMagic) {
    return CUDA_ERROR_MAP_FAILED;
  }
  SharedDevice* const device = find(head.device);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *event = Of(std::move(fd), device);
  return *event == nullptr ? CUDA_ERROR_MAP_FAILED : CUDA_SUCCESS;
}

CUresult IpcEvent::Export(CUipcEventHandle* handle) const {
  EventHandle made;
  made.pid = getpid();
  made.fd = file_.get();
  made.inode = file_.inode();
  if (made.fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *handle = {};
  std::memcpy(handle, &made, sizeof(made));
  return CUDA_SUCCESS;
}

IpcEvent::Mark IpcEvent::Announce() {
  const int slot = device_->slot();
  Place& place = page_->places[slot];
  const auto pid = static_cast<uint32_t>(getpid());
  if (place.pid.load() != pid) {
    // Who had the slot before is gone: nothing of its is waited for any more.
    for (auto& reached : place.reached) reached.store(place.announced.load());
    place.pid.store(pid);
  }
  const uint64_t number = place.announced.fetch_add(1) + 1;
  page_->latest.store(static_cast<uint64_t>(slot) << kNumberBits | number);
  return {slot, pid, number};
}

void IpcEvent::Record(const Submit& submit) {
  MutexLock lock(mutex_);
  const Mark mark = Announce();
  Dependency& place = submitted_[mark.number % kRing];
  std::vector<Dependency> after;
  if (place.stream != nullptr) after.push_back(place);
  place = submit(mark, std::move(after));
}

std::optional<Dependency> IpcEvent::TaskOf(const Mark& mark) {
  if (mark.slot != device_->slot() || mark.pid != static_cast<uint32_t>(getpid())) {
    return std::nullopt;
  }
  MutexLock lock(mutex_);
  return submitted_[mark.number % kRing];
}

void IpcEvent::Reach(const Mark& mark) {
  page_->places[mark.slot].reached[mark.number % kRing].store(mark.number);
}

std::optional<IpcEvent::Mark> IpcEvent::Latest() const {
  const uint64_t latest = page_->latest.load();
  if (latest == 0) return std::nullopt;
  const int slot = static_cast<int>(latest >> kNumberBits) % kSlotCount;
  return Mark{slot, page_->places[slot].pid.load(), latest & ((uint64_t{1} << kNumberBits) - 1)};
}

bool IpcEvent::Reached(const Mark& mark) const {
  const Place& place = page_->places[mark.slot];
  return place.reached[mark.number % kRing].load() >= mark.number || place.pid.load() != mark.pid;
}

bool IpcEvent::Abandoned(const Mark& mark) const {
  const bool same = device_->page()->slots[mark.slot].pid.load() == mark.pid;
  return !same || !device_->IsHeld(mark.slot);
}

}  // namespace tandem::soft
