#include "src/shim/program/guest.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "src/shim/driver/in_context.h"
#include "src/shim/os/log.h"

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

// Of memory of the host's that can be mapped where the device's was; nothing if the driver knows of
// none.
std::optional<CUmemAllocationProp> HostMemory(const cuda::RealDriver& real, CUdevice device) {
  int node = -1;
  if (real.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, std::max(node, 0)};
  return properties;
}

bool CanOversubscribe(const cuda::RealDriver& real, CUdevice device) {
  const std::optional<CUmemAllocationProp> properties = HostMemory(real, device);
  size_t granularity = 0;
  return properties.has_value() &&
         real.cuMemGetAllocationGranularity(&granularity, &*properties,
                                            CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
         granularity != 0 && kGranule % granularity == 0;
}

// A driver may say in which units it would make it, and yet make none.
bool MakesHostMemory(const cuda::RealDriver& real, CUdevice device) {
  const std::optional<CUmemAllocationProp> properties = HostMemory(real, device);
  CUmemGenericAllocationHandle handle = 0;
  return properties.has_value() &&
         real.cuMemCreate(&handle, kGranule, &*properties, 0) == CUDA_SUCCESS &&
         real.cuMemRelease(handle) == CUDA_SUCCESS;
}

}  // namespace

Result<std::unique_ptr<Guest>> Guest::Open(const cuda::RealDriver* real, Gate* gate,
                                           WorkTracker* tracker, CUdevice device,
                                           Identity identity) {
  if (!CanSwap(*real, device)) {
    return Error{ErrorCode::kUnsupported,
                 "this GPU or its driver has no virtual memory management"};
  }
  identity.can_oversubscribe = CanOversubscribe(*real, device);
  std::unique_ptr<Guest> guest(new Guest(real, gate, tracker, device, identity));
  ASSIGN_OR_RETURN(Terms terms, guest->link_.Register(Bytes()));
  if (guest->oversubscribes() && !MakesHostMemory(*real, device)) {
    identity.can_oversubscribe = false;
    guest.reset(new Guest(real, gate, tracker, device, identity));  // in the place of that session
    ASSIGN_OR_RETURN(terms, guest->link_.Register(Bytes()));
  }
  guest->chunk_ = terms.chunk;
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
  guest->access_ = std::make_unique<UnleasedAccess>(guest->AccessSource());
  const AgentParts parts{real,
                         device,
                         &guest->link_,
                         &guest->vote_,
                         tracker,
                         guest->memory_.get(),
                         guest->fence_.get(),
                         guest->swapper_.get(),
                         &guest->leases_,
                         guest->offers_.get()};
  guest->agent_ = std::make_unique<Agent>(parts);
  guest->vote_.Shut();
  if (!guest->agent_->Start()) {
    guest->vote_.Open();
    guest->agent_.reset();
    return Error{ErrorCode::kFailed, "no thread can be started"};
  }
  if (guest->link_.run_oversubscribes() && !guest->link_.most_resident().has_value()) {
    Log(LogLevel::kWarn, "--oversubscribe has no effect: this driver maps no host memory");
  }
  Log(LogLevel::kInfo, "sharing the GPU: %s of memory", FormatBytes(terms.limit).c_str());
  return guest;
}

StreamPools::Source Guest::PoolSource() {
  return {[this](uint64_t bytes, CUcontext context, StreamPools::BlockName* block) {
            const CUresult result =
                RetryAfter([&] { return FreePages() || graphs_.Trim(); },
                           [&] { return Allocate(bytes, context, &block->pointer); });
            const std::optional<Block> made = memory_->Find(block->pointer);
            if (result == CUDA_SUCCESS && made.has_value()) block->id = made->id;
            return result;
          },
          [this](const StreamPools::BlockName& block) { Release(block.pointer, block.id, true); }};
}

VmmMemory::Source Guest::VmmSource() {
  return {[this](uint64_t bytes, const std::function<CUresult(Extent**)>& add) {
            Extent* extent = nullptr;
            const auto add_extent = [&](CUdeviceptr* address) {
              const CUresult result = add(&extent);
              if (result == CUDA_SUCCESS) *address = extent->address;
              return result;
            };
            return Grow(Bytes(bytes), add_extent, [&] {
              Unreserve(memory_->FreeExtent(extent));
              ReapSoon();
            });
          },
          [this](Bytes shrunk) {
            Unreserve(shrunk);
            WakeIfConcerned();
          },
          this};
}

MemoryOffers::Parts Guest::OfferParts() {
  MutexLock lock(swapper_->mutex());
  swapper_->OnSharedGone([this](const Extent& extent)
                             NO_THREAD_SAFETY_ANALYSIS { offers_->OnGone(extent); });
  return {real_,
          device_,
          &link_,
          memory_.get(),
          swapper_.get(),
          &fixed_,
          this,
          [this](Bytes bytes) {
            Unreserve(bytes);
            ReapSoon();
          },
          [this](const AloneJob::Job& job) { return agent_->RunAlone(job); }};
}

UnleasedAccess::Source Guest::AccessSource() {
  return {real_,
          tracker_,
          memory_.get(),
          swapper_.get(),
          [this](CUdeviceptr pointer, uint64_t bytes) { return FindParts(pointer, bytes); },
          [this] { return Drained(); },
          [this] { return link_.host_share(); }};
}

