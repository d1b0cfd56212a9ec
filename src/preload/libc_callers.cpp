// The code of libc and of the loader is the segment that contains their functions.
#include "preload/libc_callers.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include <algorithm>

namespace tiermem::preload {

namespace detail {
constinit Code libc{}, loader{};
}

namespace {

constinit detail::Code g_getdelim{};

// Where a library has its dynamic symbols, and the hash table that finds them.
struct Symbols {
  const ElfW(Sym) * all = nullptr;
  const char* names = nullptr;
  const std::uint32_t* hashes = nullptr;  // DT_GNU_HASH
};

Symbols symbols_of(const dl_phdr_info& info) {
  Symbols symbols;
  const ElfW(Phdr)* const headers = info.dlpi_phdr;
  const ElfW(Phdr)* const dynamic = std::find_if(
      headers, headers + info.dlpi_phnum, [](const auto& one) { return one.p_type == PT_DYNAMIC; });
  if (dynamic == headers + info.dlpi_phnum) {
    return symbols;
  }
  for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + dynamic->p_vaddr);
       entry->d_tag != DT_NULL; ++entry) {
    // glibc's loader has made addresses of them, on most processors.
    const ElfW(Addr) value = entry->d_un.d_ptr;
    const ElfW(Addr) at = value < info.dlpi_addr ? info.dlpi_addr + value : value;
    switch (entry->d_tag) {
      case DT_SYMTAB:
        symbols.all = reinterpret_cast<const ElfW(Sym)*>(at);
        break;
      case DT_STRTAB:
        symbols.names = reinterpret_cast<const char*>(at);
        break;
      case DT_GNU_HASH:
        symbols.hashes = reinterpret_cast<const std::uint32_t*>(at);
        break;
      default:
        break;
    }
  }
  return symbols;
}

// The hash of DT_GNU_HASH.
std::uint32_t hash_of(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != '\0'; ++name) {
    hash = hash * 33 + static_cast<unsigned char>(*name);
  }
  return hash;
}

// dladdr1() would look at every symbol of libc, which takes 10 us for each name.
const ElfW(Sym) * find_symbol(const Symbols& symbols, const char* name) {
  if (symbols.all == nullptr || symbols.names == nullptr || symbols.hashes == nullptr) {
    return nullptr;
  }
  // Four numbers, a filter of addresses' size, the first symbol of each bucket, and the hash of
  // each symbol. The lowest bit of a hash marks the last symbol of its bucket.
  const std::uint32_t buckets = symbols.hashes[0], first = symbols.hashes[1];
  const std::uint32_t* const bucket =
      symbols.hashes + 4 + symbols.hashes[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  const std::uint32_t hash = hash_of(name);
  std::uint32_t index = bucket[hash % buckets];
  if (index < first) {
    return nullptr;
  }
  for (const std::uint32_t* its = bucket + buckets + (index - first);; ++its, ++index) {
    const ElfW(Sym)& symbol = symbols.all[index];
    if ((*its | 1) == (hash | 1) && strcmp(symbols.names + symbol.st_name, name) == 0) {
      return &symbol;
    }
    if ((*its & 1) != 0) {
      return nullptr;
    }
  }
}

// In a libc without this hash table it is not found: the blocks of all functions stay plain.
detail::Code find_getdelim(const dl_phdr_info& info) {
  const ElfW(Sym)* const symbol = find_symbol(symbols_of(info), "getdelim");
  return symbol == nullptr ? detail::Code{}
                           : detail::Code{info.dlpi_addr + symbol->st_value, symbol->st_size};
}

int look(dl_phdr_info* info, std::size_t, void*) {
  const char* const slash = strrchr(info->dlpi_name, '/');
  const bool is_libc = slash != nullptr && strcmp(slash + 1, "libc.so.6") == 0;
  // Its name differs between machines, but the kernel tells its address.
  const bool is_loader = info->dlpi_addr == ::getauxval(AT_BASE) && info->dlpi_addr != 0;
  if (!is_libc && !is_loader) {
    return 0;
  }
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) {
      (is_libc ? detail::libc : detail::loader) = {info->dlpi_addr + segment.p_vaddr,
                                                   segment.p_memsz};
    }
  }
  if (is_libc) {
    g_getdelim = find_getdelim(*info);
  }
  return 0;
}

}  // namespace

void find_libc() {
  ::dl_iterate_phdr(look, nullptr);
}

bool stays_plain(const void* caller) {
  return !g_getdelim.contains(caller);
}

}  // namespace tiermem::preload
