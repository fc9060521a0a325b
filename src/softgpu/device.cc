#include "src/softgpu/device.h"

#include <cstdio>
#include <cstring>

namespace tandem::soft {
namespace {

// FNV-1a, started differently for the two halves of a uuid.
uint64_t Hash(const std::string& text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
  return hash;
}

}  // namespace

Result<std::unique_ptr<Device>> Device::Open(int ordinal, const DeviceOption& option,
                                             const Options& options, AddressSpace* space,
                                             Scheduler* scheduler) {
  ASSIGN_OR_RETURN(const std::string directory, SharedDirectory(options.directory));
  ASSIGN_OR_RETURN(auto shared, SharedDevice::Open(directory, option.name, option.vram));
  ASSIGN_OR_RETURN(auto store, PhysicalStore::Create(shared.get()));
  return std::unique_ptr<Device>(new Device(ordinal, option.name, std::move(shared),
                                            std::move(store), options.bus_bytes_per_second, space,
                                            scheduler, options.path));
}

Device::Device(int ordinal, std::string name, std::unique_ptr<SharedDevice> shared,
               std::unique_ptr<PhysicalStore> store, uint64_t bus_bytes_per_second,
               AddressSpace* space, Scheduler* scheduler, ptx::Path path)
    : ordinal_(ordinal),
      name_(std::move(name)),
      shared_(std::move(shared)),
      store_(std::move(store)),
      heap_(space, store_.get()),
      bus_(shared_->page(), bus_bytes_per_second),
      turn_(shared_->page(), shared_->slot()),
      hardware_{space, &bus_, &turn_, path},
      scheduler_(scheduler) {}

CUuuid Device::uuid() const {
  CUuuid uuid;
  const uint64_t halves[2] = {Hash(name_, 0xcbf2'9ce4'8422'2325),
                              Hash(name_, 0x9e37'79b9'7f4a'7c15)};
  static_assert(sizeof(halves) == sizeof(uuid.bytes));
  std::memcpy(uuid.bytes, halves, sizeof(halves));
  return uuid;
}

std::string Device::pci_bus_id() const {
  char text[32];
  std::snprintf(text, sizeof(text), "0000:%02X:00.0", ordinal_ + 1);
  return text;
}

bool Device::Attribute(CUdevice_attribute attribute, int* value) const {
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
    *value = ordinal_ + 1;
    return true;
  }
  return FixedAttribute(attribute, value);
}

Engines* Device::engines() {
  MutexLock lock(engines_mutex_);
  if (!engines_) {
    engines_ = std::make_unique<Engines>(scheduler_, [this] { turn_.Release(); });
  }
  return engines_.get();
}

}  // namespace tandem::soft
