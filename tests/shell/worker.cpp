// The calls, each with its required effect on the model.
#include "shell/worker.hpp"

#include <execinfo.h>
#include <setjmp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace tiermem::shell {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kMostOwned = 6, kMostHeld = 2, kMostBlocks = 6;
constexpr Timeout kPatience = Timeout::seconds(20);
constexpr std::uint64_t kSmallView = 64 << 10;

// The current touch of this thread, if any. Volatile: the handler reads it.
thread_local sigjmp_buf* volatile t_touch = nullptr;

void refused_touch(int signal, siginfo_t*, void*) {
  if (t_touch != nullptr) {
    ::siglongjmp(*t_touch, 1);
  }
  std::array<void*, 24> frames;
  ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), frames.size()), 1);
  ::signal(signal, SIG_DFL);  // The fault repeats and ends the process.
}

/// Returns false if the touch could not be served.
template <typename Touch>
bool touched(Touch&& touch) {
  sigjmp_buf here;
  if (sigsetjmp(here, 1) != 0) {
    t_touch = nullptr;
    return false;
  }
  t_touch = &here;
  touch();
  t_touch = nullptr;
  return true;
}

std::span<const std::uint8_t> bytes_at(const void* data, std::uint64_t length) {
  return {static_cast<const std::uint8_t*>(data), static_cast<std::size_t>(length)};
}

}  // namespace

void catch_touches() {
  struct sigaction action {};
  action.sa_sigaction = refused_touch;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGBUS, &action, nullptr);
}

Worker::Worker(World& world, unsigned number, std::uint64_t seed)
    : world_(world), number_(number), random_(seed) {}
Worker::~Worker() = default;

void Worker::fail(const char* what, const std::string& how) {
  world_.page.note(number_, "FAILED %s: %s", what, how.c_str());
  std::printf("worker %u: %s: %s\n", number_, what, how.c_str());
  std::fflush(stdout);
  world_.failed = true;
}

// Errors are allowed if the kernel refuses calls, but never errors that blame the caller or lose
// bytes.
bool Worker::fine(const Status& status, const char* what, std::initializer_list<Code> more) {
  if (status.ok()) {
    return true;
  }
  const bool allowed = std::find(more.begin(), more.end(), status.code()) != more.end();
  constexpr std::array kRefused = {Code::no_capacity, Code::busy,        Code::timed_out,
                                   Code::unsupported, Code::unavailable, Code::io_error};
  const bool refused = std::find(kRefused.begin(), kRefused.end(), status.code()) != kRefused.end();
  if (!allowed && !(world_.refuses && refused)) {
    fail(what, std::string(code_name(status.code())) + ": " + status.message());
  }
  return false;
}

void Worker::compare(const Owned& owned, std::uint64_t offset, std::span<const std::uint8_t> seen,
                     const char* what) {
  const std::int64_t at = owned.model.differs(offset, seen);
  if (at >= 0) {
    const auto i = static_cast<std::uint64_t>(at);
    char text[160];
    std::snprintf(text, sizeof(text), "buffer %#lx of %lu bytes: byte %lu is %u, not %u",
                  owned.handle, owned.model.size(), i, seen[i - offset], owned.model.at(i));
    fail(what, text);
  }
}

Worker::OwnedPtr Worker::some(bool writable) {
  for (unsigned tries = 0; tries < 8 && !owned_.empty(); ++tries) {
    const OwnedPtr& owned = owned_[random_() % owned_.size()];
    if (!writable || !owned->read_only) {
      return owned;
    }
  }
  return nullptr;
}

