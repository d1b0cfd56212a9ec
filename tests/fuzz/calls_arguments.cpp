// Valid and invalid arguments of calls, and the checks of every call.
#include <cstdio>
#include <cstdlib>

#include "calls.hpp"

namespace tiermem::fuzz {

void require(bool condition, const char* what) {
  if (!condition) {
    tm_error_info info{};
    info.size = sizeof(info);
    (void)tm_error(nullptr, 0, &info);
    std::fprintf(stderr, "calls_fuzz: not so: %s. The last error: %s: %s\n", what,
                 tm_status_name(info.status), info.text);
    std::abort();
  }
}

std::uint64_t Input::word() {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < 8; ++i) {
    value |= std::uint64_t{byte()} << (8 * i);
  }
  return value;
}

std::uint64_t Input::length() {
  const std::uint64_t more = byte();
  switch (byte() % 8) {
    case 0:
      return 0;
    case 1:
    case 2:
      return more;
    case 3:
      return 4096 * (more % 33);
    case 4:
      return 4096 * (more % 33) + more;
    case 5:
      return 65536 + more;
    case 6:
      return ~std::uint64_t{0} - more;
    default: {
      // Next to each power of two up to 2^64.
      constexpr std::uint64_t kBeside[] = {0, ~std::uint64_t{0}, 1, 4096, ~std::uint64_t{4095}};
      return (std::uint64_t{1} << more % 64) + kBeside[more / 64 % std::size(kBeside)];
    }
  }
}

// Most bytes of the input choose a valid handle. Otherwise few calls would get past the checks.
tm_buffer Calls::handle(Input& in) {
  const std::uint8_t kind = in.byte();
  const std::size_t i = in.below(buffers_.size());
  if (kind < 224 && !buffers_.empty()) {
    return buffers_[i].handle;
  }
  if (kind < 240 && !freed_.empty()) {
    return freed_[in.below(freed_.size())];
  }
  if (kind < 250 && !buffers_.empty()) {
    // The handle of another buffer, if it exists, or of another life.
    const tm_buffer forged = buffers_[i].handle ^ std::uint64_t{1} << in.byte() % 64;
    return find(forged) == nullptr ? forged : 0;
  }
  const tm_buffer wild = in.word();
  return find(wild) == nullptr ? wild : 0;
}

tm_place Calls::place(Input& in) {
  const std::uint8_t kind = in.byte();
  if (kind < 128) {
    return {};
  }
  if (kind < 240) {
    return {static_cast<std::uint16_t>(kind % 9), static_cast<std::uint16_t>(kind > 232 ? 1 : 0)};
  }
  return {static_cast<std::uint16_t>(in.word()), static_cast<std::uint16_t>(in.word())};
}

tm_stream Calls::stream(Input& in) {
  const std::uint8_t kind = in.byte();
  if (kind < 224) {
    return {};
  }
  return {static_cast<std::uint32_t>(kind % 3), in.byte() & 1u,
          reinterpret_cast<void*>(std::uintptr_t{in.byte()} / 2)};
}

// Waits for ever only if this thread holds nothing that the call could wait for.
std::int64_t Calls::timeout(Input& in) {
  constexpr std::int64_t kMillisecond = 1'000'000;
  switch (in.byte() % 4) {
    case 0:
      return 0;
    case 1:
      return holds_nothing() ? INT64_MIN : kMillisecond;
    case 2:
      return holds_nothing() ? INT64_MAX : kMillisecond / 10;
    default:
      return holds_nothing() ? -1 : kMillisecond;
  }
}

tm_access Calls::access(Input& in) {
  tm_access a{};
  a.buffer = handle(in);
  a.offset = in.length();
  a.length = in.length();
  const std::uint8_t mode = in.byte();
  a.mode = mode < 240 ? mode % 3 == 0   ? TM_READ
                        : mode % 3 == 1 ? TM_WRITE
                                        : TM_DISCARD
                      : static_cast<std::uint32_t>(in.word());
  a.where = place(in);
  a.reserved = in.byte() == 255 ? 1 : 0;
  return a;
}

std::vector<tm_access> Calls::list(Input& in) {
  const std::uint8_t kind = in.byte();
  std::vector<tm_access> made(kind < 128 ? 1 : kind < 240 ? kind % 5 : 33 + kind % 16);
  for (tm_access& each : made) {
    each = kind < 240 || made.data() == &each ? access(in) : made[0];
  }
  return made;
}

tm_op Calls::op(Input& in) {
  const std::uint8_t kind = in.byte();
  if (kind < 200 && !pending_.empty()) {
    return pending_[in.below(pending_.size())].op;
  }
  return kind < 240 && !waited_.empty() ? waited_[in.below(waited_.size())] : in.word();
}

