// Creates the world, and resets it.
#include "support/fake_cuda/world.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <new>

namespace tiermem::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// The real driver does not work in a child of a process that has called cuInit. Without this, the
// child would start with a lock held by a thread that does not exist there.
void in_child() {
  World& all = world();
  all.forked = all.initialized.load();
  new (&all.mutex) std::mutex;
}

}  // namespace

World& world() {
  static World* const only = new World;
  return *only;
}

World::World() {
  set_defaults();
  ::pthread_atfork(nullptr, nullptr, in_child);
}

void World::set_defaults() {
  memory = std::make_unique<DeviceMemory>();
  memory->granularity = 2 * kMiB;
  for (DeviceBooks& each : memory->books) {
    each.capacity = 256 * kMiB;
  }
  host = std::make_unique<HostMemory>();
  settings = {};
  faults = {};
  devices = {};
  copied_bytes = pageable_bytes = peer_bytes = 0;
  initialized = false;
  forked = false;
}

void World::reset() {
  std::unique_lock lock(mutex);
  std::vector<StreamPointer> all;
  for (const auto& [handle, stream] : streams) {
    all.push_back(stream);
  }
  for (const auto& [handle, context] : contexts) {
    all.push_back(context->legacy);
  }
  for (const StreamPointer& stream : all) {
    stream->abandoned = true;
    stream->closed = true;
    stream->asked.notify_one();
  }
  changed.notify_all();
  // Running work uses memory of the test, which may be gone after this.
  for (const MarkPointer& mark : under_way(*this, nullptr)) {
    await(*this, lock, mark);
  }
  streams.clear();
  own_streams.clear();
  events.clear();
  contexts.clear();
  graphs.clear();
  modules.clear();
  functions.clear();
  while (!managed.empty()) {
    (void)free_managed(managed.begin()->first);
  }
  set_defaults();
  ++age;
}

std::byte* World::managed_at(cuda::DevicePointer at, std::uint64_t bytes) const {
  auto around = managed.upper_bound(at);
  if (around == managed.begin()) {
    return nullptr;
  }
  --around;
  const std::uint64_t offset = at - around->first;
  return offset <= around->second && bytes <= around->second - offset
             ? reinterpret_cast<std::byte*>(at)
             : nullptr;
}

bool World::free_managed(cuda::DevicePointer at) {
  const auto found = managed.find(at);
  if (found == managed.end()) {
    return false;
  }
  ::munmap(reinterpret_cast<void*>(at), found->second);
  managed.erase(found);
  return true;
}

ContextState& World::make_context(int device_index) {
  all_contexts.push_back(std::make_unique<ContextState>());
  ContextState& made = *all_contexts.back();
  made.handle = new_handle<cuda::Context>();
  made.device = device_index;
  made.legacy = std::make_shared<StreamState>();
  made.legacy->context = &made;
  made.legacy->legacy = true;
  contexts[made.handle] = &made;
  return made;
}

cuda::Stream World::own_stream(ContextState& context) {
  cuda::Stream& handle = own_streams[{&context, std::this_thread::get_id()}];
  if (handle == nullptr) {
    handle = new_handle<cuda::Stream>();
    streams[handle] = std::make_shared<StreamState>();
    streams[handle]->context = &context;
  }
  return handle;
}

// Call it when no work is under way in the context.
void World::destroy_context(ContextState& context) {
  std::erase_if(streams, [&](const auto& entry) {
    const bool its = entry.second->context == &context;
    if (its) {
      close_stream(*entry.second);
    }
    return its;
  });
  std::erase_if(own_streams, [&](const auto& entry) { return entry.first.first == &context; });
  close_stream(*context.legacy);
  std::erase_if(events, [&](const auto& entry) { return entry.second.context == &context; });
  context.destroyed = true;
}

}  // namespace tiermem::test
