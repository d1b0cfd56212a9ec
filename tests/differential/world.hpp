// Runs lists of calls on contexts and on a plain model of their bytes, and compares each result:
// the status, and every byte that the call lets the program see. There are two contexts of small
// budgets with buffers that do not fit into memory together, and a third one for objects. One
// thread at a time; one of the calls moves the following ones to a thread that ends.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan.hpp"
#include "tiermem.h"

namespace tiermem::differential {

/// A difference between a call and the model.
struct Difference {
  std::string text;
};

struct Options {
  bool aliases = true;        ///< Source and target of a call may be one buffer.
  bool other_handles = true;  ///< Handles of one context are passed to the other.
  bool trace = false;         ///< Prints each call before it runs.
};

class World {
 public:
  explicit World(const Options& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Runs the calls, checks all bytes, and frees everything. Throws Difference.
  void run(const Plan& plan);
  /// Number of compared calls of the C interface and of move_bytes.
  std::uint64_t calls() const { return calls_; }

 private:
  using Wide = unsigned __int128;
  using Bytes = std::shared_ptr<std::vector<unsigned char>>;

  static constexpr unsigned kBuffers = 6;  // Per context.
  static constexpr unsigned kViews = 8;
  static constexpr unsigned kObjects = 12;
  static constexpr std::uint64_t kMostBytes = 160 << 10;
  static constexpr std::uint64_t kMostPinned = 256 << 10;  // Per context, by views.

  struct Buffer {
    tm_buffer handle = 0;  // 0: none.
    Bytes bytes;           // The expected bytes.
    std::uint32_t flags = 0;
    std::uint64_t extent = 0;
    bool read_only = false;
    unsigned char* address = nullptr;
  };
  struct Side {
    tm_context* context = nullptr;
    std::array<Buffer, kBuffers> buffers;
    std::array<tm_buffer, 4> freed{};
    unsigned next_freed = 0;
    std::uint64_t pinned = 0;  // An upper bound.
  };
  struct View {
    tm_view record{};
    Side* side = nullptr;  // Null: no view is held here.
    Bytes bytes;
    std::uint64_t offset = 0, pins = 0;
    std::uint32_t mode = 0;
  };
  struct Object {
    void* at = nullptr;
    std::uint64_t bytes = 0;
    unsigned char value = 0;
  };
  /// A range of a call, with the model's result for it and the bytes that it pins.
  struct Range {
    tm_access access{};
    Buffer* buffer = nullptr;
    std::uint64_t length = 0;  // With length 0 resolved.
    tm_status status = TM_OK;  // The result of the call, if everything else in it is right.
    std::uint64_t pins = 0;
  };
  struct RowList {
    tm_rows rows{};
    std::array<std::uint64_t, 32> index{};
    Buffer* buffer = nullptr;
    tm_status status = TM_OK;
    bool skip = false;
    std::uint64_t begin(std::uint64_t i) const {
      return rows.offset + index[i] * (rows.stride != 0 ? rows.stride : rows.row_bytes);
    }
    std::uint64_t bytes() const { return rows.count * rows.row_bytes; }
  };

  void make(const Call& call);
  void make_in_thread(std::span<const Call> calls);
  void alloc(const Call& call);
  void adopt(const Call& call);
  void free(const Call& call);
  void read(const Call& call);
  void write(const Call& call);
  void acquire(const Call& call, bool later);
  void use(const Call& call);
  void release(const Call& call);
  void evict(const Call& call, bool migrate);
  void prefetch(const Call& call);
  void advise(const Call& call);
  void empty(const Call& call);
  void gather(const Call& call);
  void gather_into(const Call& call);
  void scatter(const Call& call);
  void copy(const Call& call);
  void move_bytes(const Call& call);
  void touch(const Call& call);
  void object(const Call& call);
  void resize(Object& object, const Call& call);
  void budget(const Call& call);
  void ask(const Call& call);
  void wrong_handle(const Call& call);

  Side& side_of(const Call& call) { return sides_[call.n[0] >> 62 & 1]; }
  Buffer& buffer_of(Side& side, std::uint64_t n) { return side.buffers[n % kBuffers]; }
  Range range(Side& side, std::uint64_t how, std::uint64_t offset, std::uint64_t length,
              std::uint32_t mode);
  std::vector<Range> ranges(const Call& call, std::uint32_t mode, unsigned most);
  tm_status first_fault(const std::vector<Range>& list) const;
  void rows(const Call& call, Side& side, bool writes, RowList& list);
  bool holds_views(const Side& side) const;
  std::int64_t for_ever(std::uint64_t n) const;

  void expect(const char* call, tm_status got, std::initializer_list<tm_status> wanted);
  void require(bool so, const char* call, const char* what);
  void same(const char* call, const Buffer& buffer, std::uint64_t offset, const void* bytes,
            std::uint64_t length);
  void same(const char* call, const std::vector<unsigned char>& bytes, std::uint64_t offset,
            const void* seen, std::uint64_t length);
  void fill(void* to, std::uint64_t length);
  void keep_view(const Range& range, const tm_view& view, Side& side);
  void give_back(Side& side, unsigned slot);
  void settle();

  const Options options_;
  std::string folder_, adopted_;
  std::array<Side, 2> sides_;
  tm_context* heaps_ = nullptr;
  std::array<View, kViews> views_;
  std::array<Object, kObjects> objects_;
  // The program's memory: sources and targets of copies.
  std::vector<unsigned char> memory_, more_;
  std::uint64_t salt_ = 1;  // Determines the bytes that are written next.
  std::uint64_t calls_ = 0;
  bool maps_ = false;
  std::uint64_t most_extents_ = 0;
};

}  // namespace tiermem::differential
