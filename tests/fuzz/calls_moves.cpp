// Calls that move bytes, calls that wait, and queries.
#include <unistd.h>

#include "calls.hpp"

namespace tiermem::fuzz {
namespace {

constexpr std::size_t kMostObjects = 16;
constexpr std::uint64_t kUntouched = 0x5a5a5a5a5a5a5a5a;
constexpr std::int64_t kSecond = 1'000'000'000;

}  // namespace

void Calls::move(Input& in) {
  const std::vector<tm_access> which = list(in);
  const std::size_t n = in.byte() == 255 ? ~std::size_t{0} : which.size();
  if (in.byte() % 2 == 0) {
    (void)check(tm_evict(context(in), which.data(), n, timeout(in)));
  } else {
    const tm_place to = in.byte() % 2 == 0 ? tm_place{TM_BLOCK, 0} : place(in);
    (void)check(tm_migrate(context(in), which.data(), n, to, timeout(in)));
  }
}

void Calls::advise(Input& in) {
  const std::vector<tm_access> which = list(in);
  const std::uint32_t advice = in.byte() < 240 ? in.byte() % 14u : in.word() & 0xffffffffu;
  const tm_status status =
      check(tm_advise(context(in), which.data(), which.size(), advice, in.length()));
  for (const tm_access& each : which) {
    Buffer* const buffer = find(each.buffer);
    if (advice != TM_DONT_NEED || buffer == nullptr || buffer->read_only ||
        each.offset > buffer->bytes.size()) {
      continue;  // The bytes of an adopted file are in the file.
    }
    const std::uint64_t room = buffer->bytes.size() - each.offset;
    const std::uint64_t length = each.length != 0 ? each.length : room;
    if (length > room) {
      continue;
    }
    const auto from = buffer->bytes.begin() + static_cast<std::ptrdiff_t>(each.offset);
    if (status == TM_OK) {
      std::fill(from, from + static_cast<std::ptrdiff_t>(length), std::uint8_t{0});
    } else {
      buffer->unsure = true;  // The list took effect up to the failing range.
    }
  }
}

// Rows with any numbers. A refused call must not touch its buffers, and an accepted row must be
// inside the buffer.
void Calls::rows(Input& in) {
  constexpr std::size_t kMost = 8;
  std::uint64_t index[kMost] = {};
  tm_rows rows{};
  rows.buffer = handle(in);
  rows.offset = in.length();
  rows.row_bytes = in.byte() < 224 ? 1 + in.length() % 2048 : in.length();
  rows.stride = in.byte() < 128 ? 0 : in.length();
  rows.index = in.byte() == 255 ? nullptr : index;
  rows.count = in.below(kMost + 1);
  for (std::uint64_t& number : index) {
    number = in.byte() < 200 ? in.byte() : in.length();
  }
  const std::uint64_t bytes = std::min<std::uint64_t>(rows.row_bytes, 1 << 16);
  std::vector<unsigned char> memory(kMost * bytes, in.byte());
  void* const at = in.byte() == 255 ? nullptr : memory.data();
  const bool writes = in.byte() % 2 == 0;
  tm_op op = kUntouched;
  tm_op* const out = in.byte() < 64 ? &op : nullptr;
  const tm_rows* const given = in.byte() == 255 ? nullptr : &rows;
  const tm_status begun = check(writes ? tm_scatter(context(in), given, at, timeout(in), out)
                                       : tm_gather(context(in), given, at, timeout(in), out));
  require(out == nullptr || begun == TM_OK || op == kUntouched, "no operation after a failure");
  const tm_status status =
      begun == TM_OK && out != nullptr ? check(tm_op_wait(context_, &op, 1, -1)) : begun;
  Buffer* const buffer = find(rows.buffer);
  if (buffer == nullptr || rows.count == 0) {
    require(buffer != nullptr || status != TM_OK, "no rows of a buffer that is none");
    return;
  }
  const std::uint64_t stride = rows.stride != 0 ? rows.stride : rows.row_bytes;
  for (std::uint64_t i = 0; i < rows.count && status == TM_OK; ++i) {
    const std::uint64_t begin = rows.offset + index[i] * stride;
    if (writes) {
      require(begin <= buffer->bytes.size() && bytes <= buffer->bytes.size() - begin,
              "rows that were accepted are in the buffer");
      std::memcpy(buffer->bytes.data() + begin, memory.data() + i * bytes, bytes);
    } else {
      check_bytes(*buffer, begin, memory.data() + i * bytes, bytes);
    }
  }
  buffer->unsure = buffer->unsure || (writes && status != TM_OK && !buffer->read_only);
}

// Rows between any two buffers, or inside one. The copied rows are those from before the call.
void Calls::rows_into(Input& in) {
  std::uint64_t index[4] = {};
  tm_rows rows{};
  rows.buffer = handle(in);
  rows.offset = in.byte() % 4 == 0 ? in.length() : in.byte();
  rows.row_bytes = in.byte() < 224 ? 1 + in.length() % 4096 : in.length();
  rows.stride = in.byte() < 128 ? 0 : in.length();
  rows.index = index;
  rows.count =
      in.byte() < 250 ? in.below(std::size(index) + 1) : ~std::uint64_t{0} >> in.byte() % 7;
  for (std::uint64_t& number : index) {
    number = in.byte() < 200 ? in.byte() : in.length();
  }
  const tm_buffer to = handle(in);
  const std::uint64_t offset = in.length();
  const tm_status status =
      check(tm_gather_into(context(in), &rows, to, offset, timeout(in), nullptr));
  Buffer* const source = find(rows.buffer);
  Buffer* const target = find(to);
  if (status != TM_OK) {
    if (target != nullptr && !target->read_only) {
      target->unsure = true;
    }
    return;
  }
  require(source != nullptr && (rows.count == 0 || target != nullptr), "rows of what lives");
  require(rows.count <= std::size(index), "no list is longer than memory");
  std::vector<unsigned char> copied;
  const std::uint64_t stride = rows.stride != 0 ? rows.stride : rows.row_bytes;
  for (std::uint64_t i = 0; i < rows.count; ++i) {
    const unsigned __int128 begin = rows.offset + static_cast<unsigned __int128>(index[i]) * stride;
    require(begin + rows.row_bytes <= source->bytes.size(), "rows are inside of the buffer");
    const auto from = source->bytes.begin() + static_cast<std::ptrdiff_t>(begin);
    copied.insert(copied.end(), from, from + static_cast<std::ptrdiff_t>(rows.row_bytes));
  }
  if (rows.count != 0) {
    require(!target->read_only && offset <= target->bytes.size() &&
                copied.size() <= target->bytes.size() - offset,
            "the target has room");
    std::copy(copied.begin(), copied.end(),
              target->bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    target->unsure = target->unsure || source->unsure;
  }
}

// Objects of one context are not valid in another.
void Calls::other_context(Input& in) {
  if (buffers_.empty()) {
    return;
  }
  const tm_buffer theirs = buffers_[in.below(buffers_.size())].handle;
  unsigned char byte = 0;
  tm_view made{};
  const tm_access range{theirs, in.length(), 1, TM_WRITE, {}, 0};
  switch (in.byte() % 5) {
    case 0:
      require(check(tm_read(heaps_, theirs, 0, &byte, 1, 0)) == TM_STALE_HANDLE, "no read");
      return;
    case 1:
      require(check(tm_write(heaps_, theirs, 0, &byte, 1, 0)) == TM_STALE_HANDLE, "no write");
      return;
    case 2:
      require(check(tm_acquire(heaps_, &range, 1, {}, 0, &made)) != TM_OK, "no view");
      return;
    case 3:
      require(check(tm_free(heaps_, theirs)) == TM_STALE_HANDLE, "no end");
      return;
    default:
      require(views_.empty() || check(tm_release(heaps_, &views_[0].record, 1, {})) != TM_OK,
              "no release");
  }
}

void Calls::prefetch(Input& in) {
  if (pending_.size() == 8) {
    return;
  }
  Pending made;
  made.list = list(in);
  made.op = kUntouched;
  const bool asks = in.byte() % 2 == 0;
  const std::size_t n = in.byte() == 255 ? ~std::size_t{0} : made.list.size();
  const tm_status status =
      check(tm_prefetch(context(in), made.list.data(), n, in.length(), asks ? &made.op : nullptr));
  require((status == TM_OK && asks) == (made.op != kUntouched), "an operation, or none");
  if (status == TM_OK && asks) {
    pending_.push_back(std::move(made));
  }
}

// Records the end of an acquire. After success its views must be released.
void Calls::consumed(std::size_t i, bool well) {
  Pending& ended = pending_[i];
  waited_.push_back(ended.op);
  for (std::size_t k = 0; well && ended.views != nullptr && k < ended.list.size(); ++k) {
    if (find(ended.list[k].buffer) != nullptr) {
      got_view(ended.list[k], ended.views[k]);
    } else {
      // The buffer was freed during the acquire.
      views_.push_back({ended.views[k], ended.list[k]});
    }
  }
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
}

void Calls::operations(Input& in) {
  const tm_op which = op(in);
  const auto found = std::find_if(pending_.begin(), pending_.end(),
                                  [&](const Pending& each) { return each.op == which; });
  const bool known = found != pending_.end();
  tm_context* const from = context(in);
  switch (in.byte() % 5) {
    case 0: {
      const tm_status status = check(tm_op_poll(from, which));
      require(status == TM_INVALID_ARGUMENT || (known && from != nullptr),
              "what is polled is known");
      return;
    }
    case 1:
      require((check(tm_op_cancel(from, which)) == TM_OK) == (known && from != nullptr),
              "what is cancelled is known");
      return;
    case 2: {
      int descriptor = -55;
      const tm_status status =
          check(tm_op_fd(from, which, in.byte() == 255 ? nullptr : &descriptor));
      require(status == TM_OK ? known && descriptor >= 0 : descriptor == -55,
              "a descriptor, or none");
      if (status == TM_OK) {
        ::close(descriptor);
      }
      return;
    }
    case 3: {
      Sized<tm_error_info> out(in, tm_error_info{});
      const tm_status status = tm_error(from, which, out.get());
      require(status == TM_OK ? known || which == 0 : !out.changed(), "an error, or none");
      return;
    }
    default: {
      const tm_op twice[] = {which, which};
      const tm_status status = tm_op_wait(from, twice, 1 + in.below(2), in.below(2) * 1000);
      (void)check(status);
      if (known && from != nullptr && status != TM_TIMED_OUT) {
        require(tm_op_poll(context_, which) == TM_INVALID_ARGUMENT,
                "an operation is consumed once");
        consumed(static_cast<std::size_t>(found - pending_.begin()), status == TM_OK);
      } else {
        require(status != TM_OK, "what is waited for is known");
      }
    }
  }
}

void Calls::objects(Input& in) {
  const std::size_t i = in.below(objects_.size());
  const auto is_whole = [](const Object& object) {
    const auto* const bytes = static_cast<const unsigned char*>(object.pointer);
    return std::all_of(bytes, bytes + object.bytes,
                       [&](unsigned char byte) { return byte == object.value; });
  };
  const std::uint8_t kind = in.byte();
  if (kind < 120 && objects_.size() < kMostObjects) {
    Object made;
    std::uint64_t usable = kUntouched;
    made.pointer = &made;
    made.bytes = in.length();
    if (made.bytes > (1 << 26) && made.bytes <= std::uint64_t{1} << 47) {
      return;  // The records of such an object take gigabytes.
    }
    const tm_status status =
        check(tm_malloc((in.byte() == 255 ? nullptr : heaps_), place(in), made.bytes,
                        in.byte() == 255 ? nullptr : &made.pointer));
    require((status == TM_OK) == (made.pointer != &made), "an object, or none");
    if (status != TM_OK) {
      return;
    }
    require(reinterpret_cast<std::uintptr_t>(made.pointer) % 16 == 0, "objects are aligned");
    require(tm_usable_size(heaps_, made.pointer, &usable) == TM_OK && usable >= made.bytes,
            "an object is as large as it was to be");
    made.bytes =
        std::min<std::uint64_t>(made.bytes, 1 << 20);  // Only a part of a large object is touched.
    made.value = in.byte();
    std::memset(made.pointer, made.value, made.bytes);
    objects_.push_back(made);
  } else if (kind < 220 && !objects_.empty()) {
    require(is_whole(objects_[i]), "objects keep their bytes");
    require(check(tm_free_ptr(heaps_, objects_[i].pointer)) == TM_OK, "an object is freed");
    require(tm_free_ptr(heaps_, objects_[i].pointer) == TM_INVALID_ARGUMENT, "and only once");
    objects_.erase(objects_.begin() + static_cast<std::ptrdiff_t>(i));
  } else {
    std::uint64_t usable = kUntouched;
    void* const wild = reinterpret_cast<void*>(
        in.byte() % 2 == 0 || objects_.empty()
            ? in.word()
            : reinterpret_cast<std::uintptr_t>(objects_[i].pointer) + 8 + in.byte());
    const bool ours = std::any_of(objects_.begin(), objects_.end(),
                                  [&](const Object& each) { return each.pointer == wild; });
    require(ours || wild == nullptr || check(tm_free_ptr(heaps_, wild)) == TM_INVALID_ARGUMENT,
            "only an object is freed");
    require(ours || check(tm_usable_size(heaps_, wild, &usable)) == TM_INVALID_ARGUMENT,
            "nor has it a size");
  }
}

void Calls::budget(Input& in) {
  const std::uint8_t kind = in.byte();
  const tm_place dram{TM_DRAM, 0};
  if (kind < 128) {
    // Enough for everything that the input may hold at once.
    (void)check(tm_set_budget(context_, dram, (std::uint64_t{6} << 20) + (kind << 14),
                              holds_nothing() ? kSecond : 0));
  } else if (kind < 192) {
    (void)check(tm_set_budget(context_, {TM_BLOCK, 0}, std::uint64_t{kind} << 19, kSecond));
  } else {
    const tm_place where = place(in);
    const std::uint64_t bytes = in.length();
    if (where.kind != TM_DRAM && where.kind != TM_BLOCK) {
      require(check(tm_set_budget(context(in), where, bytes, 0)) != TM_OK, "no budget of no tier");
    } else if (bytes < 4096) {
      require(check(tm_set_budget(context(in), where, bytes, 0)) != TM_OK || where.kind == TM_BLOCK,
              "no budget of nothing");
    }
  }
}

void Calls::ask(Input& in) {
  tm_context* const from = context(in);
  Sized<tm_counters> counters(in, tm_counters{});
  require(check(tm_stats(from, counters.get())) == TM_OK || !counters.changed(),
          "counters, or none");
  Sized<tm_capabilities> caps(in, tm_capabilities{});
  require(check(tm_caps(from, caps.get())) == TM_OK || !caps.changed(), "capabilities, or none");
  std::uint64_t ordinal = kUntouched;
  const tm_status status =
      check(tm_tick(from, in.byte() % 3u, in.byte() == 255 ? nullptr : &ordinal));
  require(status == TM_OK || ordinal == kUntouched, "an ordinal, or none");
  require(tm_status_name(static_cast<tm_status>(in.word())) != nullptr, "every number has a name");
  require(tm_version() == TM_VERSION, "the version is that of the header");
}

void Calls::contexts(Input& in) {
  const std::string specs[] = {"dram=lots",
                               "colour=red",
                               "dram=18446744073709551615; nvme=off",
                               "numa=1:1G",
                               "dram=8M; nvme=/nonexistent:1M",
                               "gpu=7:1G; gpu_driver=/nonexistent; nvme=off"};
  // A valid one is rare, because each costs as much as a thousand other calls.
  const std::string& spec = in.byte() == 1 ? spec_ : specs[in.below(std::size(specs))];
  tm_context_options given{};
  given.flags = in.byte() % 4 == 3 ? 1 : 0;
  given.toml = in.byte() % 4 == 3 ? "/nonexistent.toml" : nullptr;
  Sized<tm_context_options> options(in, given);
  tm_context* made = nullptr;
  const std::uint8_t kind = in.byte();
  const tm_status status = check(tm_context_create(
      spec.c_str(), kind % 2 == 0 ? options.get() : nullptr, kind == 255 ? nullptr : &made));
  require((status == TM_OK) == (made != nullptr), "a context, or none");
  require(made == nullptr || check(tm_context_destroy(made, 0, -1)) == TM_OK, "and it ends");
  require(check(tm_context_destroy(nullptr, kind, 0)) != TM_OK, "no end of no context");
  require(check(tm_context_destroy(context_, 2 + kind, 0)) != TM_OK, "no end by unknown flags");
  if (!views_.empty()) {
    require(check(tm_context_destroy(context_, 0, 0)) == TM_BUSY, "no end while views are held");
  }
}

// After everything is released nothing is in use, whatever came before.
void Calls::give_all_back() {
  while (!pending_.empty()) {
    (void)tm_op_cancel(context_, pending_.back().op);
    for (std::size_t i = views_.size(); i-- > 0;) {  // It may wait for one of this thread's views.
      require(tm_release(context_, &views_[i].record, 1, {}) == TM_OK, "a view is released");
      views_.pop_back();
    }
    const tm_status status = tm_op_wait(context_, &pending_.back().op, 1, -1);
    consumed(pending_.size() - 1, check(status) == TM_OK);
  }
  for (const View& held : views_) {
    require(tm_release(context_, &held.record, 1, {}) == TM_OK, "a view is released");
  }
  for (const Object& object : objects_) {
    require(tm_free_ptr(heaps_, object.pointer) == TM_OK, "an object is freed");
  }
  for (const Buffer& buffer : buffers_) {
    require(tm_free(context_, buffer.handle) == TM_OK, "a buffer is freed");
  }
  require(tm_set_budget(context_, {TM_DRAM, 0}, std::uint64_t{8} << 20, -1) == TM_OK, "a budget");
  require(tm_set_budget(context_, {TM_BLOCK, 0}, std::uint64_t{64} << 20, -1) == TM_OK, "a budget");
  // The mover ends freed buffers later.
  tm_counters counters{};
  for (unsigned looks = 0; looks == 0 || counters.buffers != 0; ++looks) {
    require(looks < 10'000, "all buffers end");
    ::usleep(looks == 0 ? 0 : 1000);
    counters.size = sizeof(counters);
    require(tm_stats(context_, &counters) == TM_OK, "there are counters");
  }
  require(counters.dram_pinned == 0, "nothing is pinned");
  tm_counters of_heaps{};
  of_heaps.size = sizeof(of_heaps);
  require(tm_stats(heaps_, &of_heaps) == TM_OK && of_heaps.placed_used == 0, "no object is left");
  require(counters.checksum_errors == 0 && counters.io_errors == 0, "no error of a device");
}

}  // namespace tiermem::fuzz
