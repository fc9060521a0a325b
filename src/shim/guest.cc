#include "src/shim/guest.h"

#include <functional>

#include "src/shim/log.h"

namespace tandem::shim {

Guest::Guest(const cuda::RealDriver* real, Gate* gate, WorkTracker* tracker, CUdevice device,
             const Identity& identity)
    : real_(real), vote_(gate, device), tracker_(tracker), device_(device), link_(identity) {}

Guest::~Guest() {
  if (agent_ == nullptr) return;
  agent_->Stop();
  link_.Retire();
}

namespace {

// What swapping cannot do without.
bool CanSwap(const cuda::RealDriver& real, CUdevice device) {
  int supported = 0;
  return real.cuMemAddressReserve != nullptr && real.cuMemCreate != nullptr &&
         real.cuMemRelease != nullptr && real.cuMemMap != nullptr && real.cuMemUnmap != nullptr &&
         real.cuMemSetAccess != nullptr && real.cuMemGetAllocationGranularity != nullptr &&
         real.cuStreamGetCtx != nullptr &&
         real.cuDeviceGetAttribute(&supported,
                                   CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                   device) == CUDA_SUCCESS &&
         supported != 0;
}

}  // namespace

Result<std::unique_ptr<Guest>> Guest::Open(const cuda::RealDriver* real, Gate* gate,
                                           WorkTracker* tracker, CUdevice device,
                                           const Identity& identity) {
  if (!CanSwap(*real, device)) {
    return Error{ErrorCode::kUnsupported,
                 "this GPU or its driver has no virtual memory management"};
  }
  std::unique_ptr<Guest> guest(new Guest(real, gate, tracker, device, identity));
  ASSIGN_OR_RETURN(const Terms terms, guest->link_.Register(Bytes()));
  // Addresses are cheap; twice the card leaves room for holes between blocks.
  guest->memory_ = std::make_unique<DeviceMemory>(real, Bytes(terms.card.count * 2), terms.chunk);
  guest->pools_ = std::make_unique<StreamPools>(real, device, guest->PoolSource());
  guest->swapper_ = std::make_unique<Swapper>(real, device, guest->memory_.get(), terms.chunk);
  guest->vmm_ =
      std::make_unique<VmmMemory>(real, device, guest->memory_.get(), guest->swapper_.get(),
                                  &guest->fixed_, guest->VmmSource());
  guest->fence_ = std::make_unique<FreeFence>(
      real, device, tracker, guest->memory_.get(),
      [guest = guest.get()](Bytes shrunk) { guest->Unreserve(shrunk); });
  guest->offers_ = std::make_unique<MemoryOffers>(guest->OfferParts());
  const AgentParts parts{real,
                         device,
                         &guest->link_,
                         &guest->vote_,
                         tracker,
                         guest->memory_.get(),
                         guest->fence_.get(),
                         guest->swapper_.get(),
                         guest->offers_.get()};
  guest->agent_ = std::make_unique<Agent>(parts);
  guest->vote_.Shut();
  if (!guest->agent_->Start()) {
    guest->vote_.Open();
    guest->agent_.reset();
    return Error{ErrorCode::kFailed, "no thread can be started"};
  }
  Log(LogLevel::kInfo, "sharing the GPU: %s of memory", FormatBytes(terms.limit).c_str());
  return guest;
}

StreamPools::Source Guest::PoolSource() {
  return {[this](uint64_t bytes, CUcontext context, StreamPools::BlockName* block) {
            CUresult result = Allocate(bytes, context, &block->pointer);
            if (result == CUDA_ERROR_OUT_OF_MEMORY && (FreePages() || graphs_.Trim())) {
              result = Allocate(bytes, context, &block->pointer);
            }
            const std::optional<Block> made = memory_->Find(block->pointer);
            if (result == CUDA_SUCCESS && made.has_value()) block->id = made->id;
            return result;
          },
          [this](const StreamPools::BlockName& block) { Release(block.pointer, block.id, true); }};
}

VmmMemory::Source Guest::VmmSource() {
  return {[this](uint64_t bytes, const std::function<CUresult(Run**)>& add) {
            return Grow(Bytes(bytes), [&](CUdeviceptr* address) {
              Run* run = nullptr;
              const CUresult result = add(&run);
              if (result == CUDA_SUCCESS) *address = run->address;
              return result;
            });
          },
          [this](Bytes shrunk) {
            Unreserve(shrunk);
            WakeIfConcerned();
          },
          [this] { return GiveWay(); }};
}

MemoryOffers::Parts Guest::OfferParts() {
  MutexLock lock(swapper_->mutex());
  swapper_->OnSharedGone([this](const Run& run)
                             NO_THREAD_SAFETY_ANALYSIS { offers_->OnGone(run); });
  return {real_,
          device_,
          &link_,
          memory_.get(),
          swapper_.get(),
          &fixed_,
          [this](Bytes bytes) { return MakeRoom(bytes); },
          [this](Bytes bytes) {
            Unreserve(bytes);
            ReapSoon();
          },
          [this](const AloneJob::Job& job) { return agent_->RunAlone(job); }};
}

void Guest::AbandonInChild() {
  link_.AbandonInChild();
  agent_->AbandonInChild();
}

void Guest::Know(CUcontext context, bool credited) {
  if (known_context_.load(std::memory_order_acquire) == context) return;
  tracker_->AddContext(context);
  {
    MutexLock lock(contexts_mutex_);
    known_context_.store(context, std::memory_order_release);
    const auto [entry, added] = contexts_.try_emplace(context, credited);
    if (!added) return;
  }
  bool healed = false;
  {
    MutexLock lock(swapper_->mutex());
    if (swapper_->context() == nullptr) {
      swapper_->UseContext(context);
      swapper_->Expose();  // what was given up for lost may be written anew, under an open gate
    }
    link_.With([&](client::Lease& lease) {
      healed = lease.poisoned();
      lease.OnHealed();
    });
    if (healed) vote_.Shut();  // it was open without a lease, for contexts that can do nothing
  }
  if (healed) agent_->Wake();
}

bool Guest::Has(CUcontext context) const {
  MutexLock lock(contexts_mutex_);
  return contexts_.count(context) != 0;
}

bool Guest::ContextEnds(CUcontext context) {
  const bool broken = IsSticky(Synchronize(context));  // which the agent need not have seen
  pools_->ContextEnds(context);
  tracker_->RemoveContext(context);
  Unreserve(memory_->FreeContext(context));
  bool credited = false;
  {
    MutexLock lock(contexts_mutex_);
    if (const auto known = contexts_.find(context); known != contexts_.end()) {
      credited = known->second;
      known_context_.store(nullptr, std::memory_order_release);
      contexts_.erase(known);
    }
  }
  const CUcontext other = tracker_->AnyContext(device_);
  {
    MutexLock lock(swapper_->mutex());
    swapper_->Reap();
    if (swapper_->context() == context) swapper_->UseContext(other);
    if (broken && swapper_->context() == nullptr) swapper_->LoseUncopied();
  }
  agent_->Wake();
  return credited;
}

void Guest::SetPeer(CUcontext context, bool reaches) {
  CUdevice peer = device_;
  CUcontext user = nullptr;
  if (!Has(context) || real_->cuCtxGetDevice(&peer) != CUDA_SUCCESS || peer == device_) return;
  if (real_->cuCtxGetCurrent(&user) != CUDA_SUCCESS) return;
  MutexLock lock(peers_mutex_);
  std::set<Leave>& leave = peers_[peer];
  const bool reached = !leave.empty();
  if (reaches) {
    leave.insert({context, user});
  } else {
    leave.erase({context, user});
  }
  if (reached == leave.empty()) LetReach(peer, reaches);
}

void Guest::PeerEnds(CUcontext context) {
  MutexLock lock(peers_mutex_);
  for (auto& [peer, leave] : peers_) {
    const auto ends = [context](const Leave& each) {
      return each.first == context || each.second == context;
    };
    if (std::erase_if(leave, ends) != 0 && leave.empty()) LetReach(peer, false);
  }
}

void Guest::LetReach(CUdevice peer, bool reaches) {
  MutexLock swap_lock(swapper_->mutex());
  if (const CUresult result = swapper_->SetPeer(peer, reaches); result != CUDA_SUCCESS) {
    Log(LogLevel::kWarn, "device %d cannot be let at the memory of device %d: error %d", peer,
        device_, static_cast<int>(result));
  }
}

CUresult Guest::Synchronize(CUcontext context) {
  CUresult result = real_->cuCtxPushCurrent_v2(context);
  if (result != CUDA_SUCCESS) return result;
  result = real_->cuCtxSynchronize();
  CUcontext popped = nullptr;
  real_->cuCtxPopCurrent_v2(&popped);
  return result;
}

CUresult Guest::Health(CUcontext context) {
  const bool known = known_context_.load(std::memory_order_acquire) == context;
  if (known && !tracker_->MayRefuse() && fence_->AllDone()) return CUDA_SUCCESS;
  CUresult result = real_->cuCtxPushCurrent_v2(context);
  if (result != CUDA_SUCCESS) return result;
  result = tracker_->Health(context);
  CUcontext popped = nullptr;
  real_->cuCtxPopCurrent_v2(&popped);
  return result;
}

CUresult Guest::Allocate(uint64_t bytes, CUcontext context, CUdeviceptr* pointer) {
  Know(context, false);  // unless it is known
  bool backed = false;
  std::optional<Block> slot = memory_->AllocateFromPage(bytes, context, &backed);
  if (!slot.has_value() && bytes < kLargeBlock && fence_->Step() == CUDA_SUCCESS) {
    slot = memory_->AllocateFromPage(bytes, context, &backed);  // of what was freed
  }
  if (slot.has_value()) {
    *pointer = slot->address;
    // The page may be one that another thread has only just added. A gate that is shut opens when
    // everything is backed.
    if (!backed && vote_.open()) ShutIfMissing();
    return CUDA_SUCCESS;
  }
  const Bytes growth(DeviceMemory::RunBytes(bytes));
  if (growth == Bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  return Grow(growth, [&](CUdeviceptr* address) {
    Block block;
    const CUresult result = memory_->AllocateRun(bytes, context, &block);
    *address = block.address;
    if (result == CUDA_SUCCESS) *pointer = block.address;
    return result;
  });
}

CUresult Guest::Grow(Bytes bytes, const std::function<CUresult(CUdeviceptr*)>& add) {
  fence_->Step();  // what is retired takes room
  if (!link_.Reserve(bytes)) {
    Log(LogLevel::kInfo, "refused %s: %s of %s are in use", FormatBytes(bytes).c_str(),
        FormatBytes(used()).c_str(), FormatBytes(limit()).c_str());
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUdeviceptr address = 0;
  if (add(&address) != CUDA_SUCCESS) {
    Unreserve(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!BackNow(address)) ShutIfMissing();
  return CUDA_SUCCESS;
}

// Work that is let through from now on must find everything backed.
void Guest::ShutIfMissing() {
  bool poisoned = false;
  link_.With([&](client::Lease& lease) { poisoned = lease.poisoned(); });
  if (poisoned || !memory_->IfBacked(false, [this] { vote_.Shut(); })) return;
  link_.With([this](client::Lease& lease) {
    lease.OnShut();
    if (lease.poisoned()) vote_.Open();  // since we looked; nobody else would open it again
  });
  WakeIfConcerned();
}

void Guest::Unreserve(Bytes shrunk) {
  link_.Unreserve(shrunk);
  if (shrunk != Bytes() || memory_->kept() != Bytes()) agent_->SettleSoon();
}

// What is needed has changed. The agent does something about that at once while it brings memory in
// or asks for a lease, and where somebody else waits for what is not needed any more.
void Guest::WakeIfConcerned() {
  const bool opens = !vote_.open() && (link_.holds() || vote_.waiting() != 0);
  if (opens || link_.contended()) agent_->Wake();
}

// Under an open gate and with credit to spare a new run is backed at once, unless the agent is busy
// with chunks just now.
bool Guest::BackNow(CUdeviceptr address) {
  if (!swapper_->mutex().TryLockBriefly()) return false;
  swapper_->Reap();
  Run* const run = memory_->FindRun(address);  // gone with its context, perhaps
  const auto allowed = [&] {
    const Bytes resident = memory_->resident();
    bool fits = false;
    link_.With([&](client::Lease& lease) {
      fits = run != nullptr && lease.open() && resident + Bytes(run->bytes) <= lease.credit();
    });
    return fits;
  };
  bool backed = allowed();
  if (!backed && memory_->retired() != Bytes()) {
    fence_->Step();
    swapper_->Reap();
    backed = allowed();
  }
  backed = backed && swapper_->BackNew(run) == CUDA_SUCCESS;
  swapper_->mutex().Unlock();
  return backed;
}

bool Guest::Free(CUdeviceptr pointer, CUresult* result) {
  const std::optional<Block> block = memory_->Find(pointer);
  if (!block.has_value() || block->address != pointer) return false;
  const auto of_pool = pools_->Find({pointer, block->id});
  if (of_pool.has_value() && of_pool->idle) return false;
  *result = Health(block->context);
  // As drivers are seen to, it waits for the work of the context; a capture would be broken by
  // that.
  if (*result != CUDA_SUCCESS) return true;
  const bool done = fence_->AllDone();
  const bool waits = !done && !tracker_->MayRefuse();
  if (waits) *result = Synchronize(block->context);
  if (*result != CUDA_SUCCESS) return true;
  if (waits) fence_->Look();  // so that the next free finds all work done
  pools_->Forget({pointer, block->id});
  // Another context's work may use it, too.
  const bool unused = done || (waits && (tracker_->HasOneContext() || fence_->AllDone()));
  return Release(pointer, block->id, unused);  // false: freed by another thread meanwhile
}

bool Guest::GiveWay() {
  const bool of_graphs = graphs_.Trim();
  const bool of_drivers = driver_pools_.Trim();
  const bool of_pages = FreePages();
  return pools_->GiveWay(true) || of_graphs || of_drivers || of_pages;
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
  Unreserve(*shrunk);
  if (!unused || *shrunk != Bytes() || memory_->HasDead()) ReapSoon();
  return true;
}

// Where all work is done nothing is left of the memory afterwards, as with the driver's own.
void Guest::ReapSoon() {
  fence_->Step();
  if (memory_->HasDead() && swapper_->mutex().TryLockBriefly()) {
    swapper_->Reap();
    swapper_->mutex().Unlock();
  }
  if (memory_->HasDead()) {
    agent_->Wake();
  } else {
    WakeIfConcerned();
  }
}

}  // namespace tandem::shim
