// Replacements for the driver's functions on device memory. They handle blocks of the tier. All
// other calls go to the driver unchanged, and so does every call while nothing is tiered.
//
// Threads: any. Results are the driver's own, or those that the driver would return.
#include <algorithm>
#include <limits>
#include <optional>

#include "base/arena.hpp"
#include "base/checked.hpp"
#include "base/log.hpp"
#include "preload/cuda_symbols.hpp"
#include "preload/device_tiering.hpp"
#include "runtime/device_memory.hpp"

namespace tiermem::preload {
namespace {

using cuda::DevicePointer;
using cuda::Result;
using cuda::Stream;

// Values of CUpointer_attribute.
constexpr int kRangeStart = 11, kRangeSize = 12;

template <auto Function, typename... Arguments>
Result pass(Arguments... arguments) {
  const cuda::Symbols* const driver = cuda_symbols();
  if (driver == nullptr) {
    return cuda::kNotInitialized;
  }
  return driver->*Function != nullptr ? (driver->*Function)(arguments...) : cuda::kNotSupported;
}

void* pointer(DevicePointer at) {
  return reinterpret_cast<void*>(at);  // NOLINT: a device's address.
}

DevicePointer address(const void* at) {
  return reinterpret_cast<DevicePointer>(at);
}

// ---- memory ------------------------------------------------------------------------------------

bool is_lack_of_room(Code code) {
  return code == Code::no_capacity || code == Code::timed_out || code == Code::busy;
}

/// Returns the tier's answer, or nothing if the driver must answer. The only failure that it
/// reports is lack of room, because the driver describes all others better.
std::optional<Result> allocate(DevicePointer* at, std::size_t bytes) {
  const cuda::Symbols* const driver = cuda_symbols();
  if (at == nullptr || driver == nullptr) {
    return std::nullopt;
  }
  Place gpu;
  const DeviceTier* const tier = tier_for(*driver, bytes, gpu);
  if (tier == nullptr) {
    return std::nullopt;
  }
  const ArenaScope inside;
  const auto block = tier->memory.allocate(gpu, bytes, 1);
  if (!block.ok()) {
    log_info("{} bytes of device memory: {}", bytes, block.message());
    return is_lack_of_room(block.code()) ? std::optional(cuda::kOutOfMemory) : std::nullopt;
  }
  *at = address(*block);
  return cuda::kSuccess;
}

/// The block of the tier that contains the address.
std::optional<DeviceMemory::Block> block_of(DevicePointer at) {
  const DeviceTier* const tier = at == 0 || inside_tiermem() ? nullptr : device_tier();
  if (tier == nullptr) {
    return std::nullopt;
  }
  const ArenaScope inside;
  return tier->memory.find(pointer(at));
}

Result give_back(DevicePointer at, const StreamOrder& after) {
  const ArenaScope inside;
  const Status freed = device_tier()->memory.free(pointer(at), after);
  if (!freed.ok()) {
    log_warn("freeing device memory: {}", freed.message());
  }
  return freed.ok() ? cuda::kSuccess : cuda::kInvalidValue;
}

// Like the driver's function, waits for all running work, because the next owner of the memory may
// write at once. A broken context runs nothing, so its failure is returned without waiting.
Result free_now(DevicePointer at) {
  const Result waited = synchronize_devices(*cuda_symbols());
  if (cuda::is_of_capture(waited)) {
    return waited;  // The devices did not wait.
  }
  const Result freed = give_back(at, {});
  return waited != cuda::kSuccess ? waited : freed;
}

/// A captured allocation belongs to the graph. If the query fails, the driver must report the
/// error.
bool is_captured(Stream stream) {
  int status = 0;
  return pass<&cuda::Symbols::cuStreamIsCapturing>(stream, &status) != cuda::kSuccess ||
         status != 0;
}

/// `by_default`: the stream that NULL stands for.
template <auto Function>
Result allocate_for(DevicePointer* at, std::size_t bytes, Stream stream, Stream by_default) {
  std::optional<Result> result;
  if (device_tiering_asked() && !is_captured(stream == nullptr ? by_default : stream)) {
    result = allocate(at, bytes);  // Valid for all work that the stream receives from now on.
  }
  return result ? *result : pass<Function>(at, bytes, stream);
}

template <auto Function>
Result free_after(DevicePointer at, Stream stream, Stream by_default) {
  const auto block = block_of(at);
  const Stream order = stream == nullptr ? by_default : stream;
  if (!block || is_captured(order)) {
    return pass<Function>(at, stream);
  }
  return block->begin == pointer(at) ? give_back(at, cuda_stream(order)) : cuda::kInvalidValue;
}

/// Sets `free` to the bytes that the program can still allocate on the current device. These are
/// the driver's free bytes plus those that the tier keeps for its next block, up to the rest of the
/// budget. With several devices the tier has only totals, so the driver's answer stays.
void count_what_the_tier_has(const cuda::Symbols& driver, std::size_t& free) {
  const DeviceTier* const tier = inside_tiermem() ? nullptr : device_tier();
  if (tier == nullptr || !has_one_device() || !is_tiered(current_device(driver))) {
    return;
  }
  const ArenaScope inside;
  const Stats stats = tier->context.stats();
  const auto less = [](std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; };
  const std::uint64_t held = less(stats.gpu_placed, stats.gpu_paused);
  free = std::min(free + less(stats.gpu_used, held), less(stats.gpu_budget, held));
}

}  // namespace
}  // namespace tiermem::preload

