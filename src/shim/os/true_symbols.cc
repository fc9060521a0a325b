#include "src/shim/os/true_symbols.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <string_view>

namespace tandem::shim {
namespace {

struct Wanted {
  const char* name;
  void* address = nullptr;
};

// The parts of a loaded object that a look-up needs.
struct Symbols {
  const ElfW(Sym) * table = nullptr;
  const char* names = nullptr;
  const uint32_t* hash = nullptr;  // DT_GNU_HASH
};

Symbols SymbolsOf(const dl_phdr_info& info) {
  Symbols symbols;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    dynamic = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
  }
  if (dynamic == nullptr) return symbols;
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const ElfW(Addr) pointer = dynamic->d_un.d_ptr;  // glibc has relocated these
    if (dynamic->d_tag == DT_SYMTAB) symbols.table = reinterpret_cast<const ElfW(Sym)*>(pointer);
    if (dynamic->d_tag == DT_STRTAB) symbols.names = reinterpret_cast<const char*>(pointer);
    if (dynamic->d_tag == DT_GNU_HASH) symbols.hash = reinterpret_cast<const uint32_t*>(pointer);
  }
  return symbols;
}

// Not by libc's functions: a sanitizer replaces those and looks up the originals through our dlsym.
bool Equal(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

uint32_t GnuHash(const char* name) {
  uint32_t hash = 5381;
  for (; *name != 0; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

const ElfW(Sym) * Find(const Symbols& symbols, const char* name) {
  // Header: buckets, index of the first hashed symbol, words of the bloom filter, its shift.
  const uint32_t bucket_count = symbols.hash[0];
  const uint32_t first = symbols.hash[1];
  const uint32_t* const buckets =
      symbols.hash + 4 + symbols.hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* const chain = buckets + bucket_count;
  const uint32_t hash = GnuHash(name);
  uint32_t index = buckets[hash % bucket_count];
  if (index < first) return nullptr;
  for (;; ++index) {
    const uint32_t entry = chain[index - first];
    const ElfW(Sym)& symbol = symbols.table[index];
    const bool same = (entry | 1) == (hash | 1) && Equal(symbols.names + symbol.st_name, name);
    if (same && symbol.st_shndx != SHN_UNDEF) return &symbol;
    if ((entry & 1) != 0) return nullptr;  // end of the bucket
  }
}

int Visit(dl_phdr_info* info, size_t, void* data) {
  auto* wanted = static_cast<Wanted*>(data);
  const std::string_view path(info->dlpi_name);
  const std::string_view file = path.substr(path.rfind('/') + 1);  // all of it without a slash
  // Before glibc 2.34 they were in a library of their own.
  if (!Equal(file, "libc.so.6") && !Equal(file, "libdl.so.2")) return 0;
  const Symbols symbols = SymbolsOf(*info);
  if (symbols.table == nullptr || symbols.names == nullptr || symbols.hash == nullptr) return 0;
  const ElfW(Sym)* const symbol = Find(symbols, wanted->name);
  if (symbol == nullptr) return 0;
  wanted->address = reinterpret_cast<void*>(info->dlpi_addr + symbol->st_value);
  return 1;
}

template <typename Function>
Function Resolve(const char* name) {
  Wanted wanted{name};
  dl_iterate_phdr(&Visit, &wanted);
  return reinterpret_cast<Function>(wanted.address);
}

}  // namespace

DlsymFunction TrueDlsym() {
  static std::atomic<DlsymFunction> function{nullptr};
  DlsymFunction found = function.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  found = Resolve<DlsymFunction>("dlsym");
  function.store(found, std::memory_order_release);
  return found;
}

DlvsymFunction TrueDlvsym() {
  static std::atomic<DlvsymFunction> function{nullptr};
  DlvsymFunction found = function.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  found = Resolve<DlvsymFunction>("dlvsym");
  function.store(found, std::memory_order_release);
  return found;
}

}  // namespace tandem::shim
