#include "softgpu/card/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace tandem::soft {
namespace {

uint64_t BitmapBytes(uint64_t size) {
  return (size / kPageBytes + 63) / 64 * 8;
}

uint64_t AllBitmapsBytes(uint64_t size, int devices) {
  return 2 * BitmapBytes(size) * (1 + static_cast<uint64_t>(devices));
}

// Makes [from, from + bytes) of a shared mapping appear at `to` as well, and moves its page tables
// there. The kernel puts whole tables elsewhere, so that this takes no time for each page.
bool MoveTables(void* from, void* to, uint64_t bytes) {
  return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to;
}

// The same with page tables that are empty.
bool MapAgain(void* from, void* to, uint64_t bytes) {
  // An old size of zero makes a second mapping of shared memory; no descriptor is needed, so a
  // program that closes all of its descriptors does no harm.
  return mremap(from, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
}

// Kernels before 5.13 move only tables of private memory. They say so after they have unmapped what
// was at the target, so this asks without one.
bool CanMoveTables() {
  const uint64_t page = HostPageBytes();
  void* const from = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (from == MAP_FAILED) return false;
  void* const to = mremap(from, page, page, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
  munmap(from, page);
  if (to != MAP_FAILED) munmap(to, page);
  return to != MAP_FAILED;
}

}  // namespace

void MapLock::LockShared() {
  MutexLock lock(mutex_);
  while (writing_ || writers_waiting_.load() > 0) changed_.Wait(mutex_);
  ++readers_;
}

void MapLock::UnlockShared() {
  MutexLock lock(mutex_);
  if (--readers_ == 0) changed_.NotifyAll();
}

void MapLock::LockExclusive() {
  MutexLock lock(mutex_);
  ++writers_waiting_;
  while (writing_ || readers_ > 0) changed_.Wait(mutex_);
  --writers_waiting_;
  writing_ = true;
}

void MapLock::UnlockExclusive() {
  MutexLock lock(mutex_);
  writing_ = false;
  changed_.NotifyAll();
}

Result<std::unique_ptr<AddressSpace>> AddressSpace::Create(uint64_t bytes, int devices) {
  void* reservation = mmap(nullptr, bytes + kPageBytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reservation == MAP_FAILED) {
    return Error{ErrorCode::kFailed,
                 std::string("cannot reserve device addresses: ") + std::strerror(errno)};
  }
  void* bitmaps = mmap(nullptr, AllBitmapsBytes(bytes, devices), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bitmaps == MAP_FAILED) {
    munmap(reservation, bytes + kPageBytes);
    return Error{ErrorCode::kFailed, "cannot map the bitmaps of device addresses"};
  }
  const uint64_t base = RoundToPages(reinterpret_cast<uint64_t>(reservation));
  return std::unique_ptr<AddressSpace>(new AddressSpace(
      reservation, base, bytes, static_cast<std::atomic<uint64_t>*>(bitmaps), devices));
}

AddressSpace::AddressSpace(void* reservation, uint64_t base, uint64_t size,
                           std::atomic<uint64_t>* bitmaps, int devices)
    : tables_move_(CanMoveTables()),
      reservation_(reservation),
      base_(base),
      size_(size),
      free_(base, size) {
  const uint64_t words = BitmapBytes(size) / sizeof(uint64_t);
  for (int i = 0; i < 1 + devices; ++i, bitmaps += 2 * words) {
    maps_.push_back({bitmaps, bitmaps + words});
  }
}

AddressSpace::~AddressSpace() {
  munmap(reservation_, size_ + kPageBytes);
  munmap(maps_[0].readable, AllBitmapsBytes(size_, static_cast<int>(maps_.size()) - 1));
}

uint64_t AddressSpace::Reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted) {
  if (wanted != 0 && wanted % kPageBytes == 0 && wanted % alignment == 0 &&
      Contains(wanted, bytes) && free_.TakeAt(wanted, bytes)) {
    return wanted;
  }
  return free_.Take(bytes, std::max(alignment, kPageBytes)).value_or(0);
}

void AddressSpace::Free(uint64_t address, uint64_t bytes) {
  if (!free_.Give(address, bytes)) std::abort();
}

bool AddressSpace::Map(uint64_t address, void* backing, uint64_t bytes) {
  if (tables_move_ && MoveTables(backing, PointerAt(address), bytes)) return true;
  if (MapAgain(backing, PointerAt(address), bytes)) return true;
  Unmap(address, bytes);  // the failed call may have left the addresses to any next mmap
  return false;
}

void AddressSpace::ReturnTables(uint64_t address, void* backing, uint64_t bytes) {
  if (!tables_move_ || MoveTables(PointerAt(address), backing, bytes)) return;
  // Without them the next mapping is slower, that is all, unless the failed call took the backing.
  const bool there = msync(backing, bytes, MS_ASYNC) == 0;
  if (!there && !MapAgain(PointerAt(address), backing, bytes)) std::abort();
}

bool AddressSpace::MapHost(uint64_t address, uint64_t bytes) {
  void* mapped = mmap(PointerAt(address), bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (mapped == PointerAt(address)) return true;
  Unmap(address, bytes);
  return false;
}

void AddressSpace::Unmap(uint64_t address, uint64_t bytes) {
  MapLock::Writer writer(map_lock_);
  for (const Bitmaps& map : maps_) {
    SetBits(map.readable, address, bytes, false);
    SetBits(map.writable, address, bytes, false);
  }
  regions_.erase(regions_.lower_bound(address), regions_.lower_bound(address + bytes));
  void* mapped = mmap(PointerAt(address), bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (mapped != PointerAt(address))
    std::abort();  // the range would stay usable behind its owner's back
}

void AddressSpace::SetReach(uint64_t address, uint64_t bytes, const Reach& reach) {
  MapLock::Writer writer(map_lock_);
  const Region region = {bytes, reach};
  regions_.insert_or_assign(address, region);
  Show(address, region);
}

void AddressSpace::Give(const Leave& leave) {
  if (std::ranges::find(leaves_, leave) != leaves_.end()) return;
  MapLock::Writer writer(map_lock_);
  const bool had = HasLeave(leave.device, leave.owner);
  leaves_.push_back(leave);
  if (!had) ShowAllTo(leave.device, leave.owner);
}

void AddressSpace::Take(const Leave& leave) {
  MapLock::Writer writer(map_lock_);
  if (std::erase(leaves_, leave) == 0 || HasLeave(leave.device, leave.owner)) return;
  ShowAllTo(leave.device, leave.owner);
}

void AddressSpace::TakeAll(uint64_t owner) {
  MapLock::Writer writer(map_lock_);
  std::vector<Leave> taken;
  std::erase_if(leaves_, [&](const Leave& leave) {
    if (leave.behalf == owner) taken.push_back(leave);
    return leave.behalf == owner || leave.owner == owner;
  });
  for (const Leave& each : taken) {
    if (!HasLeave(each.device, each.owner)) ShowAllTo(each.device, each.owner);
  }
}

bool AddressSpace::HasLeave(int device, uint64_t owner) const {
  return owner != 0 && std::ranges::any_of(leaves_, [&](const Leave& leave) {
           return leave.device == device && leave.owner == owner;
         });
}

void AddressSpace::Show(uint64_t address, const Region& region) {
  SetBits(maps_[0].readable, address, region.bytes, region.reach.readers != 0);
  SetBits(maps_[0].writable, address, region.bytes, region.reach.writers != 0);
  for (int device = 0; device + 1 < static_cast<int>(maps_.size()); ++device) {
    ShowTo(device, address, region);
  }
}

void AddressSpace::ShowTo(int device, uint64_t address, const Region& region) {
  const Reach& reach = region.reach;
  const bool leave = HasLeave(device, reach.owner);
  const Bitmaps& map = maps_[1 + device];
  SetBits(map.readable, address, region.bytes, leave || (reach.readers >> device & 1) != 0);
  SetBits(map.writable, address, region.bytes, leave || (reach.writers >> device & 1) != 0);
}

void AddressSpace::ShowAllTo(int device, uint64_t owner) {
  for (const auto& [address, region] : regions_) {
    if (region.reach.owner == owner) ShowTo(device, address, region);
  }
}

void AddressSpace::AddHost(uint64_t address, uint64_t bytes, Access access) {
  MapLock::Writer writer(map_lock_);
  const auto place = std::ranges::upper_bound(host_, address, {}, &ptx::HostRange::begin);
  host_.insert(place, {address, address + bytes, access == Access::kReadWrite});
}

void AddressSpace::RemoveHost(uint64_t address) {
  MapLock::Writer writer(map_lock_);
  std::erase_if(host_, [&](const ptx::HostRange& range) { return range.begin == address; });
}

bool AddressSpace::Allows(uint64_t address, uint64_t bytes, Access access) const {
  if (bytes == 0) return true;
  if (!Contains(address, bytes)) return false;
  const Bitmaps& map = maps_[0];
  const std::atomic<uint64_t>* bitmap = access == Access::kReadWrite ? map.writable : map.readable;
  const uint64_t last = (address + bytes - 1 - base_) >> kPageShift;
  for (uint64_t page = (address - base_) >> kPageShift; page <= last; ++page) {
    if ((bitmap[page / 64].load(std::memory_order_relaxed) >> (page % 64) & 1) == 0) return false;
  }
  return true;
}

void AddressSpace::SetBits(std::atomic<uint64_t>* bitmap, uint64_t address, uint64_t bytes,
                           bool value) {
  const uint64_t end = (address + bytes - base_) >> kPageShift;
  for (uint64_t page = (address - base_) >> kPageShift; page < end;) {
    const uint64_t count = std::min(end - page, 64 - page % 64);  // of this word
    const uint64_t bits = (~uint64_t{0} >> (64 - count)) << (page % 64);
    if (value) {
      bitmap[page / 64].fetch_or(bits);
    } else {
      bitmap[page / 64].fetch_and(~bits);
    }
    page += count;
  }
}

}  // namespace tandem::soft
