// C: the store of objects by key.
#include "tiermem/store.hpp"

#include <cstddef>

#include "checks.hpp"
#include "runtime/thrown.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

struct tm_store : InArena {
  tm_store(tm_context& of, std::unique_ptr<Store> made) : context(of), store(std::move(made)) {}

  tm_context& context;
  std::unique_ptr<Store> store;
};

namespace {

// An object is passed on as it is, so that an operation can write its results.
static_assert(sizeof(tm_object) == 48 && sizeof(StoreObject) == sizeof(tm_object));
static_assert(offsetof(tm_object, key) == offsetof(StoreObject, key));
static_assert(offsetof(tm_object, key_bytes) == offsetof(StoreObject, key_bytes));
static_assert(offsetof(tm_object, memory) == offsetof(StoreObject, memory));
static_assert(offsetof(tm_object, bytes) == offsetof(StoreObject, bytes));
static_assert(offsetof(tm_object, stored) == offsetof(StoreObject, stored));
static_assert(offsetof(tm_object, status) == offsetof(StoreObject, code));
static_assert(offsetof(tm_object, found) == offsetof(StoreObject, found));

std::span<StoreObject> ours(tm_object* list, std::size_t n) {
  return {reinterpret_cast<StoreObject*>(list), n};
}

tm_status check_objects(const char* call, const tm_store* store, const tm_object* list,
                        std::size_t n) {
  if (tm_status bad = check_not_null(call, store, "store")) {
    return bad;
  }
  return check_list(call, &store->context, list, n);
}

/// Runs a call on a list that never waits for a device.
template <typename Call>
tm_status with_objects(const char* call, tm_store* store, tm_object* list, std::size_t n,
                       Call&& run) {
  if (tm_status bad = check_objects(call, store, list, n)) {
    return bad;
  }
  return guarded([&] { return run(*store->store, ours(list, n)); });
}

}  // namespace

extern "C" tm_status tm_store_open(tm_context* context, const tm_store_options* options,
                                   tm_store** out) {
  tm_store_options given{};
  if (tm_status bad = check_not_null("store_open", context, "context")) {
    return bad;
  }
  if (tm_status bad = check_not_null("store_open", options, "options")) {
    return bad;
  }
  if (tm_status bad = check_not_null("store_open", out, "out")) {
    return bad;
  }
  if (tm_status bad = check_options("store_open", options, kStoreOptions1, given)) {
    return bad;
  }
  if (given.flags == TM_STORE_PERSIST) {
    return refuse(Code::unsupported,
                  "store_open: TM_STORE_PERSIST: this version keeps no objects across restarts; "
                  "open the store without the flag");
  }
  if (given.flags != 0 || given.reserved != 0) {
    return refuse(Code::invalid_argument, "store_open: flags {:#x}, reserved {}; both must be 0",
                  given.flags, given.reserved);
  }
  return guarded([&]() -> Status {
    auto made = Store::open(*context->context, {given.name, given.capacity_bytes});
    if (!made.ok()) {
      return std::move(made).status();
    }
    const ArenaScope inside;
    *out = new tm_store(*context, std::move(made).value());
    return {};
  });
}

extern "C" tm_status tm_store_close(tm_store* store) {
  if (tm_status bad = check_not_null("store_close", store, "store")) {
    return bad;
  }
  return guarded([&]() -> Status {
    const ArenaScope inside;
    delete store;
    return {};
  });
}

extern "C" tm_status tm_store_put(tm_store* store, tm_object* list, size_t n, int64_t timeout_ns,
                                  tm_op* out) {
  if (tm_status bad = check_objects("store_put", store, list, n)) {
    return bad;
  }
  return operate(out, [&](Op* op) { return store->store->put(ours(list, n), {timeout_ns}, op); });
}

extern "C" tm_status tm_store_get(tm_store* store, tm_object* list, size_t n, int64_t timeout_ns,
                                  tm_op* out) {
  if (tm_status bad = check_objects("store_get", store, list, n)) {
    return bad;
  }
  return operate(out, [&](Op* op) { return store->store->get(ours(list, n), {timeout_ns}, op); });
}

extern "C" tm_status tm_store_exists(tm_store* store, tm_object* list, size_t n) {
  return with_objects("store_exists", store, list, n,
                      [](Store& of, std::span<StoreObject> objects) { return of.exists(objects); });
}

extern "C" tm_status tm_store_delete(tm_store* store, tm_object* list, size_t n) {
  return with_objects("store_delete", store, list, n,
                      [](Store& of, std::span<StoreObject> objects) { return of.erase(objects); });
}

extern "C" tm_status tm_store_pin(tm_store* store, tm_object* list, size_t n) {
  return with_objects("store_pin", store, list, n,
                      [](Store& of, std::span<StoreObject> objects) { return of.pin(objects); });
}

extern "C" tm_status tm_store_unpin(tm_store* store, tm_object* list, size_t n) {
  return with_objects("store_unpin", store, list, n,
                      [](Store& of, std::span<StoreObject> objects) { return of.unpin(objects); });
}

extern "C" tm_status tm_store_stats(tm_store* store, tm_store_counters* out) {
  if (tm_status bad = check_not_null("store_stats", store, "store")) {
    return bad;
  }
  if (tm_status bad = check_info("store_stats", out, kStoreCounters1)) {
    return bad;
  }
  return guarded([&]() -> Status {
    // stats() has no status. This asks for nothing else than whether the context has ended.
    if (Status ended = store->store->exists({}); !ended.ok()) {
      return ended;
    }
    const StoreStats stats = store->store->stats();
    tm_store_counters counters{};
    counters.capacity = stats.capacity;
    counters.used = stats.used;
    counters.objects = stats.objects;
    counters.pinned = stats.pinned;
    counters.hits = stats.hits;
    counters.misses = stats.misses;
    counters.puts = stats.puts;
    counters.refused = stats.refused;
    counters.evicted = stats.evicted;
    counters.damaged = stats.damaged;
    fill_info(out, counters);
    return {};
  });
}
