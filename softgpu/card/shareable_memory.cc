#include "softgpu/card/shareable_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <utility>

namespace tandem::soft {
namespace {

constexpr uint64_t kMagic = 0x4d454d53'4d444e54;  // "TNDMSMEM"
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

struct Trailer {
  uint64_t magic = kMagic;
  ShareableMemory::Use use = ShareableMemory::Use::kMemory;
  uint64_t bytes = 0;
  CUuuid device = {};
};

// Mappings made from a window are not inherited by forked children either.
uint8_t* MapWindow(int fd, uint64_t bytes) {
  void* window = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (window == MAP_FAILED) return nullptr;
  if (madvise(window, bytes, MADV_DONTFORK) == 0) return static_cast<uint8_t*>(window);
  munmap(window, bytes);
  return nullptr;
}

}  // namespace

ShareableMemory::ShareableMemory(UniqueFd fd, uint8_t* window, uint64_t size, const CUuuid& device)
    : file_(std::move(fd)), window_(window), size_(size), device_(device) {}

ShareableMemory::~ShareableMemory() {
  munmap(window_, size_);
}

std::shared_ptr<ShareableMemory> ShareableMemory::Create(Use use, uint64_t bytes,
                                                         const CUuuid& device) {
  UniqueFd fd(memfd_create("tandem-soft-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const Trailer trailer = {kMagic, use, bytes, device};
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes + sizeof(trailer))) != 0 ||
      pwrite(fd.get(), &trailer, sizeof(trailer), static_cast<off_t>(bytes)) != sizeof(trailer) ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return nullptr;
  }
  uint8_t* window = MapWindow(fd.get(), bytes);
  if (window == nullptr) return nullptr;
  return std::shared_ptr<ShareableMemory>(
      new ShareableMemory(std::move(fd), window, bytes, device));
}

std::shared_ptr<ShareableMemory> ShareableMemory::Import(Use use, int fd) {
  struct stat info;
  Trailer trailer;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd, &info) != 0) return nullptr;
  const uint64_t bytes = static_cast<uint64_t>(info.st_size) - sizeof(trailer);
  if (info.st_size <= static_cast<off_t>(sizeof(trailer)) || bytes % kPageBytes != 0 ||
      pread(fd, &trailer, sizeof(trailer), static_cast<off_t>(bytes)) != sizeof(trailer) ||
      trailer.magic != kMagic || trailer.use != use || trailer.bytes != bytes) {
    return nullptr;
  }
  UniqueFd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  uint8_t* window = own ? MapWindow(own.get(), bytes) : nullptr;
  if (window == nullptr) return nullptr;
  return std::shared_ptr<ShareableMemory>(
      new ShareableMemory(std::move(own), window, bytes, trailer.device));
}

}  // namespace tandem::soft