namespace tiermem::cuda {

using namespace tiermem::preload;  // NOLINT: the definitions below are C's.

// ---- lookup of functions -----------------------------------------------------------------------

Result cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
  const Result result = pass<&Symbols::cuGetProcAddress>(name, function, version, flags);
  if (result == kSuccess && function != nullptr && device_tiering_asked()) {
    *function = replaced(*function);
  }
  return result;
}

Result cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                           int* status) {
  const Result result = pass<&Symbols::cuGetProcAddress_v2>(name, function, version, flags, status);
  if (result == kSuccess && function != nullptr && device_tiering_asked()) {
    *function = replaced(*function);
  }
  return result;
}

// ---- memory ------------------------------------------------------------------------------------

Result cuMemAlloc_v2(DevicePointer* at, std::size_t bytes) {
  const auto result = allocate(at, bytes);
  return result ? *result : pass<&Symbols::cuMemAlloc_v2>(at, bytes);
}

Result cuMemAllocPitch_v2(DevicePointer* at, std::size_t* pitch, std::size_t width,
                          std::size_t height, unsigned element) {
  constexpr std::size_t kPitch = 512;  // Alignment of rows on current devices.
  const bool good = pitch != nullptr && (element == 4 || element == 8 || element == 16) &&
                    width <= std::numeric_limits<std::size_t>::max() - kPitch;
  const std::size_t row = good ? round_up(width, kPitch) : 0;
  std::size_t bytes = 0;
  if (good && !__builtin_mul_overflow(row, height, &bytes)) {
    if (const auto result = allocate(at, bytes)) {
      *pitch = *result == kSuccess ? row : *pitch;
      return *result;
    }
  }
  return pass<&Symbols::cuMemAllocPitch_v2>(at, pitch, width, height, element);
}

Result cuMemFree_v2(DevicePointer at) {
  const auto block = block_of(at);
  if (!block) {
    return pass<&Symbols::cuMemFree_v2>(at);
  }
  return block->begin == pointer(at) ? free_now(at) : kInvalidValue;
}

Result cuMemAllocAsync(DevicePointer* at, std::size_t bytes, Stream stream) {
  return allocate_for<&Symbols::cuMemAllocAsync>(at, bytes, stream, legacy_stream());
}

