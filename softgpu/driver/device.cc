#include "softgpu/driver/device.h"

namespace tandem::soft {

Result<std::unique_ptr<Device>> Device::Open(int ordinal, const DeviceOption& option,
                                             const Options& options, AddressSpace* space,
                                             Scheduler* scheduler, Faults* faults) {
  const Users users = options.shared ? Users::kAll : Users::kThis;
  ASSIGN_OR_RETURN(const std::string directory, SharedDirectory(options.directory, users));
  ASSIGN_OR_RETURN(auto shared, SharedDevice::Open(directory, option.name, option.vram,
                                                   options.model_clock, users));
  ASSIGN_OR_RETURN(auto store, PhysicalStore::Create(shared.get(), DeviceUuid(option.name)));
  return std::unique_ptr<Device>(new Device(ordinal, option.name, std::move(shared),
                                            std::move(store), options, space, scheduler, faults));
}

Device::Device(int ordinal, std::string name, std::unique_ptr<SharedDevice> shared,
               std::unique_ptr<PhysicalStore> store, const Options& options, AddressSpace* space,
               Scheduler* scheduler, Faults* faults)
    : ordinal_(ordinal),
      name_(std::move(name)),
      shared_(std::move(shared)),
      store_(std::move(store)),
      heap_(space, store_.get(), ordinal),
      clock_(shared_->page()),
      bus_(shared_->page(), options.live.bus_bytes_per_second),
      turn_(shared_->page(), shared_->slot()),
      bus_turns_{{shared_->page(), shared_->slot(), SharedEngine::kToDevice},
                 {shared_->page(), shared_->slot(), SharedEngine::kToHost}},
      hardware_{.device = ordinal,
                .space = space,
                .bus = &bus_,
                .turn = &turn_,
                .bus_turns = bus_turns_,
                .clock = &clock_,
                .slot = &shared_->own(),
                .faults = faults,
                .watchdog = options.watchdog,
                .page_fault = options.page_fault,
                .path = options.path},
      scheduler_(scheduler) {
  shared_->own().priority.store(options.priority);
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
  return FixedAttribute(attribute, value);
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
