// Guest: memory that the program allocates and frees by calls of the driver's (guest.h).
#include "src/shim/os/log.h"
#include "src/shim/program/guest.h"

namespace tandem::shim {

CUresult Guest::Allocate(uint64_t bytes, CUcontext context, CUdeviceptr* pointer) {
  Know(context, false);  // unless it is known
  using Slots = DeviceMemory::Slots;
  if (bytes >= kLargeBlock) return AllocateExtent(bytes, context, pointer);
  if (AllocateFromPage(bytes, context, Slots::kFitting, pointer)) return CUDA_SUCCESS;
  // One thread at a time has a page added: there is room in it for those who wait.
  MutexLock lock(page_mutex_);
  fence_->Step();  // there may be room in what was freed
  if (AllocateFromPage(bytes, context, Slots::kFitting, pointer)) return CUDA_SUCCESS;
  const CUresult result = AllocateExtent(bytes, context, pointer);
  const bool out = result == CUDA_ERROR_OUT_OF_MEMORY;
  if (out && AllocateFromPage(bytes, context, Slots::kAnyLarger, pointer)) return CUDA_SUCCESS;
  return result;
}

bool Guest::AllocateFromPage(uint64_t bytes, CUcontext context, DeviceMemory::Slots slots,
                             CUdeviceptr* pointer) {
  bool backed = false;
  const auto slot = memory_->AllocateFromPage(bytes, context, &backed, slots);
  if (!slot.has_value()) return false;
  *pointer = slot->address;
  // The page may be one that another thread has only just added. A gate that is shut opens when
  // everything is backed.
  if (!backed && vote_.open()) ShutIfMissing();
  return true;
}

CUresult Guest::AllocateExtent(uint64_t bytes, CUcontext context, CUdeviceptr* pointer) {
  const Bytes growth(DeviceMemory::ExtentBytes(bytes));
  if (growth == Bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  Block block;
  const auto add = [&](CUdeviceptr* address) {
    const CUresult result = memory_->AllocateExtent(bytes, context, &block);
    *address = block.address;
    return result;
  };
  const CUresult result = Grow(growth, add, [&] {
    Release(block.address, block.id, true);
    FreePages();  // it may have become one that is kept
    ReapSoon();
  });
  if (result == CUDA_SUCCESS) *pointer = block.address;
  return result;
}

CUresult Guest::Grow(Bytes bytes, const std::function<CUresult(CUdeviceptr*)>& add,
                     const std::function<void()>& remove) {
  fence_->Step();  // what is retired takes room
  if (!link_.Reserve(bytes)) {
    Log(LogLevel::kInfo, "refused %s: %s of %s are in use", FormatBytes(bytes).c_str(),
        FormatBytes(used()).c_str(), FormatBytes(limit()).c_str());
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUdeviceptr address = 0;
  CUresult backed;
  {
    MutexLock lock(extent_mutex_);
    if (add(&address) != CUDA_SUCCESS) {
      Unreserve(bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    backed = BackNow(address);
  }
  if (backed == CUDA_ERROR_OUT_OF_MEMORY) {
    remove();  // rather than shut the gate until the host has room again
    Log(LogLevel::kInfo, "refused %s: the host has no room", FormatBytes(bytes).c_str());
    return backed;
  }
  if (backed != CUDA_SUCCESS) ShutIfMissing();
  return CUDA_SUCCESS;
}

// Work that is let through from now on must find everything backed.
void Guest::ShutIfMissing() {
  bool poisoned = false;
  link_.With([&](client::Lease& lease) { poisoned = lease.poisoned(); });
  if (poisoned || !memory_->IfBacked(false, [this] { vote_.Shut(); })) return;
  link_.With([this](client::Lease& lease) {
    lease.OnShut();
    if (lease.poisoned()) vote_.Open();  // since we looked; nothing else would open it again
  });
  WakeIfConcerned();
}

void Guest::Unreserve(Bytes shrunk) {
  link_.Unreserve(shrunk);
  if (shrunk != Bytes() || memory_->kept() != Bytes()) agent_->ReturnUnusedReservationSoon();
}

// The need has changed. The agent acts on that at once while it restores memory or asks for a
// lease, and where another session waits for bytes that are not needed any more.
void Guest::WakeIfConcerned() {
  const bool opens = !vote_.open() && (link_.holds() || vote_.waiting() != 0);
  if (opens || link_.contended()) agent_->Wake();
}

// Under an open gate and with credit to spare a new extent is backed at once, unless the agent is
// busy with chunks just now.
CUresult Guest::BackNow(CUdeviceptr address) {
  if (!swapper_->mutex().TryLockBriefly()) return CUDA_ERROR_NOT_READY;
  swapper_->Reap();
  Extent* const extent = memory_->FindExtent(address);  // gone with its context, perhaps
  const auto allowed = [&] {
    const Bytes resident = memory_->resident();
    bool fits = false;
    link_.With([&](client::Lease& lease) {
      fits = extent != nullptr && lease.open() && resident + Bytes(extent->bytes) <= lease.credit();
    });
    return fits;
  };
  bool may = allowed();
  if (!may && memory_->retired() != Bytes()) {
    fence_->Step();
    swapper_->Reap();
    may = allowed();
  }
  const bool backed = may && swapper_->BackNew(extent) == CUDA_SUCCESS;
  CUresult result = backed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  if (!backed && extent != nullptr && IsFull()) result = swapper_->ChillNew(extent);
  swapper_->mutex().Unlock();
  return result;
}

// Whether all that a session may have on the card is in use, under an open gate, and it
// oversubscribes: what is new begins on the host then.
bool Guest::IsFull() {
  const std::optional<Bytes> most = link_.most_resident();
  if (!most.has_value()) return false;
  bool full = false;
  link_.With([&](client::Lease& lease) {
    full = lease.open() && *most <= lease.credit() &&
           SaturatingSubtract(*most, memory_->resident()) < chunk_;
  });
  return full;
}

std::optional<CUresult> Guest::Free(CUdeviceptr pointer) {
  const CUcontext known = known_context_.load(std::memory_order_acquire);
  if (!pools_->HaveBlocks() && IsQuiet(known)) {  // nothing to wait for: one look at the table
    if (const std::optional<Bytes> shrunk = memory_->FreeIn(known, pointer)) {
      Freed(*shrunk, true);
      return CUDA_SUCCESS;
    }
  }
  const std::optional<Block> block = memory_->Find(pointer);
  if (!block.has_value() || block->address != pointer) return std::nullopt;
  const auto of_pool = pools_->Find({pointer, block->id});
  if (of_pool.has_value() && of_pool->idle) return std::nullopt;
  CUresult result = Health(block->context);
  // As drivers are seen to, it waits for the work of the context; a capture would be broken by
  // that.
  if (result != CUDA_SUCCESS) return result;
  const bool done = fence_->AllDone();
  const bool waits = !done && !tracker_->MayRefuse();
  if (waits) result = Synchronize(block->context);
  if (result != CUDA_SUCCESS) return result;
  if (waits) fence_->Look();  // so that the next free finds all work done
  pools_->Forget({pointer, block->id});
  // Another context's work may use it, too.
  const bool unused = done || (waits && (tracker_->HasOneContext() || fence_->AllDone()));
  if (!Release(pointer, block->id, unused)) return std::nullopt;  // by another thread meanwhile
  return CUDA_SUCCESS;
}

bool Guest::GiveWay() {
  const bool of_graphs = graphs_.Trim();
  const bool of_drivers = driver_pools_.Trim();
  const bool of_pages = FreePages();
  return pools_->GiveWay(true) || of_graphs || of_drivers || of_pages;
}

// A driver takes memory of cuMemAlloc there, too.
std::optional<CUresult> Guest::FreeInOrder(CUdeviceptr pointer) {
  const std::optional<Block> block = memory_->Find(pointer);
  if (!block.has_value() || block->address != pointer) return std::nullopt;
  if (pools_->Find({pointer, block->id}).has_value()) return std::nullopt;
  const CUresult result = Health(block->context);
  if (result != CUDA_SUCCESS) return result;
  if (!Release(pointer, block->id, fence_->AllDone())) return std::nullopt;
  return CUDA_SUCCESS;
}

// Those that are only kept. Whether there were any.
bool Guest::FreePages() {
  const Bytes freed = memory_->FreePages(0);
  Unreserve(freed);
  return freed != Bytes();
}

bool Guest::Release(CUdeviceptr pointer, uint64_t id, bool unused) {
  const std::optional<Bytes> shrunk = memory_->Free(pointer, id, unused);
  if (!shrunk.has_value()) return false;
  Freed(*shrunk, unused);
  return true;
}

void Guest::Freed(Bytes shrunk, bool unused) {
  Unreserve(shrunk);
  if (!unused || shrunk != Bytes() || memory_->HasDead()) ReapSoon();
}

// Where all work is done nothing is left of the memory afterwards, as with the driver's own.
void Guest::ReapSoon() {
  fence_->Step();
  {
    MutexLock lock(extent_mutex_);
    if (memory_->HasDead() && swapper_->mutex().TryLockBriefly()) {
      swapper_->Reap();
      swapper_->mutex().Unlock();
    }
  }
  if (memory_->HasDead()) {
    agent_->Wake();
  } else {
    WakeIfConcerned();
  }
}

}  // namespace tandem::shim
