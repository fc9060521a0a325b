#include "src/softgpu/device.h"

#include <algorithm>
#include <limits>

namespace tandem::soft {
namespace {

struct AttributeRow {
  CUdevice_attribute attribute;
  int value;
};

constexpr int kIntMax = std::numeric_limits<int>::max();

constexpr AttributeRow kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kMaxBlockThreads},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, kIntMax},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, kSharedBytesDefault},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, kMaxPitch},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, kRegistersPerBlock},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 0},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
    {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
    {CU_DEVICE_ATTRIBUTE_TCC_DRIVER, 0},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 128},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 1024},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, kComputeMajor},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, kComputeMinor},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 100 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, kRegistersPerBlock},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, kSharedBytesOptIn},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 16},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1 << 10},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0},
};

}  // namespace

Result<std::unique_ptr<Device>> Device::Open(int ordinal, const DeviceOption& option,
                                             const Options& options, AddressSpace* space,
                                             Scheduler* scheduler) {
  ASSIGN_OR_RETURN(const std::string directory, SharedDirectory(options.directory));
  ASSIGN_OR_RETURN(auto shared,
                   SharedDevice::Open(directory, option.name, option.vram, options.model_clock));
  ASSIGN_OR_RETURN(auto store, PhysicalStore::Create(shared.get()));
  return std::unique_ptr<Device>(new Device(ordinal, option.name, std::move(shared),
                                            std::move(store), options, space, scheduler));
}

Device::Device(int ordinal, std::string name, std::unique_ptr<SharedDevice> shared,
               std::unique_ptr<PhysicalStore> store, const Options& options, AddressSpace* space,
               Scheduler* scheduler)
    : ordinal_(ordinal),
      name_(std::move(name)),
      shared_(std::move(shared)),
      store_(std::move(store)),
      heap_(space, store_.get()),
      clock_(shared_->page()),
      bus_(shared_->page(), options.bus_bytes_per_second),
      turn_(shared_->page(), shared_->slot()),
      bus_turns_{{shared_->page(), shared_->slot(), SharedEngine::kToDevice},
                 {shared_->page(), shared_->slot(), SharedEngine::kToHost}},
      hardware_{.space = space,
                .bus = &bus_,
                .turn = &turn_,
                .bus_turns = bus_turns_,
                .clock = &clock_,
                .slot = &shared_->own(),
                .faults = &faults_,
                .watchdog = options.watchdog},
      scheduler_(scheduler) {
  shared_->own().priority.store(options.priority);
  faults_.kill_launch = options.kill_launch;
  faults_.ecc_launch = options.ecc_launch;
  if (options.slow_copy != 0) bus_.SlowDown(options.slow_copy, options.slow_bytes_per_second);
}

CUuuid Device::uuid() const {
  return DeviceUuid(name_);
}

std::string Device::pci_bus_id() const {
  return PciBusId(ordinal_);
}

bool Device::Attribute(CUdevice_attribute attribute, int* value) const {
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
    *value = PciBus(ordinal_);
    return true;
  }
  if (attribute == CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT) {
    *value = hardware_.watchdog == Duration() ? 0 : 1;
    return true;
  }
  const auto row = std::ranges::find(kAttributes, attribute, &AttributeRow::attribute);
  if (row == std::end(kAttributes)) return false;
  *value = row->value;
  return true;
}

void Device::ReleaseTurn(EngineKind engine) {
  if (engine == EngineKind::kCompute) turn_.Release();
  if (engine == EngineKind::kToDevice) bus_turns_[0].Release();
  if (engine == EngineKind::kToHost) bus_turns_[1].Release();
}

Engines* Device::engines() {
  MutexLock lock(engines_mutex_);
  if (!engines_) {
    engines_ = std::make_unique<Engines>(scheduler_, &clock_,
                                         [this](EngineKind engine) { ReleaseTurn(engine); });
  }
  return engines_.get();
}

}  // namespace tandem::soft
