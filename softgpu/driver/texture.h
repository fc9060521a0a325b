// Textures: the texture and surface objects of a process, and the table in which kernels look them
// up.
//
// Threading: any thread.
//
// Invariants:
// 1. A handle is never used twice. Its low 20 bits are its place in the table, counted from 1.
// 2. A table that was handed out never changes: a kernel that was launched still has the textures
//    that the program destroys before it has run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "softgpu/driver/context.h"
#include "softgpu/ptx/texture.h"
#include "src/base/mutex.h"

namespace tandem::soft {

struct TextureObject {
  std::shared_ptr<Context> context;
  bool surface = false;  // has no description and no view
  CUDA_RESOURCE_DESC resource = {};
  CUDA_TEXTURE_DESC description = {};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
};

class Textures {
 public:
  using Table = std::vector<ptx::Texture>;

  // Zero if there are too many.
  CUtexObject Insert(std::shared_ptr<const TextureObject> object, ptx::Texture texture);
  std::shared_ptr<const TextureObject> Find(CUtexObject handle) const;
  bool Erase(CUtexObject handle);
  void EraseOf(const Context& context);
  // What a kernel that is launched now can use.
  std::shared_ptr<const Table> Current() const;

 private:
  // A copy of the table in its place, to be changed.
  Table& Changed() REQUIRES_LOCK(mutex_);
  bool Has(CUtexObject handle) const REQUIRES_LOCK(mutex_);

  mutable Mutex mutex_;
  std::shared_ptr<const Table> table_ GUARDED_BY(mutex_) = std::make_shared<Table>();
  std::vector<std::shared_ptr<const TextureObject>> objects_ GUARDED_BY(mutex_);  // as in table_
  std::vector<uint32_t> free_ GUARDED_BY(mutex_);  // places without a texture
  uint64_t serial_ GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::soft
