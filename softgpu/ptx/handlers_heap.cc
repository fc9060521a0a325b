// What kernels get from malloc: a heap inside their module's image.
//
// Blocks follow each other, each with a header in front. One that was never used has only zeros: it
// is all the rest. A search begins where the last one ended, and joins free blocks as it passes.
// Kernels may write anything anywhere, so that no header is trusted.
#include "softgpu/ptx/lanes.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

using FaultKind = WarpContext::FaultKind;

constexpr uint64_t kUnit = 16;
constexpr uint64_t kUsed = 0x6465737573736575;

struct Header {
  uint64_t bytes;  // behind it
  uint64_t state;
};

// The heap; in its first unit, where the next search begins.
class Heap {
 public:
  explicit Heap(uint8_t* base) : base_(base) {}

  // The address of a block, 0 when there is none. False: the heap is damaged.
  bool Take(uint64_t bytes, uint64_t* address) {
    *address = 0;
    if (bytes > kHeapBytes) return true;
    bytes = bytes == 0 ? kUnit : (bytes + kUnit - 1) / kUnit * kUnit;
    uint64_t cursor;
    __builtin_memcpy(&cursor, base_, sizeof cursor);
    if (cursor == 0) cursor = kUnit;
    if (!Search(cursor, kHeapBytes, bytes, address)) return false;
    if (*address != 0) return true;
    if (!Search(kUnit, cursor, bytes, address)) return false;
    // The block at the cursor may have been joined with one before it.
    if (*address == 0) SetCursor(kUnit);
    return true;
  }

  // False: `address` is no block that is used.
  bool Give(uint64_t address) {
    const uint64_t at = address - reinterpret_cast<uint64_t>(base_) - sizeof(Header);
    Header header;
    if (at % kUnit != 0 || !Read(at, &header) || header.state != kUsed) return false;
    header.state = 0;
    Write(at, header);
    return true;
  }

 private:
  bool Read(uint64_t at, Header* header) const {
    if (at < kUnit || at > kHeapBytes - sizeof(Header) || at % kUnit != 0) return false;
    __builtin_memcpy(header, base_ + at, sizeof *header);
    const uint64_t most = kHeapBytes - at - sizeof(Header);
    if (header->bytes == 0 && header->state == 0) header->bytes = most;
    return header->bytes <= most && header->bytes % kUnit == 0;
  }
  void Write(uint64_t at, const Header& header) {
    __builtin_memcpy(base_ + at, &header, sizeof header);
  }

  // Among the blocks that begin in [at, end).
  bool Search(uint64_t at, uint64_t end, uint64_t bytes, uint64_t* address) {
    while (at < end) {
      Header header;
      if (!Read(at, &header)) return false;
      uint64_t next = at + sizeof header + header.bytes;
      Header behind;
      while (header.state != kUsed && next < kHeapBytes) {
        if (!Read(next, &behind)) return false;
        if (behind.state == kUsed) break;
        header.bytes += sizeof behind + behind.bytes;
        next = at + sizeof header + header.bytes;
      }
      if (header.state != kUsed && header.bytes >= bytes) {
        Cut(at, header, bytes);
        *address = reinterpret_cast<uint64_t>(base_) + at + sizeof header;
        return true;
      }
      if (header.state != kUsed) Write(at, header);
      at = next;
    }
    return true;
  }

  // Uses `bytes` of a free block; the rest is one of its own, if that is worth it.
  void Cut(uint64_t at, Header header, uint64_t bytes) {
    if (header.bytes >= bytes + sizeof header + kUnit) {
      Write(at + sizeof header + bytes, {header.bytes - bytes - sizeof header, 0});
      header.bytes = bytes;
    }
    header.state = kUsed;
    Write(at, header);
    const uint64_t next = at + sizeof header + header.bytes;
    SetCursor(next < kHeapBytes ? next : kUnit);
  }
  void SetCursor(uint64_t cursor) { __builtin_memcpy(base_, &cursor, sizeof cursor); }

  uint8_t* const base_;
};

// Where the heap lies; null when it is not there.
uint8_t* HeapOf(const WarpContext& w, const Instruction& in) {
  const uint64_t offset = w.image_address + static_cast<uint64_t>(in.imm) - w.device_base;
  if (!GranuleExists(w, offset, true) || !GranuleExists(w, offset + kHeapBytes - 1, true)) {
    return nullptr;
  }
  return reinterpret_cast<uint8_t*>(w.device_base + offset);
}

// Lanes go one after the other, in order.
bool RunMalloc(WarpContext& w, const Instruction& in, uint32_t active) {
  uint8_t* const base = HeapOf(w, in);
  if (base == nullptr) return Fail(w, FaultKind::kIllegal, w.image_address);
  const auto* a = Source<uint64_t>(w, in.a);
  auto* d = Target<uint64_t>(w, in.dst, ~0u);
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    uint64_t address;
    if (!Heap(base).Take(a[i], &address)) return Fail(w, FaultKind::kIllegal, w.image_address);
    d[i] = address;
  }
  return true;
}

bool RunFree(WarpContext& w, const Instruction& in, uint32_t active) {
  uint8_t* const base = HeapOf(w, in);
  if (base == nullptr) return Fail(w, FaultKind::kIllegal, w.image_address);
  const auto* a = Source<uint64_t>(w, in.a);
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    if (a[i] != 0 && !Heap(base).Give(a[i])) return Fail(w, FaultKind::kIllegal, a[i]);
  }
  return true;
}

}  // namespace

Handler SelectHeap(const Selector& s) {
  return s.op == Op::kMalloc ? RunMalloc : s.op == Op::kFree ? RunFree : nullptr;
}

}  // namespace tandem::ptx::TANDEM_PTX_PATH
