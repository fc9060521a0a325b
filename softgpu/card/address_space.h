// AddressSpace: the device addresses of this process. One large range of host addresses, reserved
// without access; device pointers are addresses in it, so that the interpreter and the copy
// engines use them as they are. Bitmaps, a bit per page, say what may be read and written: two for
// each device, which its kernels heed, and two for copies, which reach whatever any device does.
//
// Threading: the owner serialises what changes it. Engines touch device
// memory only under a MapLock::Reader and only where the bitmaps allow it.
//
// Invariants:
// 1. A set bit means that the page is mapped. Bits change only under MapLock::Writer, so an engine
//    never touches a page that goes away; it finds the bit cleared and reports a fault.
// 2. A writer waits for no more than what an engine does between two checks of WriterWaits().
// 3. Forked children inherit no device memory (its backing says so, see PhysicalStore); the host's
//    page-locked memory they inherit as any other of the program's.
// 4. Page tables follow the memory, where the host's kernel knows how (5.13 and later). A page
//    touched through its backing or an earlier mapping gives no page fault in the next one.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "softgpu/ptx/host_range.h"
#include "src/base/mutex.h"
#include "src/base/ranges.h"
#include "src/base/result.h"

namespace tandem::soft {

inline constexpr uint64_t kPageBytes = uint64_t{2} << 20;  // of device memory
inline constexpr uint32_t kPageShift = 21;

inline constexpr uint64_t RoundToPages(uint64_t bytes) {
  return (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
}

// Of the host's own memory.
inline uint64_t HostPageBytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

inline uint64_t AddressOf(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

// Many readers, or one writer; waiting writers go first.
class MapLock {
 public:
  class Reader {
   public:
    explicit Reader(MapLock& lock) : lock_(lock) { lock_.LockShared(); }
    ~Reader() { lock_.UnlockShared(); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

   private:
    MapLock& lock_;
  };
  class Writer {
   public:
    explicit Writer(MapLock& lock) : lock_(lock) { lock_.LockExclusive(); }
    ~Writer() { lock_.UnlockExclusive(); }
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

   private:
    MapLock& lock_;
  };
  // Readers ask this often, and let go if it is true.
  bool WriterWaits() const { return writers_waiting_.load(std::memory_order_relaxed) > 0; }

 private:
  void LockShared();
  void UnlockShared();
  void LockExclusive();
  void UnlockExclusive();

  Mutex mutex_;
  CondVar changed_;
  int readers_ GUARDED_BY(mutex_) = 0;
  bool writing_ GUARDED_BY(mutex_) = false;
  std::atomic<int> writers_waiting_ = 0;
};

enum class Access { kNone, kRead, kReadWrite };

// Which devices use memory, a bit for each ordinal.
struct Reach {
  uint32_t readers = 0;
  uint32_t writers = 0;
  uint64_t owner = 0;  // who has leave for what this one owns uses it, too; zero: none has

  void Add(int device, Access access) {
    const uint32_t bit = uint32_t{1} << device;
    if (access != Access::kNone) readers |= bit;
    if (access == Access::kReadWrite) writers |= bit;
  }
};
inline constexpr Reach kEveryDevice = {~uint32_t{0}, ~uint32_t{0}, 0};
inline Reach ReachOf(int device, uint64_t owner) {
  Reach reach = {.owner = owner};
  reach.Add(device, Access::kReadWrite);
  return reach;
}

class AddressSpace {
 public:
  static Result<std::unique_ptr<AddressSpace>> Create(uint64_t bytes, int devices = 1);
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  // Addresses without memory. `bytes` a multiple of the page size; `alignment` a power of two;
  // `wanted` is used if it is free. Zero if no room is left.
  uint64_t Reserve(uint64_t bytes, uint64_t alignment = kPageBytes, uint64_t wanted = 0);
  void Free(uint64_t address, uint64_t bytes);

  // Makes the memory at `backing` (a shared mapping of this process) appear at `address` too. No
  // device may touch it before SetReach. False, and nothing is there, if the system refuses.
  // `backing` stays mapped; its page tables move to `address`.
  bool Map(uint64_t address, void* backing, uint64_t bytes);
  // Whether the host's kernel can; else each mapping starts with none.
  bool tables_move() const { return tables_move_; }
  // The page tables move back to `backing`, for the next mapping. Both stay mapped.
  void ReturnTables(uint64_t address, void* backing, uint64_t bytes);
  // Fresh private memory of the host, for page-locked allocations that devices may use.
  bool MapHost(uint64_t address, uint64_t bytes);
  void Unmap(uint64_t address, uint64_t bytes);
  // REQUIRES: access set for any part of the range was set for all of it.
  void SetReach(uint64_t address, uint64_t bytes, const Reach& reach);

  // A device's access to all memory of an owner, now and later, on the owner's behalf.
  struct Leave {
    int device = 0;
    uint64_t owner = 0;
    uint64_t behalf = 0;
    bool operator==(const Leave&) const = default;
  };
  void Give(const Leave& leave);
  void Take(const Leave& leave);
  // Owners come to an end: all leave that was given by or to this one.
  void TakeAll(uint64_t owner);

  // Memory of the program's own, outside the range, that devices may use by its own addresses.
  // REQUIRES: no part of it was added before.
  void AddHost(uint64_t address, uint64_t bytes, Access access);
  void RemoveHost(uint64_t address);
  // Changes only under MapLock::Writer.
  const std::vector<ptx::HostRange>& host() const { return host_; }

  // Whether [address, address + bytes) lies in the range at all.
  bool Contains(uint64_t address, uint64_t bytes = 1) const {
    return address >= base_ && address - base_ < size_ && bytes <= size_ - (address - base_);
  }
  bool Allows(uint64_t address, uint64_t bytes, Access access) const;

  uint64_t base() const { return base_; }
  uint64_t size() const { return size_; }
  const std::atomic<uint64_t>* readable(int device) const { return maps_[1 + device].readable; }
  const std::atomic<uint64_t>* writable(int device) const { return maps_[1 + device].writable; }
  MapLock& map_lock() { return map_lock_; }

 private:
  struct Bitmaps {
    std::atomic<uint64_t>* readable = nullptr;
    std::atomic<uint64_t>* writable = nullptr;
  };
  struct Region {
    uint64_t bytes = 0;
    Reach reach;
  };
  AddressSpace(void* reservation, uint64_t base, uint64_t size, std::atomic<uint64_t>* bitmaps,
               int devices);
  void SetBits(std::atomic<uint64_t>* bitmap, uint64_t address, uint64_t bytes, bool value);
  bool HasLeave(int device, uint64_t owner) const;
  void Show(uint64_t address, const Region& region);
  void ShowTo(int device, uint64_t address, const Region& region);
  // After a device got access to an owner's memory, or lost it.
  void ShowAllTo(int device, uint64_t owner);

  const bool tables_move_;
  void* const reservation_;
  const uint64_t base_;
  const uint64_t size_;
  std::vector<Bitmaps> maps_;           // of copies, then of each device
  std::map<uint64_t, Region> regions_;  // by address
  std::vector<Leave> leaves_;
  std::vector<ptx::HostRange> host_;  // sorted
  RangeAllocator free_;
  MapLock map_lock_;
};

}  // namespace tandem::soft
