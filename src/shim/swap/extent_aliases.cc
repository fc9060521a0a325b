#include "src/shim/swap/extent_aliases.h"

#include <algorithm>
#include <span>

namespace tandem::shim {
namespace {

CUdeviceptr At(const Extent& extent, const Alias& alias, const Chunk& chunk) {
  return alias.address + (chunk.address - extent.address);
}

CUresult MapAt(const cuda::RealDriver& real, const Extent& extent, const Alias& alias,
               const Chunk& chunk) {
  const CUdeviceptr address = At(extent, alias, chunk);
  CUresult result = real.cuMemMap(address, chunk.bytes, 0, chunk.handle, 0);
  if (result != CUDA_SUCCESS || alias.access.empty()) return result;
  result = real.cuMemSetAccess(address, chunk.bytes, alias.access.data(), alias.access.size());
  if (result == CUDA_SUCCESS) return result;
  // The driver may refuse access that was granted while nothing was on the card; that must not keep
  // the rest away for ever.
  for (const CUmemAccessDesc& each : alias.access) {
    result = real.cuMemSetAccess(address, chunk.bytes, &each, 1);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) break;
    if (result != CUDA_SUCCESS) result = CUDA_SUCCESS;
  }
  if (result != CUDA_SUCCESS) real.cuMemUnmap(address, chunk.bytes);
  return result;
}

Alias* Find(Extent* extent, CUdeviceptr address) {
  const auto found =
      std::find_if(extent->aliases.begin(), extent->aliases.end(),
                   [address](const Alias& alias) { return alias.address == address; });
  return found == extent->aliases.end() ? nullptr : &*found;
}

}  // namespace

CUresult MapAliases(const cuda::RealDriver& real, const Extent& extent, const Chunk* chunks,
                    size_t count) {
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < extent.aliases.size(); ++k) {
      const CUresult result = MapAt(real, extent, extent.aliases[k], chunks[i]);
      if (result == CUDA_SUCCESS) continue;
      for (size_t done = 0; done < k; ++done) {
        real.cuMemUnmap(At(extent, extent.aliases[done], chunks[i]), chunks[i].bytes);
      }
      for (size_t done = 0; done < i; ++done) UnmapAliases(real, extent, chunks[done]);
      return result;
    }
  }
  return CUDA_SUCCESS;
}

void UnmapAliases(const cuda::RealDriver& real, const Extent& extent, const Chunk& chunk) {
  for (const Alias& alias : extent.aliases) real.cuMemUnmap(At(extent, alias, chunk), chunk.bytes);
}

CUresult AddAlias(const cuda::RealDriver& real, Extent* extent, CUdeviceptr address) {
  const Alias alias{address, {}};
  for (size_t i = 0; i < extent->chunks.size(); ++i) {
    if (!extent->chunks[i].mapped()) continue;
    const CUresult result = MapAt(real, *extent, alias, extent->chunks[i]);
    if (result == CUDA_SUCCESS) continue;
    for (size_t done = 0; done < i; ++done) {
      const Chunk& chunk = extent->chunks[done];
      if (chunk.mapped()) real.cuMemUnmap(At(*extent, alias, chunk), chunk.bytes);
    }
    return result;
  }
  extent->aliases.push_back(alias);
  return CUDA_SUCCESS;
}

void RemoveAlias(const cuda::RealDriver& real, Extent* extent, CUdeviceptr address) {
  const Alias* const alias = Find(extent, address);
  if (alias == nullptr) return;
  for (const Chunk& chunk : extent->chunks) {
    if (chunk.mapped()) real.cuMemUnmap(At(*extent, *alias, chunk), chunk.bytes);
  }
  extent->aliases.erase(extent->aliases.begin() + (alias - extent->aliases.data()));
}

CUresult SetAliasAccess(const cuda::RealDriver& real, Extent* extent, CUdeviceptr address,
                        const CUmemAccessDesc* access, size_t count) {
  Alias* const alias = Find(extent, address);
  if (alias == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const Chunk& chunk : extent->chunks) {
    if (!chunk.mapped()) continue;
    const CUresult result =
        real.cuMemSetAccess(At(*extent, *alias, chunk), chunk.bytes, access, count);
    if (result != CUDA_SUCCESS) return result;
  }
  for (const CUmemAccessDesc& each : std::span(access, count)) {
    std::erase_if(alias->access, [&](const CUmemAccessDesc& known) {
      return SamePlace(known.location, each.location);
    });
    if (each.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) alias->access.push_back(each);
  }
  return CUDA_SUCCESS;
}

}  // namespace tandem::shim
