// Modules and launches. A text with entries that the fake knows (kernels.hpp) is a module. Any
// other is refused, so that our programs cannot assume that it has run.
#include <cstring>
#include <string>
#include <utility>

#include "support/fake_cuda/call.hpp"
#include "support/fake_cuda/capture.hpp"
#include "support/fake_cuda/control.hpp"
#include "support/fake_cuda/entry_points.hpp"
#include "support/fake_cuda/kernels.hpp"

namespace tiermem::cuda {

using test::Call;
using test::Launch;
using test::Needs;
using test::StreamPointer;

namespace {

inline constexpr Result kInvalidText = 218;  // CUDA_ERROR_INVALID_PTX

// Returns false if a part is neither device memory nor managed memory.
bool resolve(const test::World& world, const Launch& launch, int device,
             std::vector<std::vector<test::Piece>>& all) {
  for (const Launch::Array& array : launch.arrays) {
    std::vector<test::Piece>& pieces = all.emplace_back();
    if (std::byte* const managed = world.managed_at(array.at, array.bytes); managed != nullptr) {
      pieces.push_back({managed, array.bytes, nullptr});
    } else if (!world.memory->resolve(array.at, array.bytes, device, kAccessReadWrite, pieces)) {
      return false;
    }
  }
  return true;
}

// [stream's thread]
Result run(test::World& world, std::unique_lock<std::mutex>& lock, const test::StreamState& stream,
           const Launch& launch) {
  if (const Result ordered = world.faults.count(test::FakeCuda::kWork); ordered != kSuccess) {
    return ordered;
  }
  std::vector<std::vector<test::Piece>> before;
  if (!resolve(world, launch, stream.context->device, before)) {
    return kIllegalAddress;
  }
  lock.unlock();
  std::vector<std::vector<std::byte>> bytes;
  for (const std::vector<test::Piece>& pieces : before) {
    std::vector<std::byte>& array = bytes.emplace_back();
    for (const test::Piece& piece : pieces) {
      array.insert(array.end(), piece.at, piece.at + piece.bytes);
    }
  }
  launch.run(bytes);
  for (std::size_t i = 0; i < before.size(); ++i) {
    std::size_t done = 0;
    for (const test::Piece& piece : before[i]) {
      if (launch.arrays[i].written) {
        std::memcpy(piece.at, bytes[i].data() + done, piece.bytes);
      }
      done += piece.bytes;
    }
  }
  lock.lock();
  // Memory that was unmapped in between is an illegal access.
  std::vector<std::vector<test::Piece>> after;
  const bool stands = stream.abandoned ||
                      (resolve(world, launch, stream.context->device, after) && after == before);
  return stands ? kSuccess : kIllegalAddress;
}

}  // namespace

Result cuModuleLoadData(Module* module, const void* image) {
  return test::call("cuModuleLoadData", Needs::context, [&](Call& here) -> Result {
    if (module == nullptr || image == nullptr) {
      return kInvalidValue;
    }
    const auto names = test::entries_of(static_cast<const char*>(image));
    if (names.empty()) {
      return kInvalidText;
    }
    std::map<std::string, Function> functions;
    for (const std::string_view name : names) {
      if (test::find_kernel(name) == nullptr) {
        return kInvalidText;
      }
      const auto function = here.world.new_handle<Function>();
      functions.emplace(name, function);
      here.world.functions[function] = std::string(name);
    }
    *module = here.world.new_handle<Module>();
    here.world.modules[*module] = std::move(functions);
    return kSuccess;
  });
}

Result cuModuleUnload(Module module) {
  return test::call("cuModuleUnload", Needs::release, [&](Call& here) -> Result {
    const auto known = here.world.modules.find(module);
    if (known == here.world.modules.end()) {
      return kInvalidHandle;
    }
    for (const auto& [name, function] : known->second) {
      here.world.functions.erase(function);
    }
    here.world.modules.erase(known);
    return kSuccess;
  });
}

Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  return test::call("cuModuleGetFunction", Needs::context, [&](Call& here) -> Result {
    if (function == nullptr || name == nullptr) {
      return kInvalidValue;
    }
    const auto known = here.world.modules.find(module);
    if (known == here.world.modules.end()) {
      return kInvalidHandle;
    }
    const auto found = known->second.find(name);
    if (found == known->second.end()) {
      return kNotFound;
    }
    *function = found->second;
    return kSuccess;
  });
}

Result cuLaunchKernel(Function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                      unsigned threads_x, unsigned threads_y, unsigned threads_z,
                      unsigned shared_bytes, Stream handle, void** parameters, void** extra) {
  return test::call("cuLaunchKernel", Needs::context, [&](Call& here) -> Result {
    StreamPointer stream;
    if (const Result found = here.find(handle, stream); found != kSuccess) {
      return found;
    }
    const auto known = here.world.functions.find(function);
    if (known == here.world.functions.end()) {
      return kInvalidHandle;
    }
    const std::uint64_t threads = std::uint64_t{threads_x} * threads_y * threads_z;
    const bool some = blocks_x != 0 && blocks_y != 0 && blocks_z != 0 && threads != 0;
    if (!some || threads > 1024 || shared_bytes > 48u << 10 || parameters == nullptr ||
        extra != nullptr) {
      return kInvalidValue;
    }
    bool captured = false;
    if (const Result taken = test::accept(here.world, *stream, captured);
        taken != kSuccess || captured) {
      return taken;
    }
    const auto work = [launch = test::find_kernel(known->second)->read(parameters),
                       own = stream.get()](auto& lock) {
      return run(test::world(), lock, *own, launch);
    };
    test::submit(here.world, stream, work);
    return kSuccess;
  });
}

}  // namespace tiermem::cuda