// Draws whole buffers, whole pages, and odd ranges around the borders of extents.
Worker::Range Worker::some_range(const Owned& owned, std::uint64_t most) {
  const std::uint64_t size = owned.model.size();
  std::uint64_t offset = upto(size - 1);
  if (one_in(3)) {
    offset = offset / kPage * kPage;
  } else if (one_in(3) && owned.extent < size) {
    offset = std::min(size - 1, offset / owned.extent * owned.extent + owned.extent - 1 - upto(8));
  } else if (one_in(6)) {
    offset = 0;
  }
  std::uint64_t length = 1 + upto(std::min(most, size - offset) - 1);
  if (one_in(4)) {
    length = std::min(most, size - offset);
  }
  return {offset, length};
}

std::vector<std::uint8_t> Worker::some_bytes(std::uint64_t length) {
  std::vector<std::uint8_t> bytes(length);
  if (!one_in(8)) {  // Otherwise zeros, which storage may treat specially.
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      word = i % 8 == 0 ? random_() : word >> 8;
      bytes[i] = static_cast<std::uint8_t>(word);
    }
  }
  return bytes;
}

void Worker::live(unsigned calls) {
  for (unsigned i = 0; i < calls && !world_.failed.load(std::memory_order_relaxed); ++i) {
    call();
  }
}

void Worker::call() {
  if (owned_.size() < 2 || (owned_.size() < kMostOwned && one_in(10))) {
    allocate();
    return;
  }
  switch (random_() % 28) {
    case 0:
      free_one();
      break;
    case 1:
    case 2:
    case 3:
      write();
      break;
    case 4:
    case 5:
    case 6:
      read();
      break;
    case 7:
    case 8:
    case 9:
      acquire();
      break;
    case 10:
      acquire_later();
      break;
    case 11:
      store_in_view();
      break;
    case 12:
    case 13:
      release_one();
      break;
    case 14:
      gather(false);
      break;
    case 15:
      gather(true);
      break;
    case 16:
      scatter();
      break;
    case 17:
    case 18:
    case 19:
      hint();
      break;
    case 20:
      move();
      break;
    case 21:
    case 22:
    case 23:
      touch();
      break;
    case 24:
      place();
      break;
    case 25:
      ask();
      break;
    case 26:
      if (one_in(2)) {
        foreign();
      } else {
        adopt();
      }
      break;
    default:
      if (number_ == 0 && one_in(6)) {
        fork_child();
      }
  }
}

// ---- Buffers -----------------------------------------------------------------------------------

void Worker::allocate() {
  static constexpr std::array<std::uint64_t, 6> kExtents = {0,        0,         4 << 10,
                                                            16 << 10, 128 << 10, 256 << 10};
  auto owned = std::make_shared<Owned>();
  owned->context = world_.contexts[world_.contexts[1] != nullptr && one_in(4) ? 1 : 0];
  const std::uint64_t bytes = one_in(3) ? 1 + upto(3 * kPage) : 1 + upto((1 << 20) - 1);
  BufferOptions options;
  options.extent_bytes = kExtents[random_() % kExtents.size()];
  owned->mapped = world_.maps && one_in(world_.follows ? 2 : 3);
  options.flags = (owned->mapped ? kMapped : 0u) | (one_in(6) ? kIsolated : 0u) |
                  (one_in(6) ? kNoChecksum : 0u);
  options.advice = one_in(4) ? Advice::random : Advice::normal;
  options.label = "shell";
  world_.page.note(number_, "alloc %lu bytes, extent %lu, flags %x", bytes, options.extent_bytes,
                   options.flags);
  auto buffer = owned->context->alloc(bytes, options);
  if (!fine(buffer.status(), "alloc")) {
    return;
  }
  owned->handle = buffer->detach();
  owned->model = Model(bytes);
  auto info = owned->context->info(owned->handle);
  owned->extent = fine(info.status(), "info") ? info->extent_bytes : kPage;
  if (owned->mapped) {
    auto address = owned->context->address(owned->handle);
    if (fine(address.status(), "address")) {
      owned->address = *address;
    } else {
      owned->mapped = false;
    }
  }
  owned_.push_back(std::move(owned));
}

