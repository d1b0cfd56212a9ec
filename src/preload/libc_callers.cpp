// The code of libc is where its functions are, to the end of their segment.
#include "preload/libc_callers.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <array>

namespace tiermem::preload {

namespace detail {
constinit Code libc{}, linker{};
}

namespace {

constinit std::array<detail::Code, 4> g_generous{};

bool ends_with(const char* text, const char* end) {
  const std::size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

int look(dl_phdr_info* info, std::size_t, void*) {
  const char* const slash = strrchr(info->dlpi_name, '/');
  const char* const name = slash != nullptr ? slash + 1 : info->dlpi_name;
  detail::Code* const found = ends_with(name, "libc.so.6")        ? &detail::libc
                              : strncmp(name, "ld-linux", 8) == 0 ? &detail::linker
                                                                  : nullptr;
  for (int i = 0; found != nullptr && i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) {
      *found = {info->dlpi_addr + segment.p_vaddr, segment.p_memsz};
    }
  }
  return 0;
}

detail::Code code_of(const char* name) {
  void* const address = ::dlsym(RTLD_NEXT, name);
  Dl_info info{};
  ElfW(Sym)* symbol = nullptr;
  if (address == nullptr ||
      ::dladdr1(address, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) == 0 ||
      symbol == nullptr) {
    return {};
  }
  return {reinterpret_cast<std::uintptr_t>(address), symbol->st_size};
}

}  // namespace

void find_libc() {
  ::dl_iterate_phdr(look, nullptr);
  constexpr std::array kGenerous = {"strdup", "strndup", "getdelim", "wcsdup"};
  std::transform(kGenerous.begin(), kGenerous.end(), g_generous.begin(), code_of);
}

bool stays_plain(const void* caller) {
  return std::none_of(g_generous.begin(), g_generous.end(),
                      [&](const detail::Code& code) { return code.contains(caller); });
}

}  // namespace tiermem::preload
