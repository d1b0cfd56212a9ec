// The calls, and the model's result for each.
#include "world.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

#include "tm_context.hpp"

namespace tiermem::differential {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// Frames of each size and kind come from separate chunks of 2 MiB: there is room for all kinds at
// once.
constexpr std::uint64_t kDram = 12 * kMiB;
constexpr std::uint64_t kAdoptedBytes = 100'017;
constexpr std::uint64_t kLargest = std::uint64_t{1} << 47;
constexpr std::uint64_t kMostListBytes = std::uint64_t{1} << 57;
constexpr std::uint64_t kMostRow = 65536;
constexpr std::uint64_t kFewExtents = 4096;  // More extents take time and memory for their records.
constexpr std::uint64_t kUntouched = 0x5a5a5a5a5a5a5a5a;
constexpr unsigned char kGuard = 0xa5;
constexpr std::uint64_t kGuardBytes = 64;
constexpr tm_stream kHostOrder{};

constexpr unsigned char adopted_byte(std::uint64_t i) {
  return static_cast<unsigned char>(i * 31 + (i >> 8));
}

/// A different number for each i.
std::uint64_t mixed(std::uint64_t n, std::uint64_t i) {
  std::uint64_t x = n + (i + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

World::World(const Options& options)
    : options_(options), memory_(32 * kMostRow + kGuardBytes), more_(32 * kMostRow) {
  const char* const base = ::getenv("TMPDIR");
  folder_ = std::string(base != nullptr && *base != '\0' ? base : "/var/tmp") +
            "/tiermem-differential-XXXXXX";
  require(::mkdtemp(folder_.data()) != nullptr, "mkdtemp", "a folder for the block tier is made");
  adopted_ = folder_ + "/adopted";
  std::FILE* const file = std::fopen(adopted_.c_str(), "wb");
  require(file != nullptr, "fopen", "a file to adopt is made");
  for (std::uint64_t i = 0; i < kAdoptedBytes; ++i) {
    std::fputc(adopted_byte(i), file);
  }
  std::fclose(file);
  const std::string rest = "; nvme=" + folder_ + ":64M; reserve_free=0; log=off; extent=64K";
  for (Side& side : sides_) {
    expect("context_create", tm_context_create(("dram=12M" + rest).c_str(), nullptr, &side.context),
           {TM_OK});
  }
  expect("context_create", tm_context_create(("dram=8M" + rest).c_str(), nullptr, &heaps_),
         {TM_OK});
  tm_capabilities caps{};
  caps.size = sizeof(caps);
  expect("caps", tm_caps(sides_[0].context, &caps), {TM_OK});
  maps_ = (caps.flags & TM_CAN_MAP) != 0;
  most_extents_ = caps.extents_per_buffer;
}

World::~World() {
  for (tm_context* const context : {sides_[0].context, sides_[1].context, heaps_}) {
    if (context != nullptr) {
      (void)tm_context_destroy(context, TM_DESTROY_FORCE, std::int64_t{5'000'000'000});
    }
  }
  (void)::unlink(adopted_.c_str());
  (void)::rmdir(folder_.c_str());
}

void World::run(const Plan& plan) {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].what == What::thread) {
      const std::size_t n = std::min<std::size_t>(1 + plan[i].n[0] % 12, plan.size() - i - 1);
      make_in_thread(std::span(plan).subspan(i + 1, n));
      i += n;
    } else {
      make(plan[i]);
    }
  }
  settle();
}

// The thread ends, and its views stay held.
void World::make_in_thread(std::span<const Call> calls) {
  std::exception_ptr failed;
  std::thread thread([&] {
    try {
      for (const Call& call : calls) {
        make(call);
      }
    } catch (...) {
      failed = std::current_exception();
    }
  });
  thread.join();
  if (failed) {
    std::rethrow_exception(failed);
  }
}

void World::make(const Call& call) {
  if (options_.trace) {
    std::fputs(text_of({call}).c_str(), stderr);
  }
  switch (call.what) {
    case What::alloc:
      return alloc(call);
    case What::free:
      return free(call);
    case What::read:
      return read(call);
    case What::write:
      return write(call);
    case What::acquire:
      return acquire(call, false);
    case What::use:
      return use(call);
    case What::release:
      return release(call);
    case What::evict:
      return evict(call, false);
    case What::prefetch:
      return prefetch(call);
    case What::advise:
      return advise(call);
    case What::empty:
      return empty(call);
    case What::gather:
      return gather(call);
    case What::gather_into:
      return gather_into(call);
    case What::scatter:
      return scatter(call);
    case What::copy:
      return copy(call);
    case What::move_bytes:
      return move_bytes(call);
    case What::touch:
      return touch(call);
    case What::object:
      return object(call);
    case What::budget:
      return budget(call);
    case What::migrate:
      return evict(call, true);
    case What::ask:
      return ask(call);
    case What::acquire_async:
      return acquire(call, true);
    case What::adopt:
      return adopt(call);
    case What::wrong_handle:
      return wrong_handle(call);
    case What::thread:  // Inside a thread it does nothing.
    case What::kCount:
      return;
  }
}

// ---- Comparisons -------------------------------------------------------------------------------

void World::require(bool so, const char* call, const char* what) {
  if (!so) {
    tm_error_info info{};
    info.size = sizeof(info);
    (void)tm_error(nullptr, 0, &info);
    throw Difference{std::string(call) + ": not so: " + what + "; the last error is " +
                     tm_status_name(info.status) + ": " + info.text};
  }
}

void World::expect(const char* call, tm_status got, std::initializer_list<tm_status> wanted) {
  ++calls_;
  if (std::find(wanted.begin(), wanted.end(), got) != wanted.end()) {
    return;
  }
  std::string text = std::string(call) + ": answered " + tm_status_name(got) + "; the model says";
  for (const tm_status each : wanted) {
    text += std::string(" ") + tm_status_name(each);
  }
  require(false, text.c_str(), "the status is the model's");
}

void World::same(const char* call, const std::vector<unsigned char>& bytes, std::uint64_t offset,
                 const void* seen, std::uint64_t length) {
  if (std::memcmp(seen, bytes.data() + offset, length) == 0) {
    return;
  }
  const auto* const at = static_cast<const unsigned char*>(seen);
  std::uint64_t first = 0, wrong = 0;
  for (std::uint64_t i = length; i-- > 0;) {
    if (at[i] != bytes[offset + i]) {
      first = i;
      ++wrong;
    }
  }
  char text[160];
  std::snprintf(text, sizeof(text), "%s: %llu of %llu bytes at offset %llu differ, first at +%llu",
                call, static_cast<unsigned long long>(wrong),
                static_cast<unsigned long long>(length), static_cast<unsigned long long>(offset),
                static_cast<unsigned long long>(first));
  throw Difference{text};
}

void World::same(const char* call, const Buffer& buffer, std::uint64_t offset, const void* bytes,
                 std::uint64_t length) {
  same(call, *buffer.bytes, offset, bytes, length);
}

// Different bytes at each call, and at each position.
void World::fill(void* to, std::uint64_t length) {
  auto* at = static_cast<unsigned char*>(to);
  std::uint64_t word = mixed(salt_++, 0) | 1;
  for (; length >= 8; length -= 8, at += 8) {
    std::memcpy(at, &word, 8);
    word += 0x9E3779B97F4A7C15u;
  }
  std::memcpy(at, &word, length);
}

bool World::holds_views(const Side& side) const {
  return std::any_of(views_.begin(), views_.end(),
                     [&](const View& view) { return view.side == &side; });
}

std::int64_t World::for_ever(std::uint64_t n) const {
  constexpr std::int64_t kAll[] = {-1, -1, INT64_MAX, INT64_MIN, std::int64_t{60'000'000'000}};
  return kAll[n % std::size(kAll)];
}

// ---- Arguments ---------------------------------------------------------------------------------

World::Range World::range(Side& side, std::uint64_t how, std::uint64_t offset, std::uint64_t length,
                          std::uint32_t mode) {
  Range made;
  Buffer& buffer = buffer_of(side, how >> 8);
  made.buffer = &buffer;
  const std::uint64_t bytes = buffer.handle != 0 ? buffer.bytes->size() : 0;
  if (bytes != 0 && how % 8 != 0) {
    offset %= bytes;
    length = how % 8 == 1 ? 0 : 1 + length % std::min<std::uint64_t>(bytes - offset, 20'000);
  }
  made.access.buffer = buffer.handle;
  made.access.offset = offset;
  made.access.length = length;
  made.access.mode = mode;
  if (how >> 16 & 1) {
    made.access.where = {static_cast<std::uint16_t>(how >> 17 & 1 ? TM_DRAM : TM_HOST), 0};
  }
  const Wide end = Wide{offset} + (length != 0 ? length : bytes - std::min(offset, bytes));
  made.length = static_cast<std::uint64_t>(end - offset);
  const bool writes = (mode & (TM_WRITE | TM_DISCARD)) != 0;
  if (buffer.handle == 0) {
    made.status = TM_STALE_HANDLE;
  } else if (end > bytes || made.length == 0 || (mode & 7) == 0 || mode > 7 ||
             (writes && buffer.read_only)) {
    made.status = TM_INVALID_ARGUMENT;
  } else {
    made.pins = (made.length / buffer.extent + 2) * buffer.extent;
  }
  return made;
}

std::vector<World::Range> World::ranges(const Call& call, std::uint32_t mode, unsigned most) {
  Side& side = side_of(call);
  std::vector<Range> list(1 + (call.n[0] >> 40) % most);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const bool again = i > 0 && call.n[5] >> i & 1;
    const std::uint64_t k = again ? 0 : i;
    std::uint32_t modes = mode;
    if (mode == 0) {
      constexpr std::uint32_t kModes[] = {
          TM_READ, TM_READ, TM_WRITE, TM_DISCARD, TM_READ | TM_WRITE, TM_WRITE | TM_DISCARD};
      modes = kModes[mixed(call.n[4], i) % std::size(kModes)];
      if (mixed(call.n[4], i) % 64 == 7) {
        modes = static_cast<std::uint32_t>(call.n[3]);
      }
    }
    // The first range uses the numbers as drawn.
    list[i] = range(side, k == 0 ? call.n[1] : mixed(call.n[1], k),
                    k == 0 ? call.n[2] : mixed(call.n[2], k) % 200'000,
                    k == 0 ? call.n[3] : mixed(call.n[3], k) % 200'000, modes);
  }
  return list;
}

tm_status World::first_fault(const std::vector<Range>& list) const {
  for (const Range& each : list) {
    if (each.status != TM_OK) {
      return each.status;
    }
  }
  return TM_OK;
}

namespace {

std::vector<tm_access> accesses_of(const auto& list) {
  std::vector<tm_access> made;
  for (const auto& each : list) {
    made.push_back(each.access);
  }
  return made;
}

}  // namespace

// ---- Buffers -----------------------------------------------------------------------------------

void World::alloc(const Call& call) {
  Side& side = side_of(call);
  Buffer& buffer = buffer_of(side, call.n[0]);
  if (buffer.handle != 0) {
    return;
  }
  const std::uint64_t how = call.n[0] >> 8;
  const bool wild = how % 4 == 0;
  tm_buffer_options options{};
  options.size = sizeof(options);
  options.extent_bytes = (how >> 2) % 4 == 0 ? 0 : std::uint64_t{4096} << 4 * ((how >> 4) % 2);
  std::uint64_t bytes = 1 + call.n[1] % kMostBytes;
  if (wild) {
    bytes = call.n[1];
    options.extent_bytes = (how >> 6) % 2 == 0 ? call.n[2] : options.extent_bytes;
    options.alignment = (how >> 7) % 2 == 0 ? call.n[3] : 0;
  }
  options.flags = static_cast<std::uint32_t>(call.n[4]) &
                  (TM_DROPPABLE | TM_NO_CHECKSUM | TM_ISOLATED | (maps_ ? TM_MAPPED : 0));
  options.advice = call.n[5] % 8 == 0 ? TM_RANDOM : TM_ADVICE_NORMAL;
  const std::uint64_t asked = options.extent_bytes;
  const bool sized = bytes != 0 && bytes <= kLargest;
  const bool named =
      asked == 0 || (std::has_single_bit(asked) && asked >= 4096 && asked <= 64 * kMiB);
  const std::uint64_t extent =
      asked != 0 || !sized ? asked : std::clamp<std::uint64_t>(std::bit_ceil(bytes), 4096, 65536);
  const bool aligned = options.alignment == 0 ||
                       (std::has_single_bit(options.alignment) && options.alignment <= extent);
  const Wide extents = named && sized ? (Wide{bytes} + extent - 1) / extent : 0;
  const bool valid = sized && named && aligned && extents <= most_extents_;
  if (valid && extents > kFewExtents) {
    return;
  }
  tm_buffer made = kUntouched;
  const tm_status status = tm_alloc(side.context, bytes, &options, &made);
  if (!valid) {
    expect("alloc", status, {TM_INVALID_ARGUMENT});
    require(made == kUntouched, "alloc", "there is no handle after a failure");
    return;
  }
  if (bytes > kMostBytes || extent > 65536) {
    expect("alloc", status, {TM_OK, TM_NO_CAPACITY});
    if (status == TM_OK) {
      expect("free", tm_free(side.context, made), {TM_OK});
    }
    return;
  }
  expect("alloc", status, {TM_OK});
  buffer = {made,          std::make_shared<std::vector<unsigned char>>(bytes),
            options.flags, extent,
            false,         nullptr};
  if ((options.flags & TM_MAPPED) != 0) {
    void* address = nullptr;
    expect("address", tm_address(side.context, made, &address), {TM_OK});
    buffer.address = static_cast<unsigned char*>(address);
  }
}

void World::adopt(const Call& call) {
  Side& side = side_of(call);
  Buffer& buffer = buffer_of(side, call.n[0]);
  if (buffer.handle != 0) {
    return;
  }
  std::uint64_t offset = call.n[1], length = call.n[2];
  if (call.n[0] >> 8 & 3) {
    offset %= kAdoptedBytes;
    length %= kAdoptedBytes - offset;
  }
  tm_buffer_options options{};
  options.size = sizeof(options);
  options.extent_bytes = std::uint64_t{4096} << 4 * (call.n[3] % 2);
  const bool valid = offset < kAdoptedBytes && Wide{offset} + length <= kAdoptedBytes;
  tm_buffer made = kUntouched;
  expect("adopt_file",
         tm_adopt_file(side.context, adopted_.c_str(), offset, length, &options, &made),
         {valid ? TM_OK : TM_INVALID_ARGUMENT});
  if (!valid) {
    require(made == kUntouched, "adopt_file", "there is no handle after a failure");
    return;
  }
  auto bytes =
      std::make_shared<std::vector<unsigned char>>(length != 0 ? length : kAdoptedBytes - offset);
  for (std::uint64_t i = 0; i < bytes->size(); ++i) {
    (*bytes)[i] = adopted_byte(offset + i);
  }
  buffer = {made, std::move(bytes), 0, options.extent_bytes, true, nullptr};
}

void World::give_back(Side& side, unsigned slot) {
  Buffer& buffer = side.buffers[slot];
  expect("free", tm_free(side.context, buffer.handle), {TM_OK});
  side.freed[side.next_freed++ % side.freed.size()] = buffer.handle;
  buffer = {};
}

void World::free(const Call& call) {
  Side& side = side_of(call);
  const auto slot = static_cast<unsigned>(call.n[0] % kBuffers);
  const tm_buffer handle = side.buffers[slot].handle;
  if (handle == 0) {
    return;
  }
  give_back(side, slot);
  if (call.n[0] >> 8 & 1) {
    expect("free", tm_free(side.context, handle), {TM_STALE_HANDLE});
  }
}

void World::read(const Call& call) {
  Side& side = side_of(call);
  const Range range = this->range(side, call.n[1], call.n[2], call.n[3], TM_READ);
  const std::uint64_t length = range.access.length;
  const tm_status wanted = length == 0 ? TM_OK : range.status;
  const std::uint64_t room = wanted == TM_OK ? length : 0;
  std::memset(memory_.data() + room, kGuard, kGuardBytes);
  const bool now = call.n[4] % 8 == 0;
  const tm_status status = tm_read(side.context, range.access.buffer, range.access.offset,
                                   memory_.data(), length, now ? 0 : for_ever(call.n[5]));
  if (now && wanted == TM_OK) {
    expect("read", status, {TM_OK, TM_BUSY});
  } else {
    expect("read", status, {wanted});
  }
  if (status == TM_OK && length != 0) {
    same("read", *range.buffer, range.access.offset, memory_.data(), length);
  }
  require(std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(room),
                      memory_.begin() + static_cast<std::ptrdiff_t>(room + kGuardBytes),
                      [](unsigned char byte) { return byte == kGuard; }),
          "read", "nothing is written behind the end");
}

void World::write(const Call& call) {
  Side& side = side_of(call);
  const Range range = this->range(side, call.n[1], call.n[2], call.n[3], TM_WRITE);
  const std::uint64_t length = range.access.length;
  const tm_status wanted = length == 0 ? TM_OK : range.status;
  if (wanted == TM_OK) {
    fill(memory_.data(), length);
  }
  expect("write",
         tm_write(side.context, range.access.buffer, range.access.offset, memory_.data(), length,
                  for_ever(call.n[5])),
         {wanted});
  if (wanted == TM_OK && length != 0) {
    std::memcpy(range.buffer->bytes->data() + range.access.offset, memory_.data(), length);
  }
}

// ---- Views -------------------------------------------------------------------------------------

void World::keep_view(const Range& range, const tm_view& view, Side& side) {
  require(view.data != nullptr && view.length == range.length && view.place.kind == TM_HOST,
          "acquire", "a view is what was asked for");
  for (View& each : views_) {
    if (each.side == nullptr) {
      each = {view, &side, range.buffer->bytes, range.access.offset, range.pins, range.access.mode};
      side.pinned += range.pins;
      return;
    }
  }
}

void World::acquire(const Call& call, bool later) {
  Side& side = side_of(call);
  const std::vector<Range> list = ranges(call, 0, 4);
  std::uint64_t pins = side.pinned;
  for (const Range& each : list) {
    pins += each.pins;
  }
  const auto room = static_cast<std::size_t>(std::count_if(
      views_.begin(), views_.end(), [](const View& view) { return view.side == nullptr; }));
  if (pins > kMostPinned || room < list.size()) {
    return;
  }
  const tm_status wanted = first_fault(list);
  const std::vector<tm_access> accesses = accesses_of(list);
  tm_view untouched;
  std::memset(&untouched, 0x5a, sizeof(untouched));
  std::vector<tm_view> views(list.size(), untouched);
  const bool now = !later && call.n[0] >> 32 & 1 && call.n[0] >> 33 & 1;
  tm_status status = TM_OK;
  if (later) {
    tm_op op = kUntouched;
    status = tm_acquire_async(side.context, accesses.data(), accesses.size(), kHostOrder,
                              views.data(), &op);
    expect("acquire_async", status, {wanted});
    if (status == TM_OK) {
      expect("op_wait", tm_op_wait(side.context, &op, 1, -1), {TM_OK});
      expect("op_poll", tm_op_poll(side.context, op), {TM_INVALID_ARGUMENT});
    }
  } else {
    status = tm_acquire(side.context, accesses.data(), accesses.size(), kHostOrder,
                        now ? 0 : for_ever(call.n[0] >> 34), views.data());
    if (now && wanted == TM_OK) {
      expect("acquire", status, {TM_OK, TM_BUSY});
    } else {
      expect("acquire", status, {wanted});
    }
  }
  if (status != TM_OK) {
    require(std::all_of(views.begin(), views.end(),
                        [&](const tm_view& view) {
                          return std::memcmp(&view, &untouched, sizeof(view)) == 0;
                        }),
            "acquire", "there is no view after a failure");
    return;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    if ((list[i].access.mode & TM_DISCARD) != 0) {
      fill(views[i].data, views[i].length);
      std::memcpy(list[i].buffer->bytes->data() + list[i].access.offset, views[i].data,
                  views[i].length);
    }
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    keep_view(list[i], views[i], side);
    same("acquire", *list[i].buffer, list[i].access.offset, views[i].data, list[i].length);
  }
}

void World::use(const Call& call) {
  const View& view = views_[call.n[0] % kViews];
  if (view.side == nullptr) {
    return;
  }
  ++calls_;
  same("use of a view", *view.bytes, view.offset, view.record.data, view.record.length);
  if ((view.mode & (TM_WRITE | TM_DISCARD)) != 0) {
    const std::uint64_t begin = call.n[1] % view.record.length;
    const std::uint64_t length = 1 + call.n[2] % (view.record.length - begin);
    unsigned char* const at = static_cast<unsigned char*>(view.record.data) + begin;
    fill(at, length);
    std::memcpy(view.bytes->data() + view.offset + begin, at, length);
  }
}

void World::release(const Call& call) {
  View& view = views_[call.n[0] % kViews];
  if (view.side == nullptr) {
    return;
  }
  Side& side = *view.side;
  if (call.n[0] >> 8 & 1) {
    same("release", *view.bytes, view.offset, view.record.data, view.record.length);
  }
  if ((call.n[0] >> 9) % 4 == 0) {
    tm_view forged = view.record;
    forged.token[call.n[1] & 1] ^= std::uint64_t{1} << call.n[2] % 64;
    const bool held = std::any_of(views_.begin(), views_.end(), [&](const View& each) {
      return std::memcmp(each.record.token, forged.token, sizeof(forged.token)) == 0;
    });
    if (!held) {
      expect("release", tm_release(side.context, &forged, 1, kHostOrder), {TM_INVALID_ARGUMENT});
    }
  }
  if (options_.other_handles && (call.n[0] >> 11) % 4 == 0) {
    Side& other = sides_[&side == &sides_[0] ? 1 : 0];
    expect("release", tm_release(other.context, &view.record, 1, kHostOrder),
           {TM_INVALID_ARGUMENT});
  }
  const tm_view held = view.record;
  side.pinned -= view.pins;
  view = {};
  if ((call.n[0] >> 13) % 4 == 0) {
    const tm_view twice[] = {held, held};
    expect("release", tm_release(side.context, twice, 2, kHostOrder), {TM_INVALID_ARGUMENT});
  } else {
    expect("release", tm_release(side.context, &held, 1, kHostOrder), {TM_OK});
    if ((call.n[0] >> 15) % 4 == 0) {
      expect("release", tm_release(side.context, &held, 1, kHostOrder), {TM_INVALID_ARGUMENT});
    }
  }
}

// ---- Movement ----------------------------------------------------------------------------------

void World::evict(const Call& call, bool migrate) {
  Side& side = side_of(call);
  const std::vector<Range> list = ranges(call, TM_READ, 3);
  const std::vector<tm_access> accesses = accesses_of(list);
  const tm_status wanted = first_fault(list);
  const tm_place to{static_cast<std::uint16_t>(call.n[5] & 32 ? TM_DRAM : TM_BLOCK), 0};
  std::uint64_t pins = side.pinned;
  for (const Range& each : list) {
    pins += each.pins;
  }
  if (migrate && to.kind == TM_DRAM && pins > kMostPinned) {
    return;
  }
  const bool may_wait = holds_views(side);
  const std::int64_t timeout = may_wait ? (call.n[5] & 16 ? 0 : 100'000) : for_ever(call.n[4]);
  const tm_status status =
      migrate ? tm_migrate(side.context, accesses.data(), accesses.size(), to, timeout)
              : tm_evict(side.context, accesses.data(), accesses.size(), timeout);
  const char* const name = migrate ? "migrate" : "evict";
  if (wanted == TM_OK && may_wait) {
    expect(name, status, {TM_OK, TM_BUSY, TM_TIMED_OUT, TM_NO_CAPACITY});
  } else {
    expect(name, status, {wanted});
  }
}

void World::prefetch(const Call& call) {
  Side& side = side_of(call);
  const std::vector<Range> list = ranges(call, TM_READ, 3);
  const std::vector<tm_access> accesses = accesses_of(list);
  const tm_status wanted = first_fault(list);
  tm_op op = kUntouched;
  const bool asks = call.n[5] & 16;
  expect(
      "prefetch",
      tm_prefetch(side.context, accesses.data(), accesses.size(), call.n[4], asks ? &op : nullptr),
      {wanted});
  if (!asks || wanted != TM_OK) {
    require(op == kUntouched, "prefetch", "there is no operation");
    return;
  }
  if (call.n[5] & 32) {
    expect("op_cancel", tm_op_cancel(side.context, op), {TM_OK});
    expect("op_wait", tm_op_wait(side.context, &op, 1, -1), {TM_OK, TM_CANCELLED});
  } else {
    expect("op_wait", tm_op_wait(side.context, &op, 1, -1), {TM_OK});
  }
  expect("op_wait", tm_op_wait(side.context, &op, 1, 0), {TM_INVALID_ARGUMENT});
}

void World::advise(const Call& call) {
  Side& side = side_of(call);
  const std::vector<Range> list = ranges(call, TM_READ, 3);
  const std::vector<tm_access> accesses = accesses_of(list);
  const std::uint32_t advice = call.n[5] & 64 ? static_cast<std::uint32_t>(call.n[5])
                                              : static_cast<std::uint32_t>(call.n[5] % 13);
  if (advice == TM_DONT_NEED) {
    return;
  }
  expect("advise", tm_advise(side.context, accesses.data(), accesses.size(), advice, call.n[4]),
         {advice > TM_NEXT_USE ? TM_INVALID_ARGUMENT : first_fault(list)});
}

void World::empty(const Call& call) {
  Side& side = side_of(call);
  const Range range = this->range(side, call.n[1], call.n[2], call.n[3], TM_DISCARD);
  if (holds_views(side)) {
    return;  // The call waits for the operations.
  }
  expect("advise", tm_advise(side.context, &range.access, 1, TM_DONT_NEED, call.n[4]),
         {range.status});
  if (range.status == TM_OK) {
    const auto from =
        range.buffer->bytes->begin() + static_cast<std::ptrdiff_t>(range.access.offset);
    std::fill(from, from + static_cast<std::ptrdiff_t>(range.length),
              static_cast<unsigned char>(0));
  }
}

// ---- Rows --------------------------------------------------------------------------------------

void World::rows(const Call& call, Side& side, bool writes, RowList& list) {
  const std::uint64_t how = call.n[1];
  list.buffer = &buffer_of(side, how >> 8);
  const std::uint64_t bytes = list.buffer->handle != 0 ? list.buffer->bytes->size() : 0;
  tm_rows& rows = list.rows;
  rows.buffer = list.buffer->handle;
  rows.row_bytes = how % 16 == 0 ? call.n[2] : 1 + call.n[2] % (how % 16 < 3 ? kMostRow : 700);
  rows.offset = (how >> 16) % 4 == 0 ? call.n[3] : call.n[3] % 5000;
  rows.stride = (how >> 18) % 4 == 0 ? call.n[4] : (how >> 20) % 2 ? 0 : 1 + call.n[4] % 3000;
  rows.count = (how >> 22) % 33;
  rows.index = list.index.data();
  const std::uint64_t stride = rows.stride != 0 ? rows.stride : rows.row_bytes;
  const std::uint64_t numbers =
      bytes > rows.offset && bytes - rows.offset >= rows.row_bytes && stride != 0
          ? (bytes - rows.offset - rows.row_bytes) / stride + 1
          : 1;
  for (std::size_t i = 0; i < list.index.size(); ++i) {
    const std::uint64_t drawn = mixed(call.n[5], i);
    list.index[i] = drawn % numbers;
    if (how >> 28 & 1 && i > 0 && drawn >> 60 < 6) {
      list.index[i] = list.index[i - 1];  // The same row twice.
    }
  }
  if ((how >> 29) % 16 == 0) {
    list.index[(how >> 33) % list.index.size()] = call.n[5];
  }
  if ((how >> 38) % 32 == 0) {
    rows.count = call.n[5];
  }
  const Wide copied = Wide{rows.count} * rows.row_bytes;
  const bool huge = copied > kMostListBytes || rows.count > kMostListBytes / 8;
  if (list.buffer->handle == 0) {
    list.status = TM_STALE_HANDLE;
  } else if (writes && list.buffer->read_only) {
    list.status = TM_INVALID_ARGUMENT;
  } else if (rows.row_bytes == 0 || rows.row_bytes > kMostRow || huge) {
    list.status = TM_INVALID_ARGUMENT;
  } else {
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(rows.count, list.index.size()); ++i) {
      if (Wide{rows.offset} + Wide{list.index[i]} * stride + rows.row_bytes > bytes) {
        list.status = TM_INVALID_ARGUMENT;
      }
    }
  }
  // The list is shorter than that.
  list.skip = rows.count > list.index.size() && !(list.status == TM_STALE_HANDLE || huge);
}

void World::gather(const Call& call) {
  Side& side = side_of(call);
  RowList list;
  rows(call, side, false, list);
  if (list.skip) {
    return;
  }
  const std::uint64_t bytes = list.status == TM_OK ? list.bytes() : 0;
  std::memset(memory_.data() + bytes, kGuard, kGuardBytes);
  tm_op op = kUntouched;
  const bool later = call.n[0] >> 20 & 1;
  const tm_status begun = tm_gather(side.context, &list.rows, memory_.data(),
                                    for_ever(call.n[0] >> 24), later ? &op : nullptr);
  expect("gather", begun, {list.status});
  if (later && begun == TM_OK) {
    expect("op_wait", tm_op_wait(side.context, &op, 1, -1), {TM_OK});
  }
  for (std::uint64_t i = 0; i < list.rows.count && list.status == TM_OK; ++i) {
    same("gather", *list.buffer, list.begin(i), memory_.data() + i * list.rows.row_bytes,
         list.rows.row_bytes);
  }
  require(std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(bytes),
                      memory_.begin() + static_cast<std::ptrdiff_t>(bytes + kGuardBytes),
                      [](unsigned char byte) { return byte == kGuard; }),
          "gather", "nothing is written behind the end");
}

void World::gather_into(const Call& call) {
  Side& side = side_of(call);
  RowList list;
  rows(call, side, false, list);
  Buffer& target = buffer_of(side, call.n[0] >> 12);
  const bool alias = &target == list.buffer;
  if (list.skip || target.handle == 0 || (alias && !options_.aliases)) {
    return;
  }
  const std::uint64_t bytes = list.status == TM_OK ? list.bytes() : 0;
  std::uint64_t offset = call.n[0] >> 24;
  if (call.n[0] >> 16 & 3 && bytes <= target.bytes->size()) {
    offset %= target.bytes->size() - bytes + 1;
  }
  tm_status wanted = list.status;
  if (wanted == TM_OK && list.rows.count != 0 &&
      (target.read_only || Wide{offset} + bytes > target.bytes->size())) {
    wanted = TM_INVALID_ARGUMENT;
  }
  const tm_status status = tm_gather_into(side.context, &list.rows, target.handle, offset,
                                          for_ever(call.n[0] >> 50), nullptr);
  if (alias && wanted == TM_OK) {
    expect("gather_into", status, {TM_OK, TM_INVALID_ARGUMENT});
  } else {
    expect("gather_into", status, {wanted});
  }
  if (status != TM_OK) {
    return;
  }
  for (std::uint64_t i = 0; i < list.rows.count; ++i) {
    std::memcpy(more_.data() + i * list.rows.row_bytes, list.buffer->bytes->data() + list.begin(i),
                list.rows.row_bytes);
  }
  std::memcpy(target.bytes->data() + offset, more_.data(), bytes);
  if (bytes != 0) {
    expect("read", tm_read(side.context, target.handle, offset, memory_.data(), bytes, -1),
           {TM_OK});
    same("gather_into", target, offset, memory_.data(), bytes);
  }
}

void World::scatter(const Call& call) {
  Side& side = side_of(call);
  RowList list;
  rows(call, side, true, list);
  if (list.skip) {
    return;
  }
  if (list.status == TM_OK) {
    fill(memory_.data(), list.bytes());
  }
  tm_op op = kUntouched;
  const bool later = call.n[0] >> 20 & 1;
  const tm_status begun = tm_scatter(side.context, &list.rows, memory_.data(),
                                     for_ever(call.n[0] >> 24), later ? &op : nullptr);
  expect("scatter", begun, {list.status});
  if (later && begun == TM_OK) {
    expect("op_wait", tm_op_wait(side.context, &op, 1, -1), {TM_OK});
  }
  for (std::uint64_t i = 0; i < list.rows.count && list.status == TM_OK; ++i) {
    std::memcpy(list.buffer->bytes->data() + list.begin(i),
                memory_.data() + i * list.rows.row_bytes, list.rows.row_bytes);
  }
}

// Items of one list read and write, at aligned and other memory. The order of the items is
// unspecified, so a list with a write to bytes of another item is not tried.
void World::copy(const Call& call) {
  Side& side = side_of(call);
  constexpr std::size_t kApart = 40'960;  // More than an item has, or may be beyond alignment.
  auto* const base = reinterpret_cast<unsigned char*>(
      (reinterpret_cast<std::uintptr_t>(memory_.data()) + 4095) & ~std::uintptr_t{4095});
  const std::size_t n = 1 + (call.n[0] >> 40) % 4;
  std::vector<Range> ranges;
  std::vector<tm_copy_item> items;
  tm_status wanted = TM_OK;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t draw = mixed(call.n[4], i);
    const std::uint32_t mode = draw % 4 == 0 ? TM_WRITE : TM_READ;
    Range range = this->range(side, mixed(call.n[1], i), mixed(call.n[2], i) >> draw % 64,
                              mixed(call.n[3], i), mode);
    range.access.where = {};
    const std::uint64_t bytes = range.access.length;
    if (bytes == 0) {
      range.status = TM_OK;
    } else if (range.status == TM_OK && bytes > 20'000) {
      return;
    }
    unsigned char* const at = base + i * kApart + (draw >> 8 & 1 ? 0 : draw >> 9 & 4095);
    if (mode == TM_WRITE && range.status == TM_OK) {
      fill(at, bytes);
    } else {
      std::memset(at, kGuard, range.status == TM_OK ? bytes + kGuardBytes : kGuardBytes);
    }
    items.push_back({range.access.buffer, range.access.offset, at, bytes, mode, TM_LOST});
    wanted = wanted == TM_OK ? range.status : wanted;
    for (const Range& other : ranges) {
      if (other.buffer == range.buffer && other.access.offset < Wide{range.access.offset} + bytes &&
          range.access.offset < Wide{other.access.offset} + other.access.length &&
          (mode | other.access.mode) != TM_READ) {
        return;
      }
    }
    ranges.push_back(range);
  }
  tm_op op = kUntouched;
  const bool later = call.n[0] >> 20 & 1, now = call.n[5] % 8 == 0;
  const std::uint32_t flags = call.n[0] >> 21 & 1 ? TM_COPY_NO_PROMOTE : 0;
  tm_status status = tm_copy(side.context, items.data(), n, flags, now ? 0 : for_ever(call.n[5]),
                             later ? &op : nullptr);
  if (later && status == TM_OK) {
    status = tm_op_wait(side.context, &op, 1, -1);
  }
  if (now) {
    // "Busy" would say of an operation that it goes on.
    expect("copy", status, {wanted, later ? TM_TIMED_OUT : TM_BUSY});
  } else {
    expect("copy", status, {wanted});
  }
  for (std::size_t i = 0; i < n; ++i) {
    const Range& range = ranges[i];
    const tm_copy_item& item = items[i];
    if (now && range.status == TM_OK) {
      expect("copy: item", item.status, {TM_OK, TM_BUSY});
    } else {
      expect("copy: item", item.status, {range.status});
    }
    if (item.bytes == 0 || range.status != TM_OK) {
      continue;
    }
    const auto* const at = static_cast<const unsigned char*>(item.memory);
    if (item.mode == TM_READ) {
      if (item.status == TM_OK) {
        same("copy", *range.buffer, item.offset, at, item.bytes);
      }
      require(std::all_of(at + item.bytes, at + item.bytes + kGuardBytes,
                          [](unsigned char byte) { return byte == kGuard; }),
              "copy", "nothing is written behind the end");
    } else if (item.status == TM_OK) {
      std::memcpy(range.buffer->bytes->data() + item.offset, at, item.bytes);
    } else {  // Some of it may have been written: the model takes what is there.
      expect("read",
             tm_read(side.context, item.buffer, item.offset,
                     range.buffer->bytes->data() + item.offset, item.bytes, -1),
             {TM_OK});
    }
  }
}

void World::move_bytes(const Call& call) {
  Side& side = side_of(call);
  if (holds_views(side)) {
    return;
  }
  const Range from = range(side, call.n[1], call.n[2], call.n[3], TM_READ);
  Buffer& to = buffer_of(side, call.n[0]);
  const std::uint64_t length = from.access.length;
  std::uint64_t offset = call.n[4];
  if (to.handle != 0 && call.n[0] >> 8 & 3 && length <= to.bytes->size()) {
    offset %= to.bytes->size() - length + 1;
    if (call.n[0] >> 10 & 1) {
      // A position where whole extents may change hands.
      const std::uint64_t aligned = offset / to.extent * to.extent + from.access.offset % to.extent;
      offset = aligned <= to.bytes->size() - length ? aligned : offset;
    }
  }
  if (to.handle == 0 || from.buffer->handle == 0) {
    return;
  }
  const bool inside =
      from.status == TM_OK && !to.read_only && Wide{offset} + length <= to.bytes->size();
  const tm_status wanted = length == 0                     ? TM_OK
                           : &to == from.buffer || !inside ? TM_INVALID_ARGUMENT
                           : to.address == nullptr || from.buffer->address == nullptr
                               ? TM_UNSUPPORTED
                               : TM_OK;
  const auto status = static_cast<tm_status>(
      side.context->context
          ->move_bytes(to.handle, offset, from.access.buffer, from.access.offset, length)
          .code());
  expect("move_bytes", status, {wanted});
  if (status == TM_OK && length != 0) {
    const auto begin =
        from.buffer->bytes->begin() + static_cast<std::ptrdiff_t>(from.access.offset);
    const auto end = begin + static_cast<std::ptrdiff_t>(length);
    std::copy(begin, end, to.bytes->begin() + static_cast<std::ptrdiff_t>(offset));
    std::fill(begin, end, static_cast<unsigned char>(0));
    same("move_bytes", to, offset, to.address + offset, length);
  }
}

// ---- Plain memory ------------------------------------------------------------------------------

void World::touch(const Call& call) {
  Side& side = side_of(call);
  Buffer& buffer = buffer_of(side, call.n[0]);
  if (buffer.address == nullptr) {
    return;
  }
  ++calls_;
  const std::uint64_t offset = call.n[1] % buffer.bytes->size();
  const std::uint64_t length =
      1 + call.n[2] % std::min<std::uint64_t>(buffer.bytes->size() - offset, 9000);
  if (call.n[0] >> 8 & 1) {
    same("touch", buffer, offset, buffer.address + offset, length);
  }
  if (call.n[0] >> 9 & 1) {
    fill(buffer.address + offset, length);
    std::memcpy(buffer.bytes->data() + offset, buffer.address + offset, length);
    same("touch", buffer, offset, buffer.address + offset, length);
  }
}

void World::object(const Call& call) {
  Object& object = objects_[call.n[0] % kObjects];
  if (object.at != nullptr) {
    const auto* const at = static_cast<const unsigned char*>(object.at);
    require(std::all_of(at, at + object.bytes,
                        [&](unsigned char byte) { return byte == object.value; }),
            "malloc", "an object keeps its bytes");
    if (call.n[0] >> 10 & 1) {
      resize(object, call);
      return;
    }
    expect("free_ptr", tm_free_ptr(heaps_, object.at), {TM_OK});
    expect("free_ptr", tm_free_ptr(heaps_, object.at), {TM_INVALID_ARGUMENT});
    object = {};
    return;
  }
  const bool wild = call.n[0] >> 8 & 1;
  const std::uint64_t bytes = wild ? call.n[1] : call.n[1] % 30'000;
  const tm_place place{static_cast<std::uint16_t>(call.n[0] >> 9 & 1 ? TM_ANY : TM_DRAM), 0};
  if (bytes > 50'000 && bytes <= kLargest) {
    return;
  }
  void* made = &made;
  const bool zeros = call.n[0] >> 10 & 1;
  const std::uint64_t align = std::uint64_t{16} << call.n[3] % 9;
  const tm_status status = zeros ? tm_calloc(heaps_, place, 1, bytes, &made)
                                 : tm_malloc_aligned(heaps_, place, bytes, align, &made);
  expect("malloc", status, {bytes > kLargest ? TM_INVALID_ARGUMENT : TM_OK});
  if (status != TM_OK) {
    require(made == &made, "malloc", "there is no object after a failure");
    return;
  }
  std::uint64_t usable = 0;
  expect("usable_size", tm_usable_size(heaps_, made, &usable), {TM_OK});
  require(usable >= bytes && reinterpret_cast<std::uintptr_t>(made) % (zeros ? 16 : align) == 0,
          "malloc", "an object is as large as was asked for, and aligned");
  const auto* const first = static_cast<const unsigned char*>(made);
  require(!zeros || std::all_of(first, first + bytes, [](unsigned char byte) { return byte == 0; }),
          "calloc", "an object is zeros");
  object = {made, bytes, static_cast<unsigned char>(call.n[2])};
  std::memset(made, object.value, bytes);
}

void World::resize(Object& object, const Call& call) {
  const bool wild = call.n[0] >> 8 & 1;
  const std::uint64_t bytes = wild ? call.n[1] : call.n[1] % 30'000;
  if (bytes > 50'000 && bytes <= kLargest) {
    return;
  }
  const tm_place place{static_cast<std::uint16_t>(call.n[0] >> 9 & 1 ? TM_ANY : TM_DRAM), 0};
  void* const before = object.at;
  const tm_status status = tm_realloc(heaps_, place, object.at, bytes, &object.at);
  expect("realloc", status, {bytes > kLargest ? TM_INVALID_ARGUMENT : TM_OK});
  if (status != TM_OK) {
    require(object.at == before, "realloc", "the object is as it was after a failure");
    return;
  }
  const auto* const at = static_cast<const unsigned char*>(object.at);
  require(std::all_of(at, at + std::min(object.bytes, bytes),
                      [&](unsigned char byte) { return byte == object.value; }),
          "realloc", "an object keeps its bytes");
  object.bytes = bytes;
  std::memset(object.at, object.value, bytes);
}

// ---- Other calls -------------------------------------------------------------------------------

void World::budget(const Call& call) {
  Side& side = side_of(call);
  const bool wild = call.n[0] % 4 == 0;
  const bool block = call.n[0] >> 2 & 1;
  const std::uint64_t bytes = wild ? call.n[1] : block ? 64 * kMiB : kDram + call.n[1] % (2 * kMiB);
  if (wild && bytes >= 4096 && bytes < (block ? 32 * kMiB : kDram)) {
    return;
  }
  const tm_place tier{static_cast<std::uint16_t>(block ? TM_BLOCK : TM_DRAM), 0};
  expect("set_budget", tm_set_budget(side.context, tier, bytes, for_ever(call.n[2])),
         {bytes < 4096 ? TM_INVALID_ARGUMENT : TM_OK});
  if (wild && bytes >= 4096) {
    expect("set_budget", tm_set_budget(side.context, tier, block ? 64 * kMiB : kDram, -1), {TM_OK});
  }
}

void World::ask(const Call& call) {
  Side& side = side_of(call);
  const Buffer& buffer = buffer_of(side, call.n[1]);
  const std::uint64_t bytes = buffer.handle != 0 ? buffer.bytes->size() : 0;
  switch (call.n[0] % 4) {
    case 0: {
      tm_residency info{};
      info.size = sizeof(info);
      expect("buffer_info", tm_buffer_info(side.context, buffer.handle, &info),
             {buffer.handle != 0 ? TM_OK : TM_STALE_HANDLE});
      require(info.bytes == bytes && info.lost == 0, "buffer_info", "its bytes are there");
      return;
    }
    case 1: {
      tm_whereabouts where{};
      where.size = sizeof(where);
      const std::uint64_t offset = call.n[2] % 2 == 0 ? call.n[3] : call.n[3] % (bytes + 2);
      expect("why", tm_why(side.context, buffer.handle, offset, &where),
             {buffer.handle == 0 ? TM_STALE_HANDLE
              : offset < bytes   ? TM_OK
                                 : TM_INVALID_ARGUMENT});
      return;
    }
    case 2: {
      std::uint64_t ordinal = 0;
      expect("tick", tm_tick(side.context, TM_TICK_OP, &ordinal), {TM_OK});
      require(ordinal != 0, "tick", "ticks have numbers");
      return;
    }
    default: {
      tm_counters counters{};
      counters.size = sizeof(counters);
      expect("stats", tm_stats(side.context, &counters), {TM_OK});
      require(counters.io_errors == 0 && counters.checksum_errors == 0, "stats",
              "no device has failed");
    }
  }
}

// A handle of a freed buffer, one that never existed, or one of the other context.
void World::wrong_handle(const Call& call) {
  Side& side = side_of(call);
  Side& other = sides_[&side == &sides_[0] ? 1 : 0];
  tm_buffer handle = side.freed[call.n[1] % side.freed.size()];
  const std::uint64_t how = (call.n[0] >> 8) % 4;
  if (how == 0) {
    handle = call.n[2];
  } else if (how == 1) {
    handle = buffer_of(side, call.n[1]).handle ^ std::uint64_t{1} << call.n[2] % 64;
  } else if (how == 2 && options_.other_handles) {
    handle = buffer_of(other, call.n[1]).handle;
  }
  const bool others = how == 2 && options_.other_handles && handle != 0;
  for (const Buffer& buffer : side.buffers) {
    if (buffer.handle == handle && !others) {
      return;  // The handle is right after all.
    }
  }
  const tm_access access{handle, call.n[3] % 4096, 1, TM_WRITE, {}, 0};
  switch (call.n[0] >> 16 & 7) {
    case 0:
      return expect("free", tm_free(side.context, handle), {TM_STALE_HANDLE});
    case 1:
      return expect("read", tm_read(side.context, handle, call.n[3], memory_.data(), 1, 0),
                    {TM_STALE_HANDLE});
    case 2:
      return expect("write", tm_write(side.context, handle, call.n[3], memory_.data(), 1, -1),
                    {TM_STALE_HANDLE});
    case 3: {
      tm_view view{};
      return expect("acquire", tm_acquire(side.context, &access, 1, kHostOrder, -1, &view),
                    {TM_STALE_HANDLE});
    }
    case 4:
      return expect("evict", tm_evict(side.context, &access, 1, -1), {TM_STALE_HANDLE});
    case 5:
      return expect("advise", tm_advise(side.context, &access, 1, TM_DONT_NEED, 0),
                    {TM_STALE_HANDLE});
    case 6: {
      const std::uint64_t index = 0;
      const tm_rows rows{handle, 0, 1, 0, &index, 1};
      return expect("scatter", tm_scatter(side.context, &rows, memory_.data(), -1, nullptr),
                    {TM_STALE_HANDLE});
    }
    default: {
      void* address = nullptr;
      return expect("address", tm_address(side.context, handle, &address), {TM_STALE_HANDLE});
    }
  }
}

// Checks all bytes against the model, and that nothing is left.
void World::settle() {
  for (View& view : views_) {
    if (view.side != nullptr) {
      same("the end", *view.bytes, view.offset, view.record.data, view.record.length);
      expect("release", tm_release(view.side->context, &view.record, 1, kHostOrder), {TM_OK});
      view.side->pinned -= view.pins;
      view = {};
    }
  }
  for (Side& side : sides_) {
    for (unsigned slot = 0; slot < kBuffers; ++slot) {
      Buffer& buffer = side.buffers[slot];
      if (buffer.handle == 0) {
        continue;
      }
      const std::uint64_t bytes = buffer.bytes->size();
      expect("read", tm_read(side.context, buffer.handle, 0, memory_.data(), bytes, -1), {TM_OK});
      same("the end", buffer, 0, memory_.data(), bytes);
      give_back(side, slot);
    }
    require(side.pinned == 0, "the end", "the model holds nothing");
  }
  for (Object& object : objects_) {
    if (object.at != nullptr) {
      expect("free_ptr", tm_free_ptr(heaps_, object.at), {TM_OK});
      object = {};
    }
  }
  for (Side& side : sides_) {
    tm_counters counters{};
    // The mover releases freed buffers later.
    for (unsigned looks = 0; looks == 0 || counters.buffers != 0; ++looks) {
      require(looks < 10'000, "the end", "all buffers end");
      if (looks > 0) {
        ::usleep(1000);
      }
      counters.size = sizeof(counters);
      expect("stats", tm_stats(side.context, &counters), {TM_OK});
    }
    require(counters.dram_pinned == 0, "the end", "nothing is pinned");
    require(counters.io_errors == 0 && counters.checksum_errors == 0, "the end",
            "no device has failed");
  }
}

}  // namespace tiermem::differential
