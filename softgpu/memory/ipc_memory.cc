#include "softgpu/memory/ipc_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "softgpu/memory/handle_table.h"
#include "src/base/around.h"

namespace tandem::soft {
namespace {

constexpr uint64_t kMemoryMagic = 0x4350'4953'4d44'4e54;  // "TNDMSIPC"
constexpr uint64_t kMaxPieces = uint64_t{1} << 20;

struct MemoryHandle {
  uint64_t magic = kMemoryMagic;
  int32_t pid = 0;
  int32_t fd = -1;  // of the ticket
  uint64_t inode = 0;
  uint64_t number = 0;  // of the block
};
static_assert(sizeof(MemoryHandle) <= sizeof(CUipcMemHandle));

// At the start of a ticket; the pieces follow.
struct Contents {
  CUuuid device = {};
  int64_t store_fd = -1;
  uint64_t store_inode = 0;
  uint64_t offset = 0;  // of the block in its pages
  uint64_t size = 0;
  uint64_t pages = 0;  // bytes
  uint64_t pieces = 0;
};

bool MapPieces(AddressSpace& space, int store, uint64_t address, const std::vector<Range>& pieces) {
  uint64_t mapped = 0;
  for (const Range& piece : pieces) {
    void* window = mmap(nullptr, piece.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                        store, static_cast<off_t>(piece.begin));
    const bool done = window != MAP_FAILED && madvise(window, piece.size, MADV_DONTFORK) == 0 &&
                      space.Map(address + mapped, window, piece.size);
    if (window != MAP_FAILED) munmap(window, piece.size);
    if (!done) {
      if (mapped > 0) space.Unmap(address, mapped);
      return false;
    }
    mapped += piece.size;
  }
  return true;
}

// Null if the system refuses, or the program closed the store's file.
std::unique_ptr<KeptFd> WriteTicket(const Heap::Backing& backing, const CUuuid& device) {
  Contents contents;
  contents.device = device;
  contents.store_fd = backing.store->memory().file().get();
  contents.store_inode = backing.store->memory().file().inode();
  contents.offset = backing.block.address - backing.begin;
  contents.size = backing.block.size;
  for (const Range& piece : *backing.pieces) contents.pages += piece.size;
  contents.pieces = backing.pieces->size();
  UniqueFd fd(memfd_create("tandem-soft-ticket", MFD_CLOEXEC));
  const auto bytes = static_cast<ssize_t>(contents.pieces * sizeof(Range));
  if (!fd || contents.store_fd < 0 ||
      pwrite(fd.get(), &contents, sizeof(contents), 0) != sizeof(contents) ||
      pwrite(fd.get(), backing.pieces->data(), static_cast<size_t>(bytes), sizeof(contents)) !=
          bytes) {
    return nullptr;
  }
  return std::make_unique<KeptFd>(std::move(fd));
}

// What a ticket says; false if it makes no sense.
bool ReadTicket(int fd, Contents* contents, std::vector<Range>* pieces) {
  if (pread(fd, contents, sizeof(*contents), 0) != sizeof(*contents)) return false;
  if (contents->pieces == 0 || contents->pieces > kMaxPieces) return false;
  pieces->resize(contents->pieces);
  const auto bytes = static_cast<ssize_t>(contents->pieces * sizeof(Range));
  if (pread(fd, pieces->data(), static_cast<size_t>(bytes), sizeof(*contents)) != bytes)
    return false;
  uint64_t pages = 0;
  for (const Range& piece : *pieces) {
    if (piece.size == 0 || piece.size % kPageBytes != 0 || piece.begin % kPageBytes != 0)
      return false;
    if (__builtin_add_overflow(pages, piece.size, &pages)) return false;
  }
  return pages == contents->pages && contents->size > 0 && contents->offset < pages &&
         contents->size <= pages - contents->offset;
}

}  // namespace

// Those of blocks that are gone, and those that the program closed.
void IpcMemory::DropStaleTickets() {
  for (auto entry = tickets_.begin(); entry != tickets_.end();) {
    Ticket& ticket = entry->second;
    const auto block = ticket.heap->Find(ticket.address);
    const bool live = block && block->number == entry->first;
    entry = live && ticket.file->get() >= 0 ? std::next(entry) : tickets_.erase(entry);
  }
}

CUresult IpcMemory::Export(const Heap& heap, const CUuuid& device, uint64_t address,
                           CUipcMemHandle* handle) {
  const auto backing = heap.BackingOf(address);
  if (!backing) return CUDA_ERROR_INVALID_VALUE;
  DropStaleTickets();
  Ticket& ticket = tickets_[backing->block.number];
  if (ticket.file == nullptr) {
    ticket = {WriteTicket(*backing, device), &heap, backing->block.address};
    if (ticket.file == nullptr) {
      tickets_.erase(backing->block.number);
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
  }
  MemoryHandle made;
  made.pid = getpid();
  made.fd = ticket.file->get();
  made.inode = ticket.file->inode();
  made.number = backing->block.number;
  *handle = {};
  std::memcpy(handle, &made, sizeof(made));
  return CUDA_SUCCESS;
}

CUresult IpcMemory::Open(const CUipcMemHandle& handle, Owner owner, int opener,
                         const std::function<int(const CUuuid&)>& ordinal_of, uint64_t* address) {
  MemoryHandle named;
  std::memcpy(static_cast<void*>(&named), &handle, sizeof(named));
  if (named.magic != kMemoryMagic || named.pid <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (named.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  for (auto& [known, opened] : opened_) {
    if (opened.pid != named.pid || opened.their_number != named.number) continue;
    if (opened.block.owner != owner) return CUDA_ERROR_ALREADY_MAPPED;
    opened.times += 1;
    *address = known;
    return CUDA_SUCCESS;
  }
  const UniqueFd ticket = OpenKept(named.pid, named.fd, named.inode, O_RDONLY);
  Contents contents;
  std::vector<Range> pieces;
  if (!ticket || !ReadTicket(ticket.get(), &contents, &pieces)) return CUDA_ERROR_MAP_FAILED;
  const int device = ordinal_of(contents.device);
  if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
  const UniqueFd store =
      OpenKept(named.pid, static_cast<int>(contents.store_fd), contents.store_inode, O_RDWR);
  const uint64_t mapped = store ? space_->Reserve(contents.pages) : 0;
  if (mapped == 0) return CUDA_ERROR_MAP_FAILED;
  if (!MapPieces(*space_, store.get(), mapped, pieces)) {
    space_->Free(mapped, contents.pages);
    return CUDA_ERROR_MAP_FAILED;
  }
  Reach reach = ReachOf(device, owner);
  reach.Add(opener, Access::kReadWrite);
  space_->SetReach(mapped, contents.pages, reach);
  Opened opened;
  opened.block = {Range{mapped + contents.offset, contents.size}, owner, NewHandle(), device};
  opened.mapped = mapped;
  opened.mapped_bytes = contents.pages;
  opened.pid = named.pid;
  opened.their_number = named.number;
  *address = opened.block.range.begin;
  opened_.emplace(*address, opened);
  return CUDA_SUCCESS;
}

void IpcMemory::Drop(std::map<uint64_t, Opened>::iterator opened) {
  space_->Unmap(opened->second.mapped, opened->second.mapped_bytes);
  space_->Free(opened->second.mapped, opened->second.mapped_bytes);
  opened_.erase(opened);
}

CUresult IpcMemory::Close(uint64_t address) {
  const auto opened = opened_.find(address);
  if (opened == opened_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--opened->second.times == 0) Drop(opened);
  return CUDA_SUCCESS;
}

void IpcMemory::FreeAll(Owner owner) {
  for (auto opened = opened_.begin(); opened != opened_.end();) {
    const auto next = std::next(opened);
    if (opened->second.block.owner == owner) Drop(opened);
    opened = next;
  }
}

std::optional<IpcMemory::Block> IpcMemory::Find(uint64_t address) const {
  const auto found =
      FindAround(opened_, address, [](const Opened& opened) { return opened.block.range.size; });
  if (found == opened_.end()) return std::nullopt;
  return found->second.block;
}

}  // namespace tandem::soft