void Worker::adopt() {
  if (owned_.size() >= kMostOwned) {
    return;
  }
  const std::uint64_t size = world_.file_bytes.size();
  const std::uint64_t offset = one_in(2) ? 0 : upto(size - 1);
  const std::uint64_t length = one_in(2) ? 0 : 1 + upto(size - offset - 1);
  BufferOptions options;
  options.extent_bytes = one_in(2) ? 0 : std::uint64_t{4096} << upto(6);
  world_.page.note(number_, "adopt offset %lu, length %lu, extent %lu", offset, length,
                   options.extent_bytes);
  auto owned = std::make_shared<Owned>();
  owned->context = world_.contexts[0];
  auto buffer = owned->context->adopt_file(world_.file.c_str(), offset, length, options);
  if (!fine(buffer.status(), "adopt_file")) {
    return;
  }
  const std::uint64_t bytes = length != 0 ? length : size - offset;
  if (buffer->size() != bytes) {
    fail("adopt_file", "another size than was asked for");
  }
  owned->handle = buffer->detach();
  owned->model = Model(bytes);
  owned->model.set(0, std::span(world_.file_bytes).subspan(offset, bytes));
  owned->extent = options.extent_bytes != 0 ? options.extent_bytes : 256 << 10;
  owned->read_only = true;
  owned_.push_back(std::move(owned));
}

void Worker::free_one() {
  const std::size_t i = random_() % owned_.size();
  const OwnedPtr owned = owned_[i];
  world_.page.note(number_, "free %#lx", owned->handle);
  if (!fine(owned->context->free(owned->handle), "free")) {
    return;
  }
  owned->live = false;
  owned_.erase(owned_.begin() + static_cast<std::ptrdiff_t>(i));
  std::uint8_t byte = 0;
  if (owned->context->read(owned->handle, 0, &byte, 1).code() != Code::stale_handle) {
    fail("read of a freed buffer", "not stale_handle");
  }
}

// ---- Copies and views --------------------------------------------------------------------------

void Worker::write() {
  const OwnedPtr owned = some(true);
  if (owned == nullptr) {
    return;
  }
  const Range range = some_range(*owned, owned->model.size());
  const auto bytes = some_bytes(range.length);
  world_.page.note(number_, "write %#lx at %lu, %lu bytes", owned->handle, range.offset,
                   range.length);
  const Status status =
      owned->context->write(owned->handle, range.offset, bytes.data(), range.length, kPatience);
  if (fine(status, "write")) {
    owned->model.set(range.offset, bytes);
  } else {
    owned->model.forget(range.offset, range.length);
  }
}

void Worker::read() {
  const OwnedPtr owned = some();
  const Range range = some_range(*owned, owned->model.size());
  std::vector<std::uint8_t> bytes(range.length);
  world_.page.note(number_, "read %#lx at %lu, %lu bytes", owned->handle, range.offset,
                   range.length);
  if (fine(owned->context->read(owned->handle, range.offset, bytes.data(), range.length, kPatience),
           "read")) {
    compare(*owned, range.offset, bytes, "read");
  }
}

void Worker::acquire() {
  if (held_.size() >= kMostHeld) {
    release_one();
    return;
  }
  const OwnedPtr owned = some();
  const Range range = some_range(*owned, kSmallView);
  const std::uint32_t mode = owned->read_only || one_in(2) ? kRead : one_in(2) ? kWrite : kDiscard;
  world_.page.note(number_, "acquire %#lx at %lu, %lu bytes, mode %u", owned->handle, range.offset,
                   range.length, mode);
  const Access access{owned->handle, range.offset, range.length, mode, {}, 0};
  Held held{{}, owned, range.offset, mode};
  if (!fine(owned->context->acquire({&access, 1}, kPatience, {&held.record, 1}), "acquire")) {
    return;
  }
  if (mode == kDiscard) {
    const auto bytes = some_bytes(range.length);
    std::memcpy(held.record.data, bytes.data(), bytes.size());
    owned->model.set(range.offset, bytes);
  }
  check_view(held, "acquire");
  ++owned->held;
  held_.push_back(std::move(held));
}

