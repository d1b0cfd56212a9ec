// cuGetProcAddress: finds a function by a name without a suffix and a version.
#include <string_view>
#include <type_traits>

#include "support/fake_cuda/call.hpp"
#include "support/fake_cuda/entry_points.hpp"

namespace tiermem::cuda {
namespace {

// Values of CUdriverProcAddressQueryResult.
enum : int { kFound = 0, kSymbolNotFound = 1, kVersionNotSufficient = 2 };

constexpr std::uint64_t kPerThreadStreams = 2;  // A value of CUdriverProcAddress_flags.

struct Symbol {
  int since;
  std::string_view name;
  void* function;
};

const Symbol kSymbols[] = {
#define TIERMEM_FAKE_CUDA_SYMBOL(since, name, abi_name, parameters) \
  {since, #name, reinterpret_cast<void*>(&abi_name)},
    TIERMEM_FAKE_CUDA_CALLS(TIERMEM_FAKE_CUDA_SYMBOL)
#define TIERMEM_FAKE_CUDA_REFUSED_SYMBOL(since, name, abi_name) \
  {since, #name, reinterpret_cast<void*>(&abi_name)},
        TIERMEM_FAKE_CUDA_REFUSED_CALLS(TIERMEM_FAKE_CUDA_REFUSED_SYMBOL)};
#undef TIERMEM_FAKE_CUDA_REFUSED_SYMBOL
const Symbol kPerThreadSymbols[] = {TIERMEM_FAKE_CUDA_PER_THREAD_CALLS(TIERMEM_FAKE_CUDA_SYMBOL)
#undef TIERMEM_FAKE_CUDA_SYMBOL
};

// Every function that tiermem asks for is here, with the version and prototype that it asks for.
namespace exported {
#define TIERMEM_FAKE_CUDA_TYPE(since, name, abi_name, parameters) \
  using name##_##since = Result parameters;
TIERMEM_FAKE_CUDA_CALLS(TIERMEM_FAKE_CUDA_TYPE)
#undef TIERMEM_FAKE_CUDA_TYPE
}  // namespace exported
#define TIERMEM_FAKE_CUDA_CHECK(required, since, name, parameters) \
  static_assert(std::is_same_v<exported::name##_##since, Result parameters>);
TIERMEM_CUDA_CALLS(TIERMEM_FAKE_CUDA_CHECK)
#undef TIERMEM_FAKE_CUDA_CHECK

// Returns the newest version of the name that both the caller and the driver know.
Result look_up(test::World& world, std::string_view wanted, void** function, int version,
               std::uint64_t flags, int& status) {
  *function = nullptr;
  status = kSymbolNotFound;
  if (version > world.settings.driver_version) {
    return kInvalidValue;
  }
  if (world.settings.hidden.contains(wanted)) {
    return kNotFound;
  }
  int newest = 0;
  for (const Symbol& symbol : kSymbols) {
    if (symbol.name != wanted || symbol.since > world.settings.driver_version) {
      continue;
    }
    if (symbol.since > version) {
      status = status == kFound ? kFound : kVersionNotSufficient;
    } else if (symbol.since > newest) {
      newest = symbol.since;
      *function = symbol.function;
      status = kFound;
    }
  }
  if (status == kFound && (flags & kPerThreadStreams) != 0) {
    for (const Symbol& symbol : kPerThreadSymbols) {
      *function = symbol.name == wanted ? symbol.function : *function;
    }
  }
  return status == kFound ? kSuccess : kNotFound;
}

}  // namespace

Result cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t flags,
                           int* status) {
  return test::call("cuGetProcAddress", test::Needs::nothing, [&](test::Call& here) -> Result {
    if (symbol == nullptr || function == nullptr) {
      return kInvalidValue;
    }
    int found = kSymbolNotFound;
    const Result result = look_up(here.world, symbol, function, version, flags, found);
    if (status != nullptr) {
      *status = found;
    }
    return result;
  });
}

#define TIERMEM_FAKE_CUDA_REFUSE(since, name, abi_name)                                 \
  Result abi_name() {                                                                   \
    return test::call(#name, test::Needs::driver, [](auto&) { return kNotSupported; }); \
  }
TIERMEM_FAKE_CUDA_REFUSED_CALLS(TIERMEM_FAKE_CUDA_REFUSE)
#undef TIERMEM_FAKE_CUDA_REFUSE

Result cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // namespace tiermem::cuda
