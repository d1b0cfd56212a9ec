// The calls on a device's memory: cuMemAlloc, and separate addresses, memory and mappings.
#include <cstring>

#include "base/checked.hpp"
#include "support/fake_cuda/call.hpp"
#include "support/fake_cuda/capture.hpp"
#include "support/fake_cuda/entry_points.hpp"

namespace tiermem::cuda {

using test::Call;
using test::DeviceMemory;
using test::Needs;

namespace {

// Values of CUpointer_attribute.
enum : int {
  kContextOf = 1,
  kMemoryType = 2,
  kDevicePointerOf = 3,
  kSyncMemops = 6,
  kBufferId = 7,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kRangeStart = 11,
  kRangeSize = 12
};
enum : unsigned { kHostMemory = 1, kDeviceMemory = 2 };

bool pinned_on_device(const AllocationProperties* properties) {
  return properties != nullptr && properties->type == kAllocationPinned &&
         properties->location.type == kLocationDevice && properties->handle_types == 0;
}

// A device given by number instead of a context.
Result present(Call& here, int device) {
  if (!here.world.has_device(device)) {
    return kInvalidDevice;
  }
  return here.world.device(device).lost ? kDeviceUnavailable : kSuccess;
}

Result host_attribute(Call& here, void* value, int attribute, DevicePointer at) {
  void* const address = reinterpret_cast<void*>(at);
  if (here.world.host->sort_of(address, 1) != test::HostMemory::Sort::locked) {
    return kInvalidValue;
  }
  switch (attribute) {
    case kContextOf:
      *static_cast<Context*>(value) = here.context->handle;
      return kSuccess;
    case kMemoryType:
      *static_cast<unsigned*>(value) = kHostMemory;
      return kSuccess;
    case kDevicePointerOf:
      *static_cast<DevicePointer*>(value) = at;
      return kSuccess;
    case kDeviceOrdinal:
      *static_cast<int*>(value) = here.context->device;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

// The context of device memory. Mapped memory belongs to no context.
Context context_of(Call& here, DevicePointer base, int device) {
  const test::ContextState* const primary = here.world.device(device).primary;
  return here.world.memory->allocated(base) && primary != nullptr ? primary->handle : nullptr;
}

// The attribute of any address, by CUpointer_attribute.
Result attribute_of(Call& here, void* value, int attribute, DevicePointer at) {
  if (value == nullptr) {
    return kInvalidValue;
  }
  DevicePointer base = 0;
  std::uint64_t bytes = 0;
  int device = 0;
  if (!here.world.memory->find(at, base, bytes, device)) {
    return host_attribute(here, value, attribute, at);
  }
  switch (attribute) {
    case kContextOf:
      *static_cast<Context*>(value) = context_of(here, base, device);
      return kSuccess;
    case kMemoryType:
      *static_cast<unsigned*>(value) = kDeviceMemory;
      return kSuccess;
    case kDevicePointerOf:
      *static_cast<DevicePointer*>(value) = at;
      return kSuccess;
    case kBufferId:
      *static_cast<unsigned long long*>(value) = here.world.memory->id_at(at);
      return kSuccess;
    case kIsManaged:
      *static_cast<bool*>(value) = false;
      return kSuccess;
    case kDeviceOrdinal:
      *static_cast<int*>(value) = device;
      return kSuccess;
    case kRangeStart:
      *static_cast<DevicePointer*>(value) = base;
      return kSuccess;
    case kRangeSize:
      *static_cast<std::size_t*>(value) = bytes;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

}  // namespace

Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return test::call("cuMemGetInfo", Needs::context, [&](Call& here) -> Result {
    if (free == nullptr || total == nullptr) {
      return kInvalidValue;
    }
    const test::DeviceBooks& books = here.world.books(here.context->device);
    *free = books.free();
    *total = books.capacity;
    return kSuccess;
  });
}

Result cuMemAlloc_v2(DevicePointer* at, std::size_t bytes) {
  return test::call("cuMemAlloc", Needs::context, [&](Call& here) -> Result {
    if (at == nullptr) {
      return kInvalidValue;
    }
    if (const Result refused = test::refuse_in_capture(here.world); refused != kSuccess) {
      return refused;
    }
    return here.world.memory->allocate(here.context->device, bytes, *at);
  });
}

Result cuMemAllocPitch_v2(DevicePointer* at, std::size_t* pitch, std::size_t width,
                          std::size_t height, unsigned element) {
  return test::call("cuMemAllocPitch", Needs::context, [&](Call& here) -> Result {
    constexpr std::size_t kPitch = 512;  // As on current devices.
    if (at == nullptr || pitch == nullptr || (element != 4 && element != 8 && element != 16)) {
      return kInvalidValue;
    }
    if (const Result refused = test::refuse_in_capture(here.world); refused != kSuccess) {
      return refused;
    }
    *pitch = round_up(width, kPitch);
    return here.world.memory->allocate(here.context->device, *pitch * height, *at);
  });
}

Result cuMemFree_v2(DevicePointer at) {
  return test::call("cuMemFree", Needs::release, [&](Call& here) -> Result {
    if (const Result refused = test::refuse_in_capture(here.world); refused != kSuccess) {
      return refused;
    }
    // As observed on the real driver: it waits for all running work.
    test::await_all(here.world, here.lock, nullptr);
    return at == 0 || here.world.free_managed(at) ? kSuccess : here.world.memory->free(at);
  });
}

Result cuMemGetAddressRange_v2(DevicePointer* base, std::size_t* bytes, DevicePointer at) {
  return test::call("cuMemGetAddressRange", Needs::context, [&](Call& here) -> Result {
    DevicePointer found_base = 0;
    std::uint64_t found_bytes = 0;
    int device = 0;
    if (!here.world.memory->find(at, found_base, found_bytes, device)) {
      return kNotFound;
    }
    if (base != nullptr) {
      *base = found_base;
    }
    if (bytes != nullptr) {
      *bytes = found_bytes;
    }
    return kSuccess;
  });
}

Result cuPointerGetAttribute(void* value, int attribute, DevicePointer at) {
  return test::call("cuPointerGetAttribute", Needs::context,
                    [&](Call& here) { return attribute_of(here, value, attribute, at); });
}

Result cuPointerGetAttributes(unsigned count, int* attributes, void** values, DevicePointer at) {
  return test::call("cuPointerGetAttributes", Needs::context, [&](Call& here) -> Result {
    if (attributes == nullptr || values == nullptr) {
      return kInvalidValue;
    }
    Result result = kSuccess;
    for (unsigned i = 0; i < count && result == kSuccess; ++i) {
      result = attribute_of(here, values[i], attributes[i], at);
    }
    return result;
  });
}

Result cuPointerSetAttribute(const void* value, int attribute, DevicePointer at) {
  return test::call("cuPointerSetAttribute", Needs::context, [&](Call& here) -> Result {
    // All copies are ordered here, so the attribute has no effect.
    const bool known = value != nullptr && attribute == kSyncMemops;
    return known && here.world.memory->owns(at) ? kSuccess : kInvalidValue;
  });
}

Result cuIpcGetMemHandle(void* handle, DevicePointer at) {
  return test::call("cuIpcGetMemHandle", Needs::context, [&](Call& here) -> Result {
    constexpr std::size_t kBytes = 64;  // Size of a CUipcMemHandle.
    if (handle == nullptr || !here.world.memory->allocated(at)) {
      return kInvalidValue;
    }
    std::memset(handle, 0, kBytes);
    std::memcpy(handle, &at, sizeof(at));
    return kSuccess;
  });
}

Result cuMemGetAllocationGranularity(std::size_t* bytes, const AllocationProperties* properties,
                                     int option) {
  return test::call("cuMemGetAllocationGranularity", Needs::driver, [&](Call& here) -> Result {
    if (bytes == nullptr || !pinned_on_device(properties) || option < 0 || option > 1) {
      return kInvalidValue;
    }
    *bytes = here.world.memory->granularity;
    return here.world.has_device(properties->location.id) ? kSuccess : kInvalidDevice;
  });
}

Result cuMemAddressReserve(DevicePointer* at, std::size_t bytes, std::size_t alignment,
                           DevicePointer wanted, unsigned long long flags) {
  return test::call("cuMemAddressReserve", Needs::memory, [&](Call& here) {
    return at == nullptr || flags != 0 ? kInvalidValue
                                       : here.world.memory->reserve(bytes, alignment, wanted, *at);
  });
}

Result cuMemAddressFree(DevicePointer at, std::size_t bytes) {
  return test::call("cuMemAddressFree", Needs::release_memory,
                    [&](Call& here) { return here.world.memory->free_reservation(at, bytes); });
}

Result cuMemCreate(MemoryHandle* handle, std::size_t bytes, const AllocationProperties* properties,
                   unsigned long long flags) {
  return test::call("cuMemCreate", Needs::memory, [&](Call& here) -> Result {
    if (handle == nullptr || flags != 0 || !pinned_on_device(properties)) {
      return kInvalidValue;
    }
    const Result there = present(here, properties->location.id);
    return there == kSuccess ? here.world.memory->create(properties->location.id, bytes, *handle)
                             : there;
  });
}

Result cuMemRelease(MemoryHandle handle) {
  return test::call("cuMemRelease", Needs::release_memory,
                    [&](Call& here) { return here.world.memory->release(handle); });
}

Result cuMemMap(DevicePointer at, std::size_t bytes, std::size_t offset, MemoryHandle handle,
                unsigned long long flags) {
  return test::call("cuMemMap", Needs::memory, [&](Call& here) {
    // According to the reference, an offset is for future drivers.
    return offset != 0 || flags != 0 ? kInvalidValue : here.world.memory->map(at, bytes, handle);
  });
}

Result cuMemUnmap(DevicePointer at, std::size_t bytes) {
  return test::call("cuMemUnmap", Needs::release_memory,
                    [&](Call& here) { return here.world.memory->unmap(at, bytes); });
}

Result cuMemSetAccess(DevicePointer at, std::size_t bytes, const AccessDescription* access,
                      std::size_t count) {
  return test::call("cuMemSetAccess", Needs::memory, [&](Call& here) -> Result {
    if (access == nullptr || count == 0) {
      return kInvalidValue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const AccessDescription& each = access[i];
      if (each.location.type != kLocationDevice ||
          (each.flags != 0 && each.flags != 1 && each.flags != kAccessReadWrite)) {
        return kInvalidValue;
      }
      Result result = present(here, each.location.id);
      if (result == kSuccess) {
        result = here.world.memory->set_access(at, bytes, each.location.id, each.flags);
      }
      if (result != kSuccess) {
        return result;
      }
    }
    return kSuccess;
  });
}

}  // namespace tiermem::cuda