// Acquires a list of two ranges of different buffers, as an operation.
void Worker::acquire_later() {
  if (held_.size() + 2 > kMostHeld) {
    release_one();
    return;
  }
  const std::array<OwnedPtr, 2> owned = {some(), some()};
  if (owned[0]->context != owned[1]->context) {
    return;
  }
  std::array<Access, 2> list;
  std::array<Held, 2> held;
  std::array<ViewRecord, 2> records;
  for (unsigned i = 0; i < 2; ++i) {
    const Range range = some_range(*owned[i], kSmallView);
    list[i] = {owned[i]->handle, range.offset, range.length, kRead, {}, 0};
    held[i] = {{}, owned[i], range.offset, kRead};
  }
  world_.page.note(number_, "acquire_async %#lx at %lu and %#lx at %lu", list[0].buffer,
                   list[0].offset, list[1].buffer, list[1].offset);
  auto op = owned[0]->context->acquire_async(list, records);
  if (!fine(op.status(), "acquire_async")) {
    return;
  }
  const bool cancels = one_in(4);
  if (cancels) {
    (void)fine(op->cancel(), "op cancel");
  }
  if (!fine(op->wait(), "op wait", {cancels ? Code::cancelled : Code::ok})) {
    return;
  }
  for (unsigned i = 0; i < 2; ++i) {
    held[i].record = records[i];
    check_view(held[i], "acquire_async");
    ++owned[i]->held;
    held_.push_back(std::move(held[i]));
  }
}

void Worker::check_view(const Held& held, const char* when) {
  compare(*held.of, held.offset, bytes_at(held.record.data, held.record.length), when);
}

void Worker::store_in_view() {
  for (Held& held : held_) {
    if (held.mode != kRead) {
      const std::uint64_t at = upto(held.record.length - 1);
      const auto bytes = some_bytes(1 + upto(held.record.length - at - 1));
      world_.page.note(number_, "store %#lx at %lu, %zu bytes", held.of->handle, held.offset + at,
                       bytes.size());
      std::memcpy(static_cast<std::uint8_t*>(held.record.data) + at, bytes.data(), bytes.size());
      held.of->model.set(held.offset + at, bytes);
      return;
    }
  }
}

void Worker::release(Held& held) {
  world_.page.note(number_, "release %#lx at %lu", held.of->handle, held.offset);
  check_view(held, "view before its release");
  --held.of->held;
  (void)fine(held.of->context->release({&held.record, 1}), "release");
  if (held.of->context->release({&held.record, 1}).ok()) {
    fail("release", "a second release of a view succeeded");
  }
}

void Worker::release_one() {
  if (held_.empty()) {
    return;
  }
  const std::size_t i = random_() % held_.size();
  release(held_[i]);
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
}

// ---- Rows --------------------------------------------------------------------------------------