// All in one block, or in mappings one behind the other.
std::optional<UnleasedAccess::Parts> Guest::FindParts(CUdeviceptr pointer, uint64_t bytes) const {
  if (bytes == 0 || pointer + bytes < pointer) return std::nullopt;
  if (const std::optional<Block> block = memory_->Find(pointer)) {
    const auto of_pool = pools_->Find({block->address, block->id});
    const bool gone = of_pool.has_value() && of_pool->idle;
    const uint64_t size = of_pool.has_value() ? of_pool->bytes : block->bytes;
    if (gone || pointer + bytes > block->address + size) return std::nullopt;
    return UnleasedAccess::Parts{{pointer, bytes}};
  }
  UnleasedAccess::Parts parts;
  while (bytes != 0) {
    const auto mapping = vmm_->Find(pointer);
    if (!mapping.has_value() || !mapping->ours) return std::nullopt;
    if (mapping->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return std::nullopt;
    const uint64_t offset = pointer - mapping->address;
    const uint64_t size = std::min(bytes, mapping->bytes - offset);
    parts.push_back({mapping->home + offset, size});
    pointer += size;
    bytes -= size;
  }
  return parts;
}

bool Guest::Drained() {
  bool drained = false;
  link_.With([&](client::Lease& lease) { drained = !lease.working() && !lease.poisoned(); });
  return drained;
}

void Guest::AbandonInChild() {
  leases_.AbandonInChild();
  link_.AbandonInChild();
  agent_->AbandonInChild();
  swapper_->AbandonInChild();
}

void Guest::Know(CUcontext context, bool credited) {
  if (known_context_.load(std::memory_order_acquire) == context) return;
  if (!tracker_->AddContext(context)) return;
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
      swapper_->Expose(
          Bytes());  // what was given up for lost may be written anew, under an open gate
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
  {
    MutexLock lock(swapper_->mutex());
    swapper_->Reap();
    // The agent forgets those that have broken under this lock: none of them is taken.
    if (swapper_->context() == context) swapper_->UseContext(tracker_->AnyContext(device_));
    const bool hopeless = swapper_->context() == nullptr && (broken || OnlyBrokenAreLeft());
    if (hopeless) swapper_->LoseUncopied();
  }
  agent_->Wake();
  return credited;
}

// Some, which the program has not destroyed yet.
bool Guest::OnlyBrokenAreLeft() {
  std::vector<CUcontext> left;
  {
    MutexLock lock(contexts_mutex_);
    for (const auto& [context, credited] : contexts_) left.push_back(context);
  }
  return !left.empty() && std::all_of(left.begin(), left.end(),
                                      [this](CUcontext each) { return IsSticky(Health(each)); });
}

void Guest::SetPeer(CUcontext context, bool reaches) {
  CUdevice peer = device_;
  CUcontext user = nullptr;
  if (!Has(context) || real_->cuCtxGetDevice(&peer) != CUDA_SUCCESS || peer == device_) return;
  if (real_->cuCtxGetCurrent(&user) != CUDA_SUCCESS) return;
  MutexLock lock(peers_mutex_);
  std::set<Leave>& leave = peers_[peer].contexts;
  if (reaches) {
    leave.insert({context, user});
  } else {
    leave.erase({context, user});
  }
  UpdateReach(peer);
}

void Guest::SetPoolPeer(CUmemoryPool pool, CUdevice peer, bool reaches) {
  MutexLock lock(peers_mutex_);
  std::set<CUmemoryPool>& leave = peers_[peer].pools;
  if (reaches) {
    leave.insert(pool);
  } else {
    leave.erase(pool);
  }
  UpdateReach(peer);
}

void Guest::PeerEnds(CUcontext context) {
  MutexLock lock(peers_mutex_);
  for (auto& [peer, leaves] : peers_) {
    const auto ends = [context](const Leave& each) {
      return each.first == context || each.second == context;
    };
    if (std::erase_if(leaves.contexts, ends) != 0) UpdateReach(peer);
  }
}

void Guest::UpdateReach(CUdevice peer) {
  Peer& leaves = peers_[peer];
  const bool reaches = !leaves.contexts.empty() || !leaves.pools.empty();
  if (reaches == std::exchange(leaves.reaches, reaches)) return;
  MutexLock swap_lock(swapper_->mutex());
  if (const CUresult result = swapper_->SetPeer(peer, reaches); result != CUDA_SUCCESS) {
    Log(LogLevel::kWarn, "device %d cannot be let at the memory of device %d: error %d", peer,
        device_, static_cast<int>(result));
  }
}

CUresult Guest::Synchronize(CUcontext context) {
  const InContext scope(real_, context);
  return scope.result() == CUDA_SUCCESS ? real_->cuCtxSynchronize() : scope.result();
}

bool Guest::IsQuiet(CUcontext context) const {
  const bool known = known_context_.load(std::memory_order_acquire) == context;
  return known && context != nullptr && !tracker_->MayRefuse() && fence_->AllDone();
}

CUresult Guest::Health(CUcontext context) {
  if (IsQuiet(context)) return CUDA_SUCCESS;
  const InContext scope(real_, context);
  return scope.result() == CUDA_SUCCESS ? tracker_->Health(context) : scope.result();
}

void Guest::BeginLease(ProgramLease* lease) {
  leases_.Begin(lease);
  agent_->Wake();
}

void Guest::EndLease(ProgramLease* lease) {
  leases_.End(lease);
  agent_->Wake();
}

bool Guest::LeaveCard() {
  if (leases_.begun() != 0) return false;
  link_.With([](client::Lease& lease) { lease.Leave(); });
  return true;
}

Guest::Standing Guest::GetStanding() const {
  const MemoryView memory = memory_->GetView();
  return {.holds = link_.holds(),
          .contended = link_.contended(),
          .suspended = link_.suspended(),
          .leases = leases_.begun(),
          .allocated = memory.need,
          .resident = memory.resident,
          .swapped = memory.swapped};
}

}  // namespace tandem::shim
