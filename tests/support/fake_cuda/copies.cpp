// Moves the bytes.
#include "support/fake_cuda/copies.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "support/fake_cuda/capture.hpp"
#include "support/fake_cuda/control.hpp"

namespace tiermem::test {
namespace {

struct Sides {
  std::vector<Piece> to, from;

  bool operator==(const Sides&) const = default;
};

bool is_devices(const World& world, cuda::DevicePointer at, Side side) {
  return side == Side::device || (side == Side::any && world.memory->owns(at));
}

// Returns false if a part is device memory and is unmapped or inaccessible.
bool resolve(const World& world, const Copy& copy, int device, Sides& sides) {
  const auto one = [&](cuda::DevicePointer at, Side side, int whose, int access,
                       std::vector<Piece>& pieces) {
    if (is_devices(world, at, side)) {
      return world.memory->resolve(at, copy.bytes, whose < 0 ? device : whose, access, pieces);
    }
    pieces.push_back({reinterpret_cast<std::byte*>(at), copy.bytes, nullptr});
    return true;
  };
  return one(copy.to, copy.to_side, copy.to_device, cuda::kAccessReadWrite, sides.to) &&
         (copy.sets || one(copy.from, copy.from_side, copy.from_device, 1, sides.from));
}

bool between_devices(const Sides& sides) {
  const auto device_of = [](const std::vector<Piece>& pieces) {
    return pieces.empty() || pieces.front().memory == nullptr ? -1
                                                              : pieces.front().memory->device();
  };
  const int to = device_of(sides.to);
  const int from = device_of(sides.from);
  return to >= 0 && from >= 0 && to != from;
}

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_write_range(void* at, std::size_t bytes);

// The mover copies an extent from a device while a program may write it there, and then discards
// the copy. So the read is none to report; the write is.
__attribute__((no_sanitize("thread"), noinline)) void read_device(std::byte* to,
                                                                  const std::byte* from,
                                                                  std::uint64_t bytes) {
  __tsan_write_range(to, bytes);
  std::uint64_t at = 0;
  for (; at + 64 <= bytes; at += 64) {
    __builtin_memcpy(to + at, from + at, 64);
  }
  for (; at < bytes; ++at) {
    to[at] = from[at];
  }
}
#else
void read_device(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  std::memmove(to, from, bytes);
}
#endif

void move_bytes(const Sides& sides) {
  std::size_t to = 0;
  std::size_t from = 0;
  std::uint64_t to_done = 0;
  std::uint64_t from_done = 0;
  while (to < sides.to.size() && from < sides.from.size()) {
    const Piece& target = sides.to[to];
    const Piece& source = sides.from[from];
    const std::uint64_t now = std::min(target.bytes - to_done, source.bytes - from_done);
    if (source.memory != nullptr) {
      read_device(target.at + to_done, source.at + from_done, now);
    } else {
      std::memmove(target.at + to_done, source.at + from_done, now);
    }
    to_done += now;
    from_done += now;
    if (to_done == target.bytes) {
      ++to;
      to_done = 0;
    }
    if (from_done == source.bytes) {
      ++from;
      from_done = 0;
    }
  }
}

// [stream's thread]
cuda::Result run(World& world, std::unique_lock<std::mutex>& lock, const StreamState& stream,
                 const Copy& copy) {
  if (const cuda::Result ordered = world.faults.count(FakeCuda::kWork); ordered != cuda::kSuccess) {
    return ordered;
  }
  Sides sides;
  if (!resolve(world, copy, stream.context->device, sides)) {
    return cuda::kIllegalAddress;
  }
  // The time passes first: until the end, a read must see old bytes, and a write must not be
  // visible.
  const std::chrono::duration<double, std::nano> of_bytes(world.settings.copy_ns_per_byte *
                                                          static_cast<double>(copy.bytes));
  take_time(world, lock, stream,
            std::max(std::chrono::duration_cast<std::chrono::nanoseconds>(of_bytes),
                     std::chrono::nanoseconds(world.settings.copy_least)));
  if (stream.abandoned || stream.context->failure != cuda::kSuccess) {
    return stream.context->failure;
  }
  lock.unlock();
  if (copy.sets) {
    for (const Piece& piece : sides.to) {
      std::memset(piece.at, copy.value, piece.bytes);
    }
  } else {
    move_bytes(sides);
  }
  lock.lock();
  Sides after;
  const bool stands =
      stream.abandoned || (resolve(world, copy, stream.context->device, after) && after == sides);
  world.copied_bytes += stands && !copy.sets ? copy.bytes : 0;
  world.pageable_bytes += stands && copy.pageable ? copy.bytes : 0;
  world.peer_bytes += stands && between_devices(sides) ? copy.bytes : 0;
  return stands ? cuda::kSuccess : cuda::kIllegalAddress;
}

}  // namespace

cuda::Result examine(const World& world, Copy& copy) {
  const auto one = [&](cuda::DevicePointer at, Side side) {
    if (is_devices(world, at, side) || copy.bytes == 0) {
      return cuda::kSuccess;
    }
    if (at == 0 || world.memory->owns(at)) {
      return cuda::kInvalidValue;
    }
    const HostMemory::Sort sort =
        world.host->sort_of(reinterpret_cast<const void*>(at), copy.bytes);
    copy.pageable = copy.pageable || sort == HostMemory::Sort::pageable;
    return sort == HostMemory::Sort::leaving ? cuda::kInvalidValue : cuda::kSuccess;
  };
  const cuda::Result to = one(copy.to, copy.to_side);
  return to != cuda::kSuccess || copy.sets ? to : one(copy.from, copy.from_side);
}

cuda::Result start(Call& here, const StreamPointer& stream, std::vector<Copy> copies, bool blocks) {
  bool captured = false;
  if (const cuda::Result taken = accept(here.world, *stream, captured);
      taken != cuda::kSuccess || captured) {
    return taken;
  }
  // A raw pointer, because the queue belongs to the stream, and the stream's thread keeps it alive.
  const auto work = [all = std::move(copies), own = stream.get()](auto& lock) {
    for (const Copy& copy : all) {
      if (const cuda::Result result = run(world(), lock, *own, copy); result != cuda::kSuccess) {
        return result;
      }
    }
    return cuda::kSuccess;
  };
  const MarkPointer mark = submit(here.world, stream, work);
  if (!blocks) {
    return cuda::kSuccess;
  }
  await(here.world, here.lock, mark);
  return stream->context->failure;
}

}  // namespace tiermem::test
