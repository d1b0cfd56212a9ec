// The calls of one input. Each is checked against the promises in its documentation in tiermem.h.
#include "calls.hpp"

#include <thread>

namespace tiermem::fuzz {
namespace {

constexpr unsigned kMostCalls = 64;
constexpr std::size_t kMostOfAKind = 8;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 19;
constexpr std::uint64_t kMostExtents = std::uint64_t{1} << 13;

// A result that no call has written.
constexpr std::uint64_t kUntouched = 0x5a5a5a5a5a5a5a5a;

}  // namespace

void Calls::run(std::span<const std::uint8_t> bytes) {
  Input in(bytes);
  void (Calls::*const calls[])(Input&) = {
      &Calls::alloc,    &Calls::acquire,       &Calls::use,          &Calls::release,
      &Calls::read,     &Calls::write,         &Calls::move,         &Calls::advise,
      &Calls::prefetch, &Calls::acquire_async, &Calls::touch,        &Calls::address,
      &Calls::adopt,    &Calls::free,          &Calls::operations,   &Calls::budget,
      &Calls::info,     &Calls::objects,       &Calls::ask,          &Calls::contexts,
      &Calls::rows,     &Calls::rows_into,     &Calls::other_context};
  const auto make_some = [&](unsigned most) {
    for (unsigned i = 0; i < most && !in.over(); ++i) {
      (this->*calls[in.below(std::size(calls))])(in);
    }
  };
  for (unsigned i = 0; i < kMostCalls && !in.over();) {
    // Only a few inputs use a thread, because a thread costs as much as 50 calls. It ends while it
    // holds its buffers.
    const bool by_thread = in.byte() >= 252;
    const unsigned n = by_thread ? 1 + in.byte() % 8 : 4;
    if (by_thread) {
      std::thread(make_some, n).join();
    } else {
      make_some(n);
    }
    i += n;
  }
}

// ---- Buffers -----------------------------------------------------------------------------------

void Calls::alloc(Input& in) {
  if (buffers_.size() == kMostOfAKind) {
    return;
  }
  const std::uint64_t bytes = in.length();
  const tm_buffer_options wanted = options(in);
  Sized<tm_buffer_options> given(in, wanted);
  const bool defaults = in.byte() % 2 == 0;
  const std::uint64_t extent = defaults ? 0 : wanted.extent_bytes;
  if (bytes <= std::uint64_t{1} << 47 &&
      bytes / std::max<std::uint64_t>(extent, 4096) > kMostExtents) {
    return;  // The records of such a buffer take gigabytes.
  }
  tm_buffer made = kUntouched;
  const tm_status status = check(tm_alloc(context(in), bytes, defaults ? nullptr : given.get(),
                                          in.byte() == 255 ? nullptr : &made));
  require(!given.changed(), "options are only read");
  if (status != TM_OK) {
    require(made == kUntouched, "no handle after a failure");
  } else if (bytes > kMostBytes) {
    require(check(tm_free(context_, made)) == TM_OK, "a large buffer is freed");
  } else {
    got_buffer(made, std::vector<unsigned char>(bytes), defaults ? 0 : given.get()->flags, false);
  }
}

void Calls::adopt(Input& in) {
  if (buffers_.size() == kMostOfAKind) {
    return;
  }
  const std::string folder = adopted_.substr(0, adopted_.rfind('/'));
  const char* const paths[] = {adopted_.c_str(), adopted_.c_str(), adopted_.c_str(),
                               folder.c_str(),   "/nonexistent",   "",
                               nullptr};
  const char* const path = paths[in.below(std::size(paths))];
  const std::uint64_t offset = in.length();
  const std::uint64_t length = in.length();
  Sized<tm_buffer_options> given(in, options(in));
  const bool defaults = in.byte() % 2 == 0;
  tm_buffer made = kUntouched;
  const tm_status status =
      check(tm_adopt_file(context(in), path, offset, length, defaults ? nullptr : given.get(),
                          in.byte() == 255 ? nullptr : &made));
  if (status != TM_OK) {
    require(made == kUntouched, "no handle after a failure");
    return;
  }
  require(offset < kAdoptedBytes && length <= kAdoptedBytes - offset, "a range of the file");
  std::vector<unsigned char> bytes(length != 0 ? length : kAdoptedBytes - offset);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = adopted_byte(offset + i);
  }
  got_buffer(made, std::move(bytes), 0, true);
}