// Returns a held view, a released one, or a forged one.
tm_view Calls::view(Input& in) {
  const std::uint8_t kind = in.byte();
  tm_view record{};
  if (kind < 224 && !views_.empty()) {
    return views_[in.below(views_.size())].record;
  }
  if (kind < 240 && !released_.empty()) {
    return released_[in.below(released_.size())];
  }
  if (kind < 250 && !views_.empty()) {
    record = views_[in.below(views_.size())].record;
    record.token[in.byte() % 2] ^= std::uint64_t{1} << in.byte() % 64;
    return record;
  }
  record.token[0] = in.word();
  record.token[1] = in.word();
  return record;
}

tm_buffer_options Calls::options(Input& in) {
  tm_buffer_options made{};
  const std::uint64_t extents[] = {0, 4096, 65536, std::uint64_t{1} << 21, in.length()};
  made.extent_bytes = extents[in.below(std::size(extents))];
  made.alignment = in.byte() < 224 ? 0 : in.length();
  const std::uint8_t flags = in.byte();
  made.flags = flags < 240 ? flags & (TM_MAPPED | TM_DROPPABLE | TM_NO_CHECKSUM | TM_ISOLATED)
                           : static_cast<std::uint32_t>(in.word());
  made.advice = in.byte() % 16;
  made.preferred = place(in);
  made.label = in.byte() % 2 == 0 ? nullptr : "a label of more than thirty-one characters";
  return made;
}

// ---- Checks of every call ----------------------------------------------------------------------

tm_status Calls::check(tm_status status) {
  require(status >= TM_OK && status < TM_INTERNAL, "a status, and no defect");
  require(status != TM_LOST && status != TM_SHUT_DOWN, "nothing is lost, nothing is shut down");
  if (status != TM_OK) {
    tm_error_info info{};
    info.size = sizeof(info);
    require(tm_error(nullptr, 0, &info) == TM_OK, "there is an error to ask for");
    require(info.status == status, "the error is that of the call");
    require(std::strlen(info.text) > 8, "a failure has a sentence");
    require(std::strcmp(tm_status_name(status), "unknown") != 0, "a status has a name");
  }
  return status;
}

Calls::Buffer* Calls::find(tm_buffer handle) {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(),
                                  [&](const Buffer& each) { return each.handle == handle; });
  return found == buffers_.end() ? nullptr : &*found;
}

void Calls::check_bytes(const Buffer& buffer, std::uint64_t offset, const void* bytes,
                        std::uint64_t length) {
  require(offset <= buffer.bytes.size() && length <= buffer.bytes.size() - offset,
          "a range that was accepted is in the buffer");
  // A pending acquire that discards may have its view already, with any bytes in it.
  const auto discards = [&](const tm_access& each) {
    return each.buffer == buffer.handle && (each.mode & TM_DISCARD) != 0;
  };
  const bool unsure =
      buffer.unsure || std::any_of(pending_.begin(), pending_.end(), [&](const Pending& each) {
        return std::any_of(each.list.begin(), each.list.end(), discards);
      });
  require(unsure || std::memcmp(bytes, buffer.bytes.data() + offset, length) == 0,
          "bytes are those that were written");
}

void Calls::write_bytes(Buffer& buffer, std::uint64_t offset, void* bytes, std::uint64_t length,
                        unsigned char value) {
  require(!buffer.read_only, "an adopted file is not written");
  std::memset(bytes, value, length);
  std::memset(buffer.bytes.data() + offset, value, length);
}

void Calls::got_buffer(tm_buffer handle, std::vector<unsigned char> bytes, std::uint32_t flags,
                       bool read_only) {
  require(handle != 0 && find(handle) == nullptr, "a new buffer has a handle of its own");
  buffers_.push_back({handle, std::move(bytes), flags, read_only, false, nullptr});
}

void Calls::got_view(const tm_access& access, const tm_view& view) {
  Buffer* const buffer = find(access.buffer);
  require(buffer != nullptr, "a view is of a live buffer");
  const std::uint64_t length =
      access.length != 0 ? access.length : buffer->bytes.size() - access.offset;
  require(view.data != nullptr && view.length == length, "a view is what was asked for");
  if ((access.mode & TM_DISCARD) != 0) {
    write_bytes(*buffer, access.offset, view.data, length, 0x5d);
  }
  check_bytes(*buffer, access.offset, view.data, length);
  views_.push_back({view, access});
  views_.back().access.length = length;
}

void Calls::drop(std::size_t i) {
  freed_.push_back(buffers_[i].handle);
  buffers_.erase(buffers_.begin() + static_cast<std::ptrdiff_t>(i));
}

}  // namespace tiermem::fuzz