void Worker::gather(bool into_buffer) {
  const OwnedPtr owned = some();
  const std::uint64_t row = 1 + upto(std::min<std::uint64_t>(owned->model.size(), 6000) - 1);
  const std::uint64_t rows = owned->model.size() / row;
  std::vector<std::uint64_t> index(1 + upto(40));
  for (auto& i : index) {
    i = upto(rows - 1);
  }
  std::vector<std::uint8_t> wanted(index.size() * row);
  const Rows list{owned->handle, 0, row, 0, index.data(), index.size()};
  if (into_buffer) {
    const OwnedPtr to = some(true);
    if (to == nullptr || to == owned || to->context != owned->context ||
        to->model.size() < wanted.size()) {
      return;
    }
    const std::uint64_t offset = upto(to->model.size() - wanted.size());
    world_.page.note(number_, "gather_into %#lx, %zu rows of %lu, to %#lx at %lu", owned->handle,
                     index.size(), row, to->handle, offset);
    const bool good =
        fine(owned->context->gather_into(list, to->handle, offset, kPatience), "gather_into");
    for (std::size_t i = 0; i < index.size(); ++i) {
      if (good) {
        to->model.copy(offset + i * row, owned->model, index[i] * row, row);
      } else {
        to->model.forget(offset + i * row, row);
      }
    }
    return;
  }
  world_.page.note(number_, "gather %#lx, %zu rows of %lu", owned->handle, index.size(), row);
  Status status;
  if (one_in(3)) {
    Op op;
    status = owned->context->gather(list, wanted.data(), kPatience, &op);
    const bool cancels = status.ok() && one_in(4);
    if (cancels) {
      (void)fine(op.cancel(), "op cancel");
    }
    if (status.ok()) {
      status = op.wait();
    }
    if (cancels && status.code() == Code::cancelled) {
      return;
    }
  } else {
    status = owned->context->gather(list, wanted.data(), kPatience);
  }
  for (std::size_t i = 0; fine(status, "gather") && i < index.size(); ++i) {
    compare(*owned, index[i] * row, std::span(wanted).subspan(i * row, row), "gather");
  }
}

void Worker::scatter() {
  const OwnedPtr owned = some(true);
  if (owned == nullptr) {
    return;
  }
  const std::uint64_t row = 1 + upto(std::min<std::uint64_t>(owned->model.size(), 6000) - 1);
  std::vector<std::uint64_t> index(1 + upto(20));
  for (auto& i : index) {
    i = upto(owned->model.size() / row - 1);
  }
  const auto bytes = some_bytes(index.size() * row);
  const Rows list{owned->handle, 0, row, 0, index.data(), index.size()};
  world_.page.note(number_, "scatter %#lx, %zu rows of %lu", owned->handle, index.size(), row);
  const bool good = fine(owned->context->scatter(list, bytes.data(), kPatience), "scatter");
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (good) {
      owned->model.set(index[i] * row, std::span(bytes).subspan(i * row, row));
    } else {
      owned->model.forget(index[i] * row, row);
    }
  }
}

// ---- Movement ----------------------------------------------------------------------------------

void Worker::hint() {
  const OwnedPtr owned = some();
  const Range range = some_range(*owned, owned->model.size());
  const Access access{owned->handle, range.offset, range.length, kRead, {}, 0};
  Context& context = *owned->context;
  switch (random_() % 6) {
    case 0:
    case 1:
      world_.page.note(number_, "evict %#lx at %lu, %lu bytes", owned->handle, range.offset,
                       range.length);
      // Pages that a view pins stay.
      (void)fine(context.evict({&access, 1}, kPatience), "evict", {Code::busy});
      break;
    case 2:
      world_.page.note(number_, "prefetch %#lx at %lu", owned->handle, range.offset);
      (void)fine(context.prefetch({&access, 1}), "prefetch");
      break;
    case 3: {
      static constexpr std::array kHints = {Advice::cold,     Advice::sequential, Advice::random,
                                            Advice::streamed, Advice::touched,    Advice::keep,
                                            Advice::frozen,   Advice::will_need};
      const Advice advice = kHints[random_() % kHints.size()];
      world_.page.note(number_, "advise %#lx, %u", owned->handle, static_cast<unsigned>(advice));
      (void)fine(context.advise({&access, 1}, advice, one_in(2) ? 1 : 0), "advise");
      break;
    }
    case 4: {
      const bool down = one_in(2);
      world_.page.note(number_, "migrate %#lx %s", owned->handle, down ? "down" : "up");
      (void)fine(context.migrate({&access, 1}, {down ? Kind::block : Kind::dram, 0}, kPatience),
                 "migrate", {Code::busy, Code::unsupported, Code::invalid_argument});
      break;
    }
    default:
      if (owned->read_only || owned->held != 0) {
        return;
      }
      world_.page.note(number_, "dont_need %#lx at %lu, %lu bytes", owned->handle, range.offset,
                       range.length);
      if (fine(context.advise({&access, 1}, Advice::dont_need), "dont_need")) {
        owned->model.zero(range.offset, range.length);
      } else {
        owned->model.forget(range.offset, range.length);
      }
  }
}

