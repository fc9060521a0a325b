#include "softgpu/driver/device.h"

namespace tandem::soft {

Result<std::unique_ptr<Device>> Device::Open(int ordinal, const DeviceOption& option,
                                             const Options& options, AddressSpace* space,
                                             Scheduler* scheduler, Faults* faults) {
  const Users users = options.shared ? Users::kAll : Users::kThis;
  ASSIGN_OR_RETURN(const std::string directory, SharedDirectory(options.directory, users));
  ASSIGN_OR_RETURN(auto shared, SharedDevice::Open(directory, option.name, option.vram,
                                                   options.model_clock, users, option.source));
  const CUuuid uuid = DeviceUuid(option.name);
  ASSIGN_OR_RETURN(auto store, PhysicalStore::Create(shared.get(), uuid));
  auto card = std::make_unique<Card>(Card{std::move(shared), uuid, ordinal});
  return std::unique_ptr<Device>(
      new Device(ordinal, std::move(card), std::move(store), options, space, scheduler, faults));
}

Device::Device(int ordinal, std::unique_ptr<Card> card, std::unique_ptr<PhysicalStore> store,
               const Options& options, AddressSpace* space, Scheduler* scheduler, Faults* faults)
    : DeviceVram(ordinal, std::move(card), std::move(store), space),
      clock_(this->shared().page()),
      bus_(this->shared().page(), options.live.bus_bytes_per_second),
      turn_(this->shared().page(), this->shared().slot()),
      bus_turns_{{this->shared().page(), this->shared().slot(), SharedEngine::kToDevice},
                 {this->shared().page(), this->shared().slot(), SharedEngine::kToHost}},
      hardware_{.device = ordinal,
                .space = space,
                .bus = &bus_,
                .turn = &turn_,
                .bus_turns = bus_turns_,
                .clock = &clock_,
                .slot = &this->shared().own(),
                .faults = faults,
                .watchdog = options.watchdog,
                .page_fault = options.page_fault,
                .path = options.path},
      priority_(options.priority),
      scheduler_(scheduler) {
  this->shared().own().priority.store(priority_);
}

void Device::MoveTo(Card* card) {
  UseCard(card);
  SharedPage* const page = shared().page();
  const int slot = shared().slot();
  clock_.Use(page);
  bus_.Use(page);
  turn_.Use(page, slot);
  for (ComputeTurn& turn : bus_turns_) turn.Use(page, slot);
  hardware_.slot = &shared().own();
  shared().own().priority.store(priority_);
}

std::string Device::pci_bus_id() const {
  return PciBusId(card()->number);
}

bool Device::Attribute(CUdevice_attribute attribute, int* value) const {
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
    *value = PciBus(card()->number);
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
