#include "src/shim/swap/host_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/shim/os/log.h"

namespace tandem::shim {
namespace {

constexpr uint64_t kAlignment = 4096;

}  // namespace

HostArena::~HostArena() {
  DropDraft();
  while (!mappings_.empty()) {
    Remove(mappings_.back());
    mappings_.pop_back();
  }
}

// Zero where the host has no more.
uint64_t HostArena::Map(uint64_t bytes) {
  void* const begin =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return 0;
  // A forked child has no use for it, and must not see it; nor must the reader of a core dump.
  madvise(begin, bytes, MADV_DONTFORK);
  madvise(begin, bytes, MADV_DONTDUMP);
  madvise(begin, bytes, MADV_HUGEPAGE);
  return reinterpret_cast<uint64_t>(begin);
}

void HostArena::Add(uint64_t begin, uint64_t bytes) {
  const bool registered = real_->cuMemHostRegister_v2 != nullptr &&
                          real_->cuMemHostRegister_v2(PointerAt(begin), bytes,
                                                      CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  const auto files = std::find_if(mappings_.begin(), mappings_.end(),
                                  [](const Mapping& each) { return each.offset.has_value(); });
  mappings_.insert(files, {begin, bytes, registered, {}, RangeAllocator(begin, bytes), {}, 0, {}});
  made_.memory += Bytes(bytes);
}

bool HostArena::InFile(const std::byte* begin) const {
  const auto address = reinterpret_cast<uint64_t>(begin);
  return std::any_of(mappings_.begin(), mappings_.end(), [address](const Mapping& each) {
    return each.offset.has_value() && address - each.begin < each.bytes;
  });
}

void HostArena::Remove(const Mapping& mapping) {
  const Bytes bytes(mapping.bytes);
  if (mapping.offset.has_value()) {
    file_.Unmap({mapping.begin, *mapping.offset, mapping.bytes});
    made_.file -= bytes;
    return;
  }
  if (mapping.registered) real_->cuMemHostUnregister(PointerAt(mapping.begin));
  munmap(PointerAt(mapping.begin), mapping.bytes);
  made_.memory -= bytes;
}

std::byte* HostArena::TakeMade(uint64_t bytes) {
  for (Mapping& mapping : mappings_) {
    const auto begin = mapping.free.Take(bytes, kAlignment);
    if (!begin.has_value()) continue;
    mapping.used += bytes;
    return static_cast<std::byte*>(PointerAt(*begin));
  }
  return nullptr;
}

uint64_t HostArena::held() const {
  uint64_t sum = 0;
  for (const Mapping& mapping : mappings_) sum += mapping.used != 0 ? mapping.bytes : 0;
  return sum;
}

uint64_t HostArena::used() const {
  uint64_t sum = 0;
  for (const Mapping& mapping : mappings_) sum += mapping.used;
  return sum;
}

// Memory returned only just now is zeroed while the caller waits: that is sooner than mapping more.
std::byte* HostArena::Take(uint64_t bytes) {
  std::byte* slot = TakeMade(bytes);
  while (slot == nullptr && ZeroSome()) slot = TakeMade(bytes);
  if (slot != nullptr) return slot;
  return MapFor(bytes) ? TakeMade(bytes) : nullptr;
}

std::byte* HostArena::TakeToWrite(uint64_t bytes) {
  for (Mapping& mapping : mappings_) {
    std::optional<uint64_t> begin;
    for (Range& range : mapping.dirty) {
      if (range.size < bytes) continue;
      range.size -= bytes;
      begin = range.end();
      break;
    }
    std::erase_if(mapping.dirty, [](const Range& range) { return range.size == 0; });
    if (!begin.has_value()) begin = mapping.free.Take(bytes, kAlignment);
    if (!begin.has_value()) continue;
    mapping.used += bytes;
    return static_cast<std::byte*>(PointerAt(*begin));
  }
  while (ZeroSome()) {  // what is zeroed in part
    if (std::byte* const slot = TakeMade(bytes)) return slot;
  }
  return nullptr;
}

// More than was made ahead, in a hurry. Where the host has not even that, the kernel would end some
// program for it: better that this one waits.
bool HostArena::MapFor(uint64_t bytes) {
  const uint64_t least = std::max(bytes, largest_chunk_);
  const bool for_memory = made_.memory < ahead_.memory;
  if (for_memory && (MapMemory(mapping_bytes_) || MapMemory(least))) return true;
  const Bytes in_file = SaturatingSubtract(std::min(ahead_.file, file_.promised()), made_.file);
  if (in_file != Bytes() && (MapFile(std::max(PieceOf(in_file.count), least)) || MapFile(least))) {
    return true;
  }
  return !for_memory && (MapMemory(mapping_bytes_) || MapMemory(least));
}

bool HostArena::MapMemory(uint64_t size) {
  if (available_() < Bytes(size)) return false;
  const uint64_t begin = Map(size);
  if (begin == 0) return false;
  // The kernel says here that there is no more, and not by ending the program once it writes.
  if (!Populate(begin, size, threads_)) {
    munmap(PointerAt(begin), size);
    return false;
  }
  Add(begin, size);
  return true;
}

bool HostArena::MapFile(uint64_t size) {
  const std::optional<SpillFile::Piece> piece = file_.Map(size);
  if (!piece.has_value()) return false;
  mappings_.push_back(
      {piece->begin, size, false, piece->offset, RangeAllocator(piece->begin, size), {}, 0, {}});
  made_.file += Bytes(size);
  return true;
}

void HostArena::Return(std::byte* begin, uint64_t bytes, Instant now) {
  const auto address = reinterpret_cast<uint64_t>(begin);
  for (Mapping& mapping : mappings_) {
    if (address < mapping.begin || address - mapping.begin >= mapping.bytes) continue;
    mapping.dirty.push_back({address, bytes});
    mapping.used -= bytes;
    mapping.unused_since = now;
    return;
  }
}

bool HostArena::ZeroSome() {
  for (Mapping& mapping : mappings_) {
    if (mapping.dirty.empty()) continue;
    Range& range = mapping.dirty.back();
    const uint64_t size = std::min(kStep, range.size);
    range.size -= size;
    const uint64_t begin = range.end();
    if (range.size == 0) mapping.dirty.pop_back();
    if (!mapping.offset.has_value()) {
      std::memset(PointerAt(begin), 0, size);
    } else if (!file_.Zero({begin, *mapping.offset + (begin - mapping.begin), size})) {
      return true;  // not to be used any more, but with the whole mapping it goes
    }
    return mapping.free.Give(begin, size);
  }
  return false;
}

bool HostArena::HasReturned() const {
  return std::any_of(mappings_.begin(), mappings_.end(),
                     [](const Mapping& mapping) { return !mapping.dirty.empty(); });
}

bool HostArena::PrepareSome(const HostShare& ahead) {
  ahead_ = ahead;
  return ZeroSome() || GrowSome();
}

void HostArena::DropDraft() {
  if (draft_.has_value()) munmap(PointerAt(draft_->begin), draft_->bytes);
  draft_.reset();
}

bool HostArena::GrowSome() {
  const Bytes memory = SaturatingSubtract(ahead_.memory, made_.memory);
  const Bytes file = SaturatingSubtract(ahead_.file, made_.file);
  if (memory == Bytes()) DropDraft();
  if (short_ || memory + file == Bytes()) return false;
  if (memory != Bytes()) {
    short_ = draft_.has_value() ? !PopulateDraft() : !Begin(memory.count);
  } else {
    short_ = !MapFile(PieceOf(file.count));
  }
  if (short_ && !std::exchange(told_, true)) {
    Log(LogLevel::kWarn,
        "the host has no memory left to make %s ready for what may have to leave the card: "
        "programs may have to wait for each other longer than usual",
        FormatBytes(memory + file).c_str());
  }
  return !short_;
}

// What to map of what is lacking.
uint64_t HostArena::PieceOf(uint64_t lacking) const {
  const uint64_t chunks = (lacking + largest_chunk_ - 1) / largest_chunk_;
  return std::min(chunks * largest_chunk_, mapping_bytes_);
}

bool HostArena::Begin(uint64_t lacking) {
  const uint64_t size = PieceOf(lacking);
  if (available_() < Bytes(size)) return false;
  const uint64_t begin = Map(size);
  if (begin == 0) return false;
  draft_ = Draft{begin, size, 0};
  return true;
}

bool HostArena::PopulateDraft() {
  const uint64_t most = threads_ > 1 ? threads_ * kStepOfThread : kStep;
  const uint64_t step = std::min(most, draft_->bytes - draft_->populated);
  const Draft draft = *draft_;
  if (!Populate(draft.begin + draft.populated, step, threads_)) {
    DropDraft();
    return false;
  }
  draft_->populated += step;
  if (draft_->populated < draft.bytes) return true;
  draft_.reset();
  Add(draft.begin, draft.bytes);
  return true;
}

void HostArena::Trim(Instant now, Duration age, const HostShare& ahead) {
  short_ = false;
  ahead_ = ahead;
  std::erase_if(mappings_, [&](Mapping& mapping) {
    if (mapping.used != 0 || now - mapping.unused_since < age) return false;
    const bool in_file = mapping.offset.has_value();
    const Bytes made = in_file ? made_.file : made_.memory;
    if (made < (in_file ? ahead.file : ahead.memory) + Bytes(mapping.bytes)) {
      mapping.unused_since = now;  // what may be needed counts as used
      return false;
    }
    Remove(mapping);
    return true;
  });
}

void HostArena::Unregister() {
  for (Mapping& mapping : mappings_) {
    if (mapping.registered) real_->cuMemHostUnregister(PointerAt(mapping.begin));
    mapping.registered = false;
  }
}

}  // namespace tandem::shim