void Worker::move() {
  const OwnedPtr from = some(true), to = some(true);
  if (from == nullptr || to == nullptr || from == to || !from->mapped || !to->mapped ||
      from->held != 0 || to->held != 0 || from->context != to->context) {
    return;
  }
  const Range range = some_range(*from, std::min(from->model.size(), to->model.size()));
  const std::uint64_t room = to->model.size() - range.length;
  const std::uint64_t at = one_in(2) ? std::min(range.offset, room) : upto(room);
  world_.page.note(number_, "move_bytes %#lx at %lu, %lu bytes, to %#lx at %lu", from->handle,
                   range.offset, range.length, to->handle, at);
  bool good = false;
  const bool served = touched([&] {
    good = fine(from->context->move_bytes(to->handle, at, from->handle, range.offset, range.length),
                "move_bytes");
  });
  if (!served && !world_.refuses) {
    fail("move_bytes", "a touch was refused");
  }
  if (served && good) {
    to->model.copy(at, from->model, range.offset, range.length);
    from->model.zero(range.offset, range.length);
  } else {
    to->model.forget(at, range.length);
    from->model.forget(range.offset, range.length);
  }
}

void Worker::touch() {
  const OwnedPtr owned = some();
  if (!owned->mapped) {
    return;
  }
  const Range range = some_range(*owned, owned->model.size());
  auto* const at = reinterpret_cast<std::uint8_t*>(owned->address) + range.offset;
  if (one_in(2)) {
    const auto bytes = some_bytes(range.length);
    world_.page.note(number_, "touch to write %#lx at %lu, %lu bytes", owned->handle, range.offset,
                     range.length);
    if (touched([&] { std::memcpy(at, bytes.data(), bytes.size()); })) {
      owned->model.set(range.offset, bytes);
      return;
    }
    owned->model.forget(range.offset, range.length);
  } else {
    std::vector<std::uint8_t> seen(range.length);
    world_.page.note(number_, "touch to read %#lx at %lu, %lu bytes", owned->handle, range.offset,
                     range.length);
    if (touched([&] { std::memcpy(seen.data(), at, seen.size()); })) {
      compare(*owned, range.offset, seen, "touch");
      return;
    }
  }
  if (!world_.refuses) {
    fail("touch", "SIGBUS");
  }
}

// ---- Small objects, queries, foreign handles ---------------------------------------------------

