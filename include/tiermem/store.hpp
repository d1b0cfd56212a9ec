// A store of objects by key, bounded by bytes: the cache of an engine, such as KV blocks. Objects
// are in buffers of a context, so they live in memory or on its drives, and are checked when they
// come back. When the store is full, the objects that its policy expects last are dropped.
//
// Any thread may call any function. No function throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "tiermem/context.hpp"
#include "tiermem/status.hpp"
#include "tiermem/types.hpp"

namespace tiermem {

/// Options of Store::open().
struct StoreOptions {
  const char* name = nullptr;        ///< Label of its buffers; 31 characters are kept.
  std::uint64_t capacity_bytes = 0;  ///< Bytes of all objects, each rounded up to 4 KiB.
};

/// One object of a call. The caller owns key and memory, and keeps both until the call has ended,
/// or its operation has completed. Its layout is that of tm_object.
struct StoreObject {
  const void* key = nullptr;
  std::size_t key_bytes = 0;  ///< 1 to 255.
  void* memory = nullptr;     ///< The bytes to put, or room for those to get.
  std::uint64_t bytes = 0;    ///< Their number; for a get, the room.
  std::uint64_t stored = 0;   ///< Result: bytes of the object in the store.
  Code code = Code::ok;       ///< Result. A miss is ok, with `found` 0.
  /// Result: 1 if the store has the object, or had it. A get that fails for any other reason than
  /// its arguments sets 0, whether the store has the object or not: look at `code` first.
  std::uint32_t found = 0;

  std::string_view name() const { return {static_cast<const char*>(key), key_bytes}; }
};

/// Counters since the store was opened, and what it holds.
struct StoreStats {
  std::uint64_t capacity = 0;  ///< Bytes.
  std::uint64_t used = 0;      ///< Bytes of objects, each rounded up to 4 KiB.
  std::uint64_t objects = 0;
  std::uint64_t pinned = 0;   ///< Objects that pin() keeps.
  std::uint64_t hits = 0;     ///< Objects that a get returned.
  std::uint64_t misses = 0;   ///< Objects that a get did not find.
  std::uint64_t puts = 0;     ///< Objects that were stored.
  std::uint64_t refused = 0;  ///< Objects that had no room.
  std::uint64_t evicted = 0;  ///< Objects that were dropped to make room.
  std::uint64_t damaged = 0;  ///< Objects with bytes that a device lost: each is a miss.
};

class TIERMEM_API Store {
 public:
  static constexpr std::size_t kLongestKey = 255;
  static constexpr std::uint64_t kLargestObject = std::uint64_t{128} << 20;

  /// Opens an empty store. The context must exist when the store is used; after its end every call
  /// returns `shut_down`. With the option fork=follow the store is empty in a child of fork().
  ///
  /// - Errors: invalid_argument: the capacity is 0. no_capacity: allocation of the records failed.
  static Result<std::unique_ptr<Store>> open(Context& context, const StoreOptions& options);
  /// Waits for operations in progress, and drops all objects.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Stores each object; one with the same key is replaced as a whole. A get beside it finds the
  /// old or the new bytes, or none.
  ///
  /// - `op`: may be null; otherwise a thread of the context does the work, several calls at a time.
  /// - Result: ok if every object is stored, else the first error in the order of the list. Each
  ///   object has its own code.
  /// - Errors of an object: invalid_argument: its key or its size. no_capacity: it is larger than
  ///   the store, pinned objects leave no room, or the tiers are full. timed_out, cancelled.
  Status put(std::span<StoreObject> list, Timeout timeout = Timeout::forever(), Op* op = nullptr);
  /// Copies each object that the store has to its memory. Objects that are not in memory are read
  /// together. An object with damaged bytes is a miss, and leaves the store.
  ///
  /// - Result: as for put(). A miss is not an error.
  /// - Errors of an object: invalid_argument: its key, or less room than `stored`; nothing is
  ///   copied. io_error: a device refused the read, and the object stays. timed_out, cancelled.
  Status get(std::span<StoreObject> list, Timeout timeout = Timeout::forever(), Op* op = nullptr);
  /// Sets `found` and `stored` of each object, without reading any. Never waits for a device.
  Status exists(std::span<StoreObject> list) const;
  /// Drops each object, pinned or not, and sets `found`.
  Status erase(std::span<StoreObject> list);
  /// Keeps each object from being dropped for room, until as many calls of unpin(). Sets `found`.
  Status pin(std::span<StoreObject> list);
  Status unpin(std::span<StoreObject> list);
  StoreStats stats() const;

  class TIERMEM_LOCAL Impl;

 private:
  TIERMEM_LOCAL explicit Store(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tiermem
