// The calls of tiermem_preload.h that move sets of device memory out and back. Operations that
// nothing has waited for are kept here, so that the program can use names instead of handles.
//
// Threads: any.
#include <string.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "base/arena.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "preload/cuda_symbols.hpp"
#include "preload/device_tiering.hpp"
#include "runtime/device_memory.hpp"
#include "tiermem_preload.h"

namespace tiermem::preload {
namespace {

constexpr std::size_t kTagBytes = 32;  // Including the terminating zero.

/// A pause or resume that has begun and that no call has waited for. The entry is free when it
/// holds neither an operation nor the failure of one that ended.
struct Begun {
  OpHandle op = 0;
  Code failure = Code::ok;
  char tag[kTagBytes] = {};
  bool of_all = false;

  bool free() const { return op == 0 && failure == Code::ok; }
  bool concerns(const char* set) const {
    return !free() && (set == nullptr || of_all || ::strcmp(tag, set) == 0);
  }
};

// Held by one waiter at a time; the next finds its operation finished.
constinit std::mutex g_waiting;
constinit std::mutex g_mutex;
// Guarded by g_mutex. No thread waits for an operation while it holds g_mutex.
constinit std::array<Begun, 64> g_begun{};

constinit thread_local char t_error[256] = {};

int answer(const char* call, const Status& status) {
  if (status.ok()) {
    return 0;
  }
  set_text(t_error, status.message());
  log_warn("{}: {}", call, status.message());
  return static_cast<int>(status.code());
}

Status check_tag(const char* tag) {
  if (tag != nullptr && ::strnlen(tag, kTagBytes) == kTagBytes) {
    return fail(Code::invalid_argument, "tag: too long; accepted are at most {} characters",
                kTagBytes - 1);
  }
  return {};
}

Status check_tiering() {
  const char* const why = why_no_device_tier();
  return why == nullptr ? Status() : fail(Code::unavailable, "nothing is tiered: {}", why);
}

// The tier moves nothing before the device has finished using it.
Status await_devices() {
  const cuda::Symbols* const driver = cuda_symbols();
  const cuda::Result result = synchronize_devices(*driver);
  if (result == cuda::kSuccess) {
    return {};
  }
  return fail_native(cuda::is_of_capture(result) ? Code::unsupported : Code::io_error, result,
                     "device: cuCtxSynchronize gave {}; {}", result,
                     cuda::is_of_capture(result) ? "end the capture first"
                                                 : "fix the program's error on the device");
}

// ---- operations under way ----------------------------------------------------------------------

/// Returns a free entry, or null. An operation that succeeded frees its entry; a failure stays
/// until the program asks for it.
Begun* find_place(Context& context) {
  for (Begun& each : g_begun) {
    if (each.op != 0) {
      const Code ended = context.op_poll(each.op).code();
      each.op = ended == Code::busy ? each.op : 0;
      each.failure = ended == Code::busy ? Code::ok : ended;
    }
    if (each.free()) {
      return &each;
    }
  }
  return nullptr;
}

Status keep(Context& context, const char* tag, OpHandle op) {
  const std::lock_guard lock(g_mutex);
  Begun* const place = find_place(context);
  if (place == nullptr) {
    return fail(Code::busy,
                "{} moves of sets are under way, which is the maximum; wait for some of them",
                g_begun.size());
  }
  place->op = op;
  place->of_all = tag == nullptr;
  set_text(place->tag, tag != nullptr ? tag : "");
  return {};
}

/// Takes an entry that concerns the set; returns an empty one if there is none.
Begun take_one(const char* tag) {
  const std::lock_guard lock(g_mutex);
  const auto found = std::find_if(g_begun.begin(), g_begun.end(),
                                  [tag](const Begun& each) { return each.concerns(tag); });
  return found == g_begun.end() ? Begun() : std::exchange(*found, {});
}

// ---- the calls ---------------------------------------------------------------------------------

/// `begin(memory)` starts the move.
template <typename Begin>
Status move_set(const char* tag, std::uint32_t flags, bool out, const Begin& begin) {
  Status status = check_tag(tag);
  if (status.ok() && (flags & ~TIERMEM_GPU_ASYNC) != 0) {
    status = fail(Code::invalid_argument, "flags {:#x} are unknown; accepted is TIERMEM_GPU_ASYNC",
                  flags & ~TIERMEM_GPU_ASYNC);
  }
  status = status.ok() ? check_tiering() : std::move(status);
  const DeviceTier* const tier = device_tier();
  if (!status.ok() || tier == nullptr) {
    return status;  // Nothing has been allocated, so there are no bytes to move.
  }
  status = out ? await_devices() : Status();
  if (!status.ok()) {
    return status;
  }
  const Result<OpHandle> op = begin(tier->memory);
  if (!op.ok()) {
    return op.status().clone();
  }
  if ((flags & TIERMEM_GPU_ASYNC) != 0) {
    Status kept = keep(tier->context, tag, *op);
    if (kept.ok()) {
      return kept;
    }
    log_warn("{}; this call waits for its move", kept.message());
  }
  return tier->context.op_wait(*op, Timeout::forever());
}

Status await_sets(const char* tag) {
  Status status = check_tag(tag);
  status = status.ok() ? check_tiering() : std::move(status);
  const DeviceTier* const tier = device_tier();
  if (!status.ok() || tier == nullptr) {
    return status;
  }
  const std::lock_guard lock(g_waiting);
  for (Begun each = take_one(tag); !each.free(); each = take_one(tag)) {
    Status ended = each.op != 0
                       ? tier->context.op_wait(each.op, Timeout::forever())
                       : fail(each.failure, "set '{}': a move has failed ({}); try it again",
                              each.tag, code_name(each.failure));
    status = status.ok() ? std::move(ended) : std::move(status);
  }
  return status;
}

}  // namespace
}  // namespace tiermem::preload

using namespace tiermem;           // NOLINT: the definitions below are C's.
using namespace tiermem::preload;  // NOLINT

extern "C" {

int tiermem_gpu_tag(const char* tag) {
  const ArenaScope inside;
  Status status = check_tag(tag);
  if (status.ok()) {
    set_device_tag(tag);
    status = check_tiering();
  }
  return answer("tiermem_gpu_tag", status);
}

int tiermem_gpu_pause(const char* tag, std::uint64_t bytes, std::uint32_t flags) {
  const ArenaScope inside;
  return answer("tiermem_gpu_pause", move_set(tag, flags, true, [&](DeviceMemory& memory) {
                  return memory.pause(tag, bytes, {});
                }));
}

int tiermem_gpu_resume(const char* tag, std::uint64_t bytes, std::uint32_t flags) {
  const ArenaScope inside;
  return answer("tiermem_gpu_resume", move_set(tag, flags, false, [&](DeviceMemory& memory) {
                  return memory.resume(tag, bytes);
                }));
}

int tiermem_gpu_wait(const char* tag) {
  const ArenaScope inside;
  return answer("tiermem_gpu_wait", await_sets(tag));
}

const char* tiermem_gpu_error(void) {
  return t_error;
}

}  // extern "C"