void Worker::place() {
  if (blocks_.size() >= kMostBlocks || (one_in(2) && !blocks_.empty())) {
    const std::size_t i = random_() % blocks_.size();
    Block& block = blocks_[i];
    std::vector<std::uint8_t> seen(block.bytes.size());
    const bool served = touched([&] { std::memcpy(seen.data(), block.data, seen.size()); });
    if ((served && seen != block.bytes) || (!served && !world_.refuses)) {
      fail("free_ptr", "the block has other bytes than were written");
    }
    world_.page.note(number_, "free_ptr %p", static_cast<void*>(block.data));
    if (fine(block.context->free_ptr(block.data), "free_ptr")) {
      blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return;
  }
  if (world_.follows && !world_.maps) {
    return;
  }
  const Place where{one_in(2) ? Kind::any : Kind::dram, 0};
  auto bytes = some_bytes(1 + upto(one_in(3) ? 100'000 : 300));
  world_.page.note(number_, "malloc_at %zu bytes", bytes.size());
  auto block = world_.contexts[0]->malloc_at(where, bytes.size(), std::uint64_t{1} << upto(8));
  if (!fine(block.status(), "malloc_at", {Code::unsupported})) {
    return;
  }
  auto* const data = static_cast<std::uint8_t*>(*block);
  if (touched([&] { std::memcpy(data, bytes.data(), bytes.size()); })) {
    blocks_.push_back({world_.contexts[0], data, std::move(bytes)});
  } else if (world_.refuses) {
    (void)fine(world_.contexts[0]->free_ptr(data), "free_ptr");
  } else {
    fail("malloc_at", "SIGBUS");
  }
}

void Worker::ask() {
  const OwnedPtr owned = some();
  world_.page.note(number_, "ask about %#lx", owned->handle);
  auto info = owned->context->info(owned->handle);
  if (fine(info.status(), "info") && info->bytes != owned->model.size()) {
    fail("info", "another size");
  }
  (void)fine(owned->context->why(owned->handle, upto(owned->model.size() - 1)).status(), "why");
  if (one_in(8)) {
    auto text = owned->context->stats_json(4);
    if (fine(text.status(), "stats_json") && (text->empty() || text->front() != '{')) {
      fail("stats_json", "no object");
    }
  }
}

// One context refuses handles of the other, without any effect.
void Worker::foreign() {
  if (world_.contexts[1] == nullptr) {
    return;
  }
  const OwnedPtr owned = some();
  Context& other = *world_.contexts[owned->context == world_.contexts[0] ? 1 : 0];
  world_.page.note(number_, "give %#lx to the other context", owned->handle);
  std::array<std::uint8_t, 16> bytes{};
  const std::uint64_t n = std::min<std::uint64_t>(bytes.size(), owned->model.size());
  const Access access{owned->handle, 0, n, kRead, {}, 0};
  ViewRecord view;
  if (other.read(owned->handle, 0, bytes.data(), n).ok() ||
      other.write(owned->handle, 0, bytes.data(), n).ok() ||
      other.acquire({&access, 1}, Timeout::none(), {&view, 1}).ok() ||
      other.evict({&access, 1}).ok() || other.free(owned->handle).ok()) {
    fail("foreign handle", "the other context took it");
  }
  for (const Held& held : held_) {
    if (held.of->context != &other && other.release({&held.record, 1}).ok()) {
      fail("foreign view", "the other context released it");
    }
  }
}

// ---- Forks and ends ----------------------------------------------------------------------------

// The child has only this thread. With fork=follow it has its own bytes of mapped buffers;
// otherwise views stay readable and every call is refused.
int Worker::check_in_child() {
  if (!world_.follows) {
    for (const Held& held : held_) {
      if (!held.of->mapped) {  // The child does not get the window of a mapped buffer.
        world_.page.note(number_, "in the child: view of %#lx at %lu", held.of->handle,
                         held.offset);
        check_view(held, "view in the child");
      }
    }
    const OwnedPtr owned = some();
    if (owned->context->free(owned->handle).code() != Code::shut_down) {
      fail("free in the child", "not shut_down");
    }
    return world_.failed ? 1 : 0;
  }
  check_left_to_parent();
  for (const OwnedPtr& owned : owned_) {
    if (!owned->mapped) {
      continue;
    }
    std::vector<std::uint8_t> seen(owned->model.size());
    if (touched([&] { std::memcpy(seen.data(), owned->address, seen.size()); })) {
      compare(*owned, 0, seen, "touch in the child");
      if (touched([&] { std::memset(owned->address, 0x5a, seen.size()); }) &&
          touched([&] { std::memcpy(seen.data(), owned->address, seen.size()); }) &&
          std::any_of(seen.begin(), seen.end(), [](std::uint8_t byte) { return byte != 0x5a; })) {
        fail("touch in the child", "its own write is not there");
      }
    } else if (!world_.refuses) {
      fail("touch in the child", "SIGBUS");
    }
  }
  return world_.failed ? 1 : 0;
}

// Buffers that are not mapped are stale in the child, and their views end. The child may allocate
// others. If it could not follow, every call is refused.
void Worker::check_left_to_parent() {
  const auto is = [&](const Status& status, Code wanted, const char* what) {
    if (status.code() != wanted && !(world_.refuses && status.code() == Code::shut_down)) {
      fail(what, status.message());
    }
  };
  for (const Held& held : held_) {
    if (!held.of->mapped) {
      is(held.of->context->release({&held.record, 1}), Code::ok, "release in the child");
      is(held.of->context->release({&held.record, 1}), Code::invalid_argument,
         "second release in the child");
    }
  }
  for (const OwnedPtr& owned : owned_) {
    std::uint8_t byte = 0;
    if (!owned->mapped) {
      is(owned->context->read(owned->handle, 0, &byte, 1), Code::stale_handle, "read in the child");
      is(owned->context->free(owned->handle), Code::ok, "free in the child");
    }
  }
  const auto bytes = some_bytes(400'000);
  std::vector<std::uint8_t> seen(bytes.size());
  auto own = world_.contexts[0]->alloc(bytes.size());
  if (fine(own.status(), "alloc in the child", {world_.refuses ? Code::shut_down : Code::ok}) &&
      fine(own->write(0, bytes.data(), bytes.size()), "write in the child") &&
      fine(own->read(0, seen.data(), seen.size()), "read in the child") && seen != bytes) {
    fail("read in the child", "other bytes than were written");
  }
}

void Worker::fork_child() {
  world_.page.note(number_, "fork");
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (world_.follows) {
      ::signal(SIGSEGV, SIG_DFL);
    }
    ::alarm(60);
    const int result = check_in_child();
    std::fflush(nullptr);
    ::_exit(result);
  }
  if (child < 0) {
    if (!world_.refuses) {
      fail("fork", std::strerror(errno));
    }
    return;
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  // A child that could not follow has no windows, so its touch raises SIGSEGV.
  const bool not_followed = world_.refuses && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
  if (!not_followed && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
    fail("fork", WIFSIGNALED(status)
                     ? std::string("the child died of ") + ::strsignal(WTERMSIG(status))
                     : "the child found a difference");
  }
}

void Worker::touch_at_thread_end() {
  if (owned_.empty() || world_.failed) {
    return;
  }
  const OwnedPtr owned = owned_.front();
  world_.page.note(number_, "a view of %#lx in a key's destructor", owned->handle);
  const std::uint64_t n = std::min<std::uint64_t>(owned->model.size(), 100);
  const Access access{owned->handle, 0, n, kRead, {}, 0};
  Held held{{}, owned, 0, kRead};
  if (fine(owned->context->acquire({&access, 1}, kPatience, {&held.record, 1}), "acquire")) {
    ++owned->held;
    release(held);
  }
}

void Worker::finish() {
  for (Held& held : held_) {
    release(held);
  }
  held_.clear();
  for (const OwnedPtr& owned : owned_) {
    std::vector<std::uint8_t> seen(owned->model.size());
    world_.page.note(number_, "read all of %#lx", owned->handle);
    const Status status =
        owned->context->read(owned->handle, 0, seen.data(), seen.size(), kPatience);
    if (!status.ok()) {
      fail("read after the refusals ended", status.message());
      return;
    }
    compare(*owned, 0, seen, "read at the end");
    const Status freed = owned->context->free(owned->handle);
    if (!freed.ok()) {
      fail("free at the end", freed.message());
    }
  }
  owned_.clear();
  for (const Block& block : blocks_) {
    if (std::memcmp(block.data, block.bytes.data(), block.bytes.size()) != 0) {
      fail("block at the end", "other bytes than were written");
    }
    const Status freed = block.context->free_ptr(block.data);
    if (!freed.ok()) {
      fail("free_ptr at the end", freed.message());
    }
  }
  blocks_.clear();
}

}  // namespace tiermem::shell
