#include "src/cli/doctor/library_paths.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "src/base/unique_fd.h"

namespace tandem::cli {
namespace {

constexpr size_t kMostEntries = 4096;  // of any table in the file
constexpr size_t kMostPath = 65536;    // bytes

template <typename T>
bool ReadPart(int fd, uint64_t offset, T* value) {
  return pread(fd, value, sizeof(T), static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof(T));
}

std::vector<Elf64_Phdr> SegmentsOf(int fd) {
  std::vector<Elf64_Phdr> segments;
  Elf64_Ehdr header;
  if (!ReadPart(fd, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return {};
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return {};
  for (size_t i = 0; i < std::min<size_t>(header.e_phnum, kMostEntries); ++i) {
    Elf64_Phdr segment;
    if (!ReadPart(fd, header.e_phoff + i * header.e_phentsize, &segment)) break;
    segments.push_back(segment);
  }
  return segments;
}

// Where in the file the loaded address is.
std::optional<uint64_t> OffsetOf(const std::vector<Elf64_Phdr>& segments, uint64_t address) {
  for (const Elf64_Phdr& segment : segments) {
    const bool inside = segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
                        address - segment.p_vaddr < segment.p_filesz;
    if (inside) return segment.p_offset + (address - segment.p_vaddr);
  }
  return std::nullopt;
}

std::string TextAt(int fd, uint64_t offset) {
  std::string text(kMostPath, '\0');
  const ssize_t size = pread(fd, text.data(), text.size(), static_cast<off_t>(offset));
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

std::vector<std::string> Expanded(std::string list, const std::string& origin) {
  for (const char* token : {"${ORIGIN}", "$ORIGIN"}) {
    for (size_t at = 0; (at = list.find(token, at)) != std::string::npos; at += origin.size()) {
      list.replace(at, std::strlen(token), origin);
    }
  }
  return PartsOf(list, ":");
}

}  // namespace

std::vector<std::string> PartsOf(const std::string& list, const char* separators) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find_first_of(separators, begin), list.size());
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

LibraryPaths LibraryPathsOf(const std::string& file) {
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  const std::vector<Elf64_Phdr> segments = SegmentsOf(fd.get());
  const auto dynamic = std::find_if(segments.begin(), segments.end(),
                                    [](const auto& each) { return each.p_type == PT_DYNAMIC; });
  if (dynamic == segments.end()) return {};
  std::optional<uint64_t> names, rpath, runpath;
  for (size_t i = 0; i < kMostEntries; ++i) {
    Elf64_Dyn entry;
    if (!ReadPart(fd.get(), dynamic->p_offset + i * sizeof entry, &entry)) break;
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_STRTAB) names = OffsetOf(segments, entry.d_un.d_ptr);
    if (entry.d_tag == DT_RPATH) rpath = entry.d_un.d_val;
    if (entry.d_tag == DT_RUNPATH) runpath = entry.d_un.d_val;
  }
  LibraryPaths paths;
  if (!names.has_value()) return paths;
  std::error_code ignored;
  const std::string origin = std::filesystem::canonical(file, ignored).parent_path();
  if (runpath) {
    paths.runpath = Expanded(TextAt(fd.get(), *names + *runpath), origin);
  } else if (rpath) {
    paths.rpath = Expanded(TextAt(fd.get(), *names + *rpath), origin);
  }
  return paths;
}

}  // namespace tandem::cli
