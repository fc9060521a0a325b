#include "src/shim/swap/unleased_rows.h"

namespace tandem::shim {
namespace {

// No driver takes longer rows, nor has more memory: with less of both no sum overflows.
constexpr uint64_t kMostRows = uint64_t{1} << 31;
constexpr uint64_t kMostInPlanes = uint64_t{1} << 47;

// The side of a copy whose first byte is at x, y, z of what lies at `base`.
std::optional<Rows> Side(CUmemorytype type, const void* host, CUdeviceptr device, uint64_t pitch,
                         uint64_t plane_rows, uint64_t depth, const uint64_t (&at)[3]) {
  if (type == CU_MEMORYTYPE_ARRAY) return std::nullopt;
  const uint64_t base = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
  const uint64_t plane = pitch * plane_rows;
  if (plane > kMostInPlanes / (at[2] + depth)) return std::nullopt;
  return Rows{base + at[0] + at[1] * pitch + at[2] * plane, pitch, plane, type};
}

bool IsWithin(uint64_t x, uint64_t width, uint64_t pitch) {
  return width != 0 && pitch < kMostRows && x <= pitch && width <= pitch - x;
}

// From the first byte to behind the last.
uint64_t Span(const Rows& rows, const RowCopy& copy) {
  return (copy.depth - 1) * rows.plane + (copy.height - 1) * rows.pitch + copy.width;
}

// Rows that lie behind one another on both sides are one row.
void Merge(RowCopy* copy) {
  if (copy->from.pitch == copy->width && copy->to.pitch == copy->width) {
    copy->width *= copy->height;
    copy->height = 1;
  }
  if (copy->height == 1 && copy->from.plane == copy->width && copy->to.plane == copy->width) {
    copy->width *= copy->depth;
    copy->depth = 1;
  }
}

bool CopyRow(UnleasedAccess* access, const RowCopy& copy, uint64_t to, uint64_t from) {
  const bool may_read =
      copy.to.type != CU_MEMORYTYPE_DEVICE && copy.from.type != CU_MEMORYTYPE_HOST;
  const bool may_write =
      copy.from.type != CU_MEMORYTYPE_DEVICE && copy.to.type != CU_MEMORYTYPE_HOST;
  const bool may_move = copy.from.type != CU_MEMORYTYPE_HOST && copy.to.type != CU_MEMORYTYPE_HOST;
  return (may_move && access->Move(to, from, copy.width)) ||
         (may_read && access->Read(reinterpret_cast<void*>(to), from, copy.width)) ||
         (may_write && access->Write(to, reinterpret_cast<const void*>(from), copy.width));
}

// Whether all of it is the program's own in one piece, and not only each row.
bool IsWhole(UnleasedAccess* access, const Rows& rows, uint64_t span) {
  return rows.type == CU_MEMORYTYPE_HOST || !access->Has(rows.begin, 1) ||
         access->Has(rows.begin, span);
}

}  // namespace

std::optional<RowCopy> RowsOf(const CUDA_MEMCPY2D& copy) {
  CUDA_MEMCPY3D planes{};
  planes.srcXInBytes = copy.srcXInBytes;
  planes.srcY = copy.srcY;
  planes.srcMemoryType = copy.srcMemoryType;
  planes.srcHost = copy.srcHost;
  planes.srcDevice = copy.srcDevice;
  planes.srcPitch = copy.srcPitch;
  planes.srcHeight = copy.srcY + copy.Height;
  planes.dstXInBytes = copy.dstXInBytes;
  planes.dstY = copy.dstY;
  planes.dstMemoryType = copy.dstMemoryType;
  planes.dstHost = copy.dstHost;
  planes.dstDevice = copy.dstDevice;
  planes.dstPitch = copy.dstPitch;
  planes.dstHeight = copy.dstY + copy.Height;
  planes.WidthInBytes = copy.WidthInBytes;
  planes.Height = copy.Height;
  planes.Depth = 1;
  return RowsOf(planes);
}

std::optional<RowCopy> RowsOf(const CUDA_MEMCPY3D& copy) {
  for (const uint64_t size : {copy.srcY, copy.srcZ, copy.dstY, copy.dstZ, copy.Height, copy.Depth,
                              copy.srcHeight, copy.dstHeight}) {
    if (size >= kMostRows) return std::nullopt;
  }
  const bool plain = copy.srcLOD == 0 && copy.dstLOD == 0 && copy.reserved0 == nullptr &&
                     copy.reserved1 == nullptr;
  const bool within = IsWithin(copy.srcXInBytes, copy.WidthInBytes, copy.srcPitch) &&
                      IsWithin(copy.dstXInBytes, copy.WidthInBytes, copy.dstPitch) &&
                      copy.srcY + copy.Height <= copy.srcHeight &&
                      copy.dstY + copy.Height <= copy.dstHeight;
  if (!plain || !within || copy.Height == 0 || copy.Depth == 0) return std::nullopt;
  const auto from = Side(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcPitch,
                         copy.srcHeight, copy.Depth, {copy.srcXInBytes, copy.srcY, copy.srcZ});
  const auto to = Side(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstPitch,
                       copy.dstHeight, copy.Depth, {copy.dstXInBytes, copy.dstY, copy.dstZ});
  if (!from.has_value() || !to.has_value()) return std::nullopt;
  return RowCopy{*from, *to, copy.WidthInBytes, copy.Height, copy.Depth};
}

bool CopyRows(UnleasedAccess* access, RowCopy copy) {
  const uint64_t source = Span(copy.from, copy), target = Span(copy.to, copy);
  // What overlaps would not be the same when it is done again.
  const bool apart =
      copy.from.begin + source <= copy.to.begin || copy.to.begin + target <= copy.from.begin;
  if (!apart || !IsWhole(access, copy.from, source) || !IsWhole(access, copy.to, target)) {
    return false;
  }
  Merge(&copy);
  for (uint64_t z = 0; z < copy.depth; ++z) {
    for (uint64_t y = 0; y < copy.height; ++y) {
      const uint64_t from = copy.from.begin + z * copy.from.plane + y * copy.from.pitch;
      const uint64_t to = copy.to.begin + z * copy.to.plane + y * copy.to.pitch;
      if (!CopyRow(access, copy, to, from)) return false;
    }
  }
  return true;
}

bool FillRows(UnleasedAccess* access, const Rows& rows, UnleasedAccess::Pattern pattern,
              uint64_t width, uint64_t height) {
  if (width >= kMostRows || height == 0 || height >= kMostRows || rows.pitch % pattern.width != 0) {
    return false;
  }
  const RowCopy all = {rows, rows, width * pattern.width, height, 1};
  if (!IsWithin(0, all.width, rows.pitch)) return false;
  if (!access->Has(rows.begin, Span(rows, all))) return false;
  for (uint64_t y = 0; y < height; ++y) {
    if (!access->Fill(rows.begin + y * rows.pitch, pattern, width)) return false;
  }
  return true;
}

}  // namespace tandem::shim