void Calls::free(Input& in) {
  const tm_buffer which = handle(in);
  const tm_status status = check(tm_free(context(in), which));
  const Buffer* const buffer = find(which);
  if (status == TM_OK) {
    require(buffer != nullptr, "only what lives is freed");
    drop(static_cast<std::size_t>(buffer - buffers_.data()));
    require(check(tm_free(context_, which)) == TM_STALE_HANDLE, "a handle is freed once");
  }
}

void Calls::info(Input& in) {
  const tm_buffer which = handle(in);
  Sized<tm_residency> out(in, tm_residency{});
  const tm_status status = check(tm_buffer_info(context(in), which, out.get()));
  require(status == TM_OK ? find(which) != nullptr : !out.changed(), "information, or none");
  tm_residency whole{};
  whole.size = sizeof(whole);
  if (status == TM_OK && tm_buffer_info(context_, which, &whole) == TM_OK) {
    require(whole.bytes == find(which)->bytes.size() && whole.lost == 0, "its bytes are there");
  }
}

void Calls::address(Input& in) {
  const tm_buffer which = handle(in);
  void* at = reinterpret_cast<void*>(kUntouched);
  if (in.byte() % 8 == 0) {
    const tm_status status = check(tm_address_on(context(in), which, place(in), &at));
    require(status != TM_OK && at == reinterpret_cast<void*>(kUntouched), "there is no GPU");
    return;
  }
  const tm_status status = check(tm_address(context(in), which, in.byte() == 255 ? nullptr : &at));
  if (status != TM_OK) {
    require(at == reinterpret_cast<void*>(kUntouched), "no address after a failure");
    return;
  }
  Buffer* const buffer = find(which);
  require(buffer != nullptr && (buffer->flags & TM_MAPPED) != 0, "the address of a mapped buffer");
  require(buffer->address == nullptr || buffer->address == at, "an address never changes");
  buffer->address = static_cast<unsigned char*>(at);
}

/// Touches a mapped buffer without a view.
void Calls::touch(Input& in) {
  Buffer* const buffer = find(handle(in));
  if (buffer == nullptr || buffer->address == nullptr) {
    return;
  }
  const std::uint64_t offset = in.length() % buffer->bytes.size();
  const std::uint64_t length = std::min<std::uint64_t>(in.byte(), buffer->bytes.size() - offset);
  check_bytes(*buffer, offset, buffer->address + offset, length);
  if (in.byte() % 2 == 0) {
    write_bytes(*buffer, offset, buffer->address + offset, length, in.byte());
  }
}

void Calls::read(Input& in) {
  const tm_buffer which = handle(in);
  const std::uint64_t offset = in.length();
  const std::uint64_t length = in.length();
  const Buffer* const buffer = find(which);
  // Allocates room only for a range inside the buffer; any other range copies nothing.
  const bool fits = buffer != nullptr && offset <= buffer->bytes.size() &&
                    length <= buffer->bytes.size() - offset;
  std::vector<unsigned char> to(fits ? length : 0);
  to.reserve(1);
  const tm_status status = check(tm_read(
      context(in), which, offset, in.byte() == 255 ? nullptr : to.data(), length, timeout(in)));
  if (status == TM_OK && length != 0) {
    require(fits, "only a range of a live buffer is read");
    check_bytes(*buffer, offset, to.data(), length);
  }
}

