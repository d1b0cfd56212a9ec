// One input of calls_fuzz: the objects that its calls have returned so far, and their expected
// bytes.
//
// The input is read byte by byte: a call, then its arguments. Each argument chooses a valid value,
// one that was valid before, or one that never was. Reads past the end return zeros. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tiermem.h"

namespace tiermem::fuzz {

inline constexpr std::size_t kAdoptedBytes = 100'017;
constexpr unsigned char adopted_byte(std::size_t i) {
  return static_cast<unsigned char>(i * 31 + (i >> 8));
}

/// Ends the process with the message unless the condition holds.
void require(bool condition, const char* what);

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool over() const { return at_ >= bytes_.size(); }
  std::uint8_t byte() { return over() ? 0 : bytes_[at_++]; }
  /// Returns a number below `n`, or 0 if `n` is 0.
  std::size_t below(std::size_t n) { return n == 0 ? 0 : byte() % n; }
  std::uint64_t word();
  /// Returns a size or an offset: small, about a page or an extent, or next to a power of two up to
  /// 2^64.
  std::uint64_t length();

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

/// A struct that begins with its size, in memory of exactly that size: of an older version, of a
/// newer one, or with a wrong size.
template <typename T>
class Sized {
 public:
  Sized(Input& in, const T& ours) {
    const std::size_t any = std::size_t{in.byte()} * 8;
    const std::size_t sizes[] = {sizeof(T), sizeof(T), sizeof(T) + 16,    sizeof(T) - 8,
                                 0,         any,       std::size_t{4096}, ~std::size_t{0}};
    const std::size_t size = sizes[in.below(std::size(sizes))];
    bytes_ = std::clamp(size, sizeof(std::size_t), std::size_t{4096});
    memory_ = std::make_unique<unsigned char[]>(bytes_);
    std::memcpy(memory_.get(), &ours, std::min(bytes_, sizeof(T)));
    std::memcpy(memory_.get(), &size, sizeof(size));
    if (bytes_ > sizeof(T) && in.byte() == 1) {
      memory_[bytes_ - 1] = 1;  // A field that this version does not know.
    }
    before_.assign(memory_.get(), memory_.get() + bytes_);
  }
  T* get() { return reinterpret_cast<T*>(memory_.get()); }
  bool changed() const { return std::memcmp(memory_.get(), before_.data(), bytes_) != 0; }

 private:
  std::size_t bytes_ = 0;
  std::unique_ptr<unsigned char[]> memory_;
  std::vector<unsigned char> before_;
};

class Calls {
 public:
  /// `heaps`: another context, for objects. The memory that it keeps for objects counts as buffers.
  Calls(tm_context* context, tm_context* heaps, std::string adopted, std::string spec)
      : context_(context), heaps_(heaps), adopted_(std::move(adopted)), spec_(std::move(spec)) {}

  void run(std::span<const std::uint8_t> bytes);
  void give_all_back();

 private:
  struct Buffer {
    tm_buffer handle = 0;
    std::vector<unsigned char> bytes;  // The expected bytes.
    std::uint32_t flags = 0;
    bool read_only = false;
    bool unsure = false;  // A write failed halfway.
    unsigned char* address = nullptr;
  };
  struct View {
    tm_view record{};
    tm_access access{};
  };
  // For tm_acquire_async: where its views will be stored.
  struct Pending {
    tm_op op = 0;
    std::vector<tm_access> list;
    std::unique_ptr<tm_view[]> views;
  };
  struct Object {
    void* pointer = nullptr;
    std::uint64_t bytes = 0;
    unsigned char value = 0;
  };

  // calls.cpp
  void alloc(Input& in);
  void adopt(Input& in);
  void free(Input& in);
  void info(Input& in);
  void address(Input& in);
  void touch(Input& in);
  void read(Input& in);
  void write(Input& in);
  void acquire(Input& in);
  void acquire_async(Input& in);
  void use(Input& in);
  void release(Input& in);

  // calls_moves.cpp
  void move(Input& in);
  void advise(Input& in);
  void prefetch(Input& in);
  void rows(Input& in);
  void rows_into(Input& in);
  void other_context(Input& in);
  void operations(Input& in);
  void objects(Input& in);
  void budget(Input& in);
  void ask(Input& in);
  void contexts(Input& in);

  // calls_arguments.cpp: valid and invalid arguments, and the checks of every call.
  tm_context* context(Input& in) { return in.byte() == 255 ? nullptr : context_; }
  tm_buffer handle(Input& in);
  tm_place place(Input& in);
  tm_stream stream(Input& in);
  std::int64_t timeout(Input& in);
  tm_access access(Input& in);
  std::vector<tm_access> list(Input& in);
  tm_op op(Input& in);
  tm_view view(Input& in);
  tm_buffer_options options(Input& in);

  tm_status check(tm_status status);
  Buffer* find(tm_buffer handle);
  void check_bytes(const Buffer& buffer, std::uint64_t offset, const void* bytes,
                   std::uint64_t length);
  void write_bytes(Buffer& buffer, std::uint64_t offset, void* bytes, std::uint64_t length,
                   unsigned char value);
  void got_buffer(tm_buffer handle, std::vector<unsigned char> bytes, std::uint32_t flags,
                  bool read_only);
  void got_view(const tm_access& access, const tm_view& view);
  void consumed(std::size_t pending, bool well);
  void drop(std::size_t buffer);
  bool holds_nothing() const { return views_.empty() && pending_.empty(); }

  tm_context *context_, *heaps_;
  const std::string adopted_, spec_;
  std::vector<Buffer> buffers_;
  std::vector<View> views_;
  std::vector<Pending> pending_;
  std::vector<Object> objects_;
  std::vector<tm_buffer> freed_;
  std::vector<tm_view> released_;
  std::vector<tm_op> waited_;
};

}  // namespace tiermem::fuzz