Result cuMemAllocAsync_ptsz(DevicePointer* at, std::size_t bytes, Stream stream) {
  return allocate_for<&Symbols::cuMemAllocAsync_ptsz>(at, bytes, stream, per_thread_stream());
}

Result cuMemFreeAsync(DevicePointer at, Stream stream) {
  return free_after<&Symbols::cuMemFreeAsync>(at, stream, legacy_stream());
}

Result cuMemFreeAsync_ptsz(DevicePointer at, Stream stream) {
  return free_after<&Symbols::cuMemFreeAsync_ptsz>(at, stream, per_thread_stream());
}

// ---- queries about memory ----------------------------------------------------------------------

Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  const Result result = pass<&Symbols::cuMemGetInfo_v2>(free, total);
  if (result == kSuccess && free != nullptr) {
    count_what_the_tier_has(*cuda_symbols(), *free);
  }
  return result;
}

Result cuMemGetAddressRange_v2(DevicePointer* begin, std::size_t* bytes, DevicePointer at) {
  const auto block = block_of(at);
  if (!block) {
    return pass<&Symbols::cuMemGetAddressRange_v2>(begin, bytes, at);
  }
  if (begin != nullptr) {
    *begin = address(block->begin);
  }
  if (bytes != nullptr) {
    *bytes = block->bytes;
  }
  return kSuccess;
}

Result cuPointerGetAttribute(void* value, int attribute, DevicePointer at) {
  if (value == nullptr || (attribute != kRangeStart && attribute != kRangeSize)) {
    return pass<&Symbols::cuPointerGetAttribute>(value, attribute, at);
  }
  const auto block = block_of(at);
  if (!block) {
    return pass<&Symbols::cuPointerGetAttribute>(value, attribute, at);
  }
  if (attribute == kRangeStart) {
    *static_cast<DevicePointer*>(value) = address(block->begin);
  } else {
    *static_cast<std::size_t*>(value) = block->bytes;
  }
  return kSuccess;
}

// The driver knows the mapping at the address. It does not know where the block begins and ends.
Result cuPointerGetAttributes(unsigned count, int* attributes, void** values, DevicePointer at) {
  const Result result = pass<&Symbols::cuPointerGetAttributes>(count, attributes, values, at);
  if (result != kSuccess || !block_of(at)) {
    return result;
  }
  for (unsigned i = 0; i < count; ++i) {
    if (attributes[i] == kRangeStart || attributes[i] == kRangeSize) {
      (void)cuPointerGetAttribute(values[i], attributes[i], at);
    }
  }
  return kSuccess;
}

// ---- sharing with processes and devices --------------------------------------------------------

Result cuIpcGetMemHandle(void* handle, DevicePointer at) {
  if (!block_of(at)) {
    return pass<&Symbols::cuIpcGetMemHandle>(handle, at);
  }
  log_warn("cuIpcGetMemHandle: tiered device memory cannot be shared with other processes");
  return kNotSupported;
}

Result cuDeviceCanAccessPeer(int* can, Device device, Device peer) {
  const Result result = pass<&Symbols::cuDeviceCanAccessPeer>(can, device, peer);
  if (result == kSuccess && is_tiered(peer)) {
    *can = 0;
  }
  return result;
}

// Blocks are mapped for their own device only. A kernel on another device that reads one would fail
// and end the program.
Result cuCtxEnablePeerAccess(Context peer, unsigned flags) {
  const Symbols* const driver = cuda_symbols();
  Device other = -1;
  if (driver != nullptr && device_tiering_asked() &&
      driver->cuCtxPushCurrent_v2(peer) == kSuccess) {
    other = current_device(*driver);
    (void)driver->cuCtxPopCurrent_v2(&peer);
  }
  if (!is_tiered(other)) {
    return pass<&Symbols::cuCtxEnablePeerAccess>(peer, flags);
  }
  log_warn("no peer access to GPU {}: its memory is tiered", other);
  return kPeerAccessUnsupported;
}

}  // namespace tiermem::cuda
