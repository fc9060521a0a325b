#include "softgpu/driver/fat_binary.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

namespace tandem::soft {
namespace {

constexpr std::string_view kContainer = "\x50\xed\x55\xba";
constexpr std::string_view kWrapper = "\xb1\x43\x62\x46";
constexpr uint16_t kPtx = 1;
constexpr uint64_t kLz4 = 0x2000, kZstd = 0x8000;
constexpr uint64_t kMaxText = uint64_t{1} << 30;

struct Wrapper {
  uint32_t magic, version;
  const void* container;
  const void* unused;
};

struct Container {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // that follow the header
};

struct Entry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;  // that follow the header
  uint32_t packed_bytes;
  uint32_t options;
  uint16_t minor, major;  // of the PTX
  uint32_t architecture;
  uint32_t name, name_bytes;
  uint64_t flags;
  uint64_t unused;
  uint64_t unpacked_bytes;
};
static_assert(sizeof(Container) == 16 && sizeof(Entry) == 64);
static_assert(offsetof(Entry, flags) == 40);

bool StartsWith(const void* image, std::string_view magic) {
  return std::strncmp(static_cast<const char*>(image), magic.data(), magic.size()) == 0;
}

// A function of a system library that most programs never need; null where the library is missing.
void* FindIn(const char* library, const char* function) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  return handle == nullptr ? nullptr : dlsym(handle, function);
}

// `bytes` unpacked by `unpack(to)`, which returns their number. Not cleared before: what a
// malformed entry only claims to hold costs no memory.
template <typename Unpack>
bool UnpackInto(std::string* text, size_t bytes, const Unpack& unpack) {
  const auto unpacked = std::make_unique_for_overwrite<char[]>(bytes);
  if (unpack(unpacked.get()) != bytes) return false;
  text->assign(unpacked.get(), bytes);
  return true;
}

// One LZ4 block.
bool UnpackLz4(std::string_view packed, size_t bytes, std::string* text) {
  using Decompress = int(const char*, char*, int, int);
  static Decompress* const decompress =
      reinterpret_cast<Decompress*>(FindIn("liblz4.so.1", "LZ4_decompress_safe"));
  if (decompress == nullptr || packed.size() > kMaxText) return false;
  return UnpackInto(text, bytes, [&](char* to) {
    const int done =
        decompress(packed.data(), to, static_cast<int>(packed.size()), static_cast<int>(bytes));
    return done < 0 ? ~size_t{0} : static_cast<size_t>(done);
  });
}

// Zstandard, in which compilers pack from CUDA 12.8 on.
bool UnpackZstd(std::string_view packed, size_t bytes, std::string* text) {
  using Decompress = size_t(void*, size_t, const void*, size_t);
  static Decompress* const decompress =
      reinterpret_cast<Decompress*>(FindIn("libzstd.so.1", "ZSTD_decompress"));
  if (decompress == nullptr) return false;
  return UnpackInto(text, bytes,
                    [&](char* to) { return decompress(to, bytes, packed.data(), packed.size()); });
}

// The text of an entry whose bytes are `data`; nothing if it cannot be read.
std::optional<std::string> TextOf(const Entry& entry, std::string_view data) {
  std::string text;
  if ((entry.flags & (kLz4 | kZstd)) != 0) {
    if (entry.packed_bytes > data.size() || entry.unpacked_bytes > kMaxText) return std::nullopt;
    const auto unpack = (entry.flags & kZstd) != 0 ? UnpackZstd : UnpackLz4;
    if (!unpack(data.substr(0, entry.packed_bytes), entry.unpacked_bytes, &text)) {
      return std::nullopt;
    }
  } else {
    text = data;
  }
  text.resize(std::min(text.size(), text.find('\0')));
  return text;
}

// The entries, one after the other, behind the container's header.
CUresult FindEntries(const Image& image, std::string_view* entries) {
  const void* begin = image.begin;
  if (StartsWith(begin, kWrapper)) {
    if (image.bytes) return CUDA_ERROR_INVALID_IMAGE;
    Wrapper wrapper;
    std::memcpy(&wrapper, begin, sizeof(wrapper));
    begin = wrapper.container;
    if (begin == nullptr || !StartsWith(begin, kContainer)) return CUDA_ERROR_INVALID_IMAGE;
  }
  Container container;
  if (image.bytes && *image.bytes < sizeof(container)) return CUDA_ERROR_INVALID_IMAGE;
  std::memcpy(&container, begin, sizeof(container));
  if (container.header_bytes < sizeof(container)) return CUDA_ERROR_INVALID_IMAGE;
  if (image.bytes && (container.header_bytes > *image.bytes ||
                      container.bytes > *image.bytes - container.header_bytes)) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *entries = {static_cast<const char*>(begin) + container.header_bytes, container.bytes};
  return CUDA_SUCCESS;
}

}  // namespace

bool IsFatBinary(const void* image) {
  return StartsWith(image, kContainer) || StartsWith(image, kWrapper);
}

CUresult PtxOfFatBinary(const Image& image, int capability, std::string* ptx, std::string* log) {
  std::string_view rest;
  if (const CUresult found = FindEntries(image, &rest); found != CUDA_SUCCESS) return found;
  uint32_t best = 0;
  bool packed = false;
  while (rest.size() >= sizeof(Entry)) {
    Entry entry;
    std::memcpy(&entry, rest.data(), sizeof(entry));
    if (entry.header_bytes < sizeof(entry) || entry.header_bytes > rest.size() ||
        entry.bytes > rest.size() - entry.header_bytes) {
      break;
    }
    const std::string_view data = rest.substr(entry.header_bytes, entry.bytes);
    rest.remove_prefix(entry.header_bytes + entry.bytes);
    const bool fits = entry.architecture <= static_cast<uint32_t>(capability);
    if (entry.kind != kPtx || !fits || entry.architecture < best) continue;
    const std::optional<std::string> text = TextOf(entry, data);
    packed = packed || !text;
    if (!text) continue;
    best = entry.architecture;
    *ptx = *text;
  }
  if (best != 0) return CUDA_SUCCESS;
  *log = packed ? "the fat binary's PTX is packed in a way that cannot be read here\n"
                : "the fat binary holds no PTX for this device; a software GPU takes PTX\n";
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

}  // namespace tandem::soft
