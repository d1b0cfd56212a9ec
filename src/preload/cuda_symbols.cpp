// Looks up the driver's functions once, under both names by which a program can find them: the
// symbol, and the name for cuGetProcAddress. The two addresses may differ.
#include "preload/cuda_symbols.hpp"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <mutex>
#include <type_traits>

#include "base/arena.hpp"
#include "os/cuda_driver.hpp"

namespace tiermem::preload {
namespace {

struct Replaced {
  const char* abi_name;
  const char* name;
  int version;
  std::uint64_t flags;
  void* ours;
};

const Replaced kReplaced[] = {
#define TIERMEM_CUDA_LINE(abi_name, name, version, flags, parameters) \
  {#abi_name, #name, version, flags, reinterpret_cast<void*>(&cuda::abi_name)},
    TIERMEM_CUDA_REPLACED(TIERMEM_CUDA_LINE)
#undef TIERMEM_CUDA_LINE
};
constexpr std::size_t kReplacedCount = std::size(kReplaced);

struct Driver {
  cuda::Symbols symbols;
  struct Addresses {
    void* by_symbol = nullptr;
    void* by_name = nullptr;  // From cuGetProcAddress.
  };
  std::array<Addresses, kReplacedCount> theirs;  // In the order of kReplaced.
};

constinit Driver g_driver;  // Written with the mutex before g_ready; constant from then on.
constinit std::atomic<bool> g_ready{false};
constinit std::mutex g_mutex;

// The driver library that the program has loaded, under the name by which the tier loads it. The
// reference taken here keeps it loaded.
void* loaded_driver() {
  const char* const named = ::secure_getenv("TIERMEM_GPU_DRIVER");
  return ::dlopen(named != nullptr && *named != '\0' ? named : CudaDriver::kUsualLibrary,
                  RTLD_LAZY | RTLD_NOLOAD);
}

Driver look_up(void* library) {
  Driver driver;
  const auto find = [library](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
  };
#define TIERMEM_CUDA_FIND(abi_name, name, version, flags, parameters) \
  find(driver.symbols.abi_name, #abi_name);
  TIERMEM_CUDA_REPLACED(TIERMEM_CUDA_FIND)
#undef TIERMEM_CUDA_FIND
#define TIERMEM_CUDA_FIND(abi_name, parameters) find(driver.symbols.abi_name, #abi_name);
  TIERMEM_CUDA_ASKED(TIERMEM_CUDA_FIND)
#undef TIERMEM_CUDA_FIND
  const auto get = driver.symbols.cuGetProcAddress_v2;
  for (std::size_t i = 0; i < kReplacedCount; ++i) {
    const Replaced& each = kReplaced[i];
    Driver::Addresses& theirs = driver.theirs[i];
    theirs.by_symbol = ::dlsym(library, each.abi_name);
    if (get == nullptr ||
        get(each.name, &theirs.by_name, each.version, each.flags, nullptr) != cuda::kSuccess) {
      theirs.by_name = nullptr;
    }
  }
  return driver;
}

}  // namespace

const cuda::Symbols* cuda_symbols() {
  if (g_ready.load(std::memory_order_acquire)) {
    return &g_driver.symbols;
  }
  const ArenaScope inside;  // Makes dlsym the loader's own as well.
  void* const library = loaded_driver();
  if (library == nullptr) {
    return nullptr;
  }
  // Before the mutex: a thread that holds the loader's lock may wait for the mutex.
  const Driver driver = look_up(library);
  const std::lock_guard lock(g_mutex);
  if (!g_ready.load(std::memory_order_relaxed)) {
    g_driver = driver;
    g_ready.store(true, std::memory_order_release);
  }
  return &g_driver.symbols;
}

bool is_replaced(const char* name) {
  return name[0] == 'c' && name[1] == 'u' &&
         std::any_of(std::begin(kReplaced), std::end(kReplaced),
                     [name](const Replaced& each) { return ::strcmp(each.abi_name, name) == 0; });
}

void* replaced(void* function) {
  if (function == nullptr || cuda_symbols() == nullptr) {
    return function;
  }
  for (std::size_t i = 0; i < kReplacedCount; ++i) {
    const Driver::Addresses& theirs = g_driver.theirs[i];
    if (function == theirs.by_symbol || function == theirs.by_name) {
      return kReplaced[i].ours;
    }
  }
  return function;
}

}  // namespace tiermem::preload