void Calls::write(Input& in) {
  const tm_buffer which = handle(in);
  const std::uint64_t offset = in.length();
  const std::uint64_t length = in.length();
  Buffer* const buffer = find(which);
  const bool fits = buffer != nullptr && offset <= buffer->bytes.size() &&
                    length <= buffer->bytes.size() - offset;
  std::vector<unsigned char> from(fits ? length : 0, in.byte());
  from.reserve(1);
  const tm_status status = check(tm_write(
      context(in), which, offset, in.byte() == 255 ? nullptr : from.data(), length, timeout(in)));
  if (status == TM_OK && length != 0) {
    require(fits && !buffer->read_only, "only a range of a live buffer is written");
    std::copy(from.begin(), from.end(),
              buffer->bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  } else if (fits) {
    buffer->unsure = true;
  }
}

// ---- Views -------------------------------------------------------------------------------------

void Calls::acquire(Input& in) {
  if (views_.size() > 4 * kMostOfAKind) {
    return;
  }
  const std::vector<tm_access> wanted = list(in);
  std::vector<tm_view> views(wanted.size());
  tm_view untouched;
  std::memset(&untouched, 0x5a, sizeof(untouched));
  std::fill(views.begin(), views.end(), untouched);
  const std::uint8_t wrong = in.byte();
  const std::size_t n = wrong == 255 ? ~std::size_t{0} : wanted.size();
  const tm_status status =
      check(tm_acquire(context(in), wrong == 254 ? nullptr : wanted.data(), n, stream(in),
                       timeout(in), wrong == 253 ? nullptr : views.data()));
  if (status != TM_OK) {
    require(std::all_of(views.begin(), views.end(),
                        [&](const tm_view& view) {
                          return std::memcmp(&view, &untouched, sizeof(view)) == 0;
                        }),
            "no view after a failure");
    return;
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    got_view(wanted[i], views[i]);
  }
}

void Calls::acquire_async(Input& in) {
  if (pending_.size() == kMostOfAKind || views_.size() > 4 * kMostOfAKind) {
    return;
  }
  Pending made;
  made.list = list(in);
  made.views = std::make_unique<tm_view[]>(made.list.size());
  made.op = kUntouched;
  const std::uint8_t wrong = in.byte();
  const tm_status status =
      check(tm_acquire_async(context(in), wrong == 254 ? nullptr : made.list.data(),
                             wrong == 255 ? ~std::size_t{0} : made.list.size(), stream(in),
                             wrong == 253 ? nullptr : made.views.get(), &made.op));
  require((status == TM_OK) == (made.op != kUntouched), "an operation, or none");
  if (status == TM_OK) {
    pending_.push_back(std::move(made));
  }
}

/// Reads the bytes of a held view, and may write them.
void Calls::use(Input& in) {
  if (views_.empty()) {
    return;
  }
  const View& held = views_[in.below(views_.size())];
  Buffer* const buffer = find(held.access.buffer);
  if (buffer == nullptr) {
    return;  // Freed: its bytes still live, but the other calls do not see them.
  }
  check_bytes(*buffer, held.access.offset, held.record.data, held.access.length);
  if ((held.access.mode & (TM_WRITE | TM_DISCARD)) != 0) {
    write_bytes(*buffer, held.access.offset, held.record.data, held.access.length, in.byte());
  }
}

void Calls::release(Input& in) {
  std::vector<tm_view> given(in.byte() < 200 ? 1 : in.below(4));
  for (tm_view& each : given) {
    each = view(in);
  }
  const tm_stream after = stream(in);
  tm_context* const from = context(in);
  const tm_status status = check(tm_release(from, given.data(), given.size(), after));
  const bool obeyed = from != nullptr && after.kind == TM_STREAM_HOST && after.reserved == 0 &&
                      after.handle == nullptr;
  std::size_t held = 0;
  for (const tm_view& each : given) {
    const auto found = std::find_if(views_.begin(), views_.end(), [&](const View& view) {
      return std::memcmp(view.record.token, each.token, sizeof(each.token)) == 0;
    });
    if (obeyed && found != views_.end()) {
      ++held;
      released_.push_back(found->record);
      views_.erase(found);
    }
  }
  require((status == TM_OK) == (obeyed ? held == given.size() : false), "what is held is released");
}

}  // namespace tiermem::fuzz
