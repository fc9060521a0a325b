#include "softgpu/driver/texture.h"

#include <utility>

namespace tandem::soft {
namespace {

constexpr int kPlaceBits = 20;
constexpr uint64_t kPlaceMask = (uint64_t{1} << kPlaceBits) - 1;

}  // namespace

Textures::Table& Textures::Changed() {
  auto copy = std::make_shared<Table>(*table_);
  Table& table = *copy;
  table_ = std::move(copy);
  return table;
}

bool Textures::Has(CUtexObject handle) const {
  const uint64_t place = (handle & kPlaceMask) - 1;
  return place < table_->size() && (*table_)[place].handle == handle && handle != 0;
}

CUtexObject Textures::Insert(std::shared_ptr<const TextureObject> object, ptx::Texture texture) {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    if (table_->size() == kPlaceMask) return 0;
    free_.push_back(static_cast<uint32_t>(objects_.size()));
    Changed().emplace_back();
    objects_.emplace_back();
  }
  const uint32_t place = free_.back();
  free_.pop_back();
  texture.handle = ++serial_ << kPlaceBits | (place + 1);
  Changed()[place] = texture;
  objects_[place] = std::move(object);
  return texture.handle;
}

std::shared_ptr<const TextureObject> Textures::Find(CUtexObject handle) const {
  MutexLock lock(mutex_);
  return Has(handle) ? objects_[(handle & kPlaceMask) - 1] : nullptr;
}

bool Textures::Erase(CUtexObject handle) {
  MutexLock lock(mutex_);
  if (!Has(handle)) return false;
  const uint32_t place = static_cast<uint32_t>(handle & kPlaceMask) - 1;
  Changed()[place] = {};
  objects_[place] = nullptr;
  free_.push_back(place);
  return true;
}

void Textures::EraseOf(const Context& context) {
  MutexLock lock(mutex_);
  for (uint32_t place = 0; place < objects_.size(); ++place) {
    if (objects_[place] == nullptr || objects_[place]->context.get() != &context) continue;
    Changed()[place] = {};
    objects_[place] = nullptr;
    free_.push_back(place);
  }
}

std::shared_ptr<const Textures::Table> Textures::Current() const {
  MutexLock lock(mutex_);
  return table_;
}

}  // namespace tandem::soft
