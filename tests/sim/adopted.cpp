// Adopted files: buffers with the bytes of a file, and the visible bytes of a file that changes
// while it is adopted.
#include <bit>

#include "tests/sim/simulation.hpp"

namespace tiermem::sim {

void Simulation::adopt() {
  if (live_.size() >= 24) {
    return;
  }
  Live live;
  const bool mapped = swarm_.maps_files && file_dice_() % 2 == 0;
  const bool is_private = mapped && file_dice_() % 2 == 0;
  live.adopted = !is_private;
  live.extent_bytes = swarm_.extent_bytes;
  const std::uint64_t begin = world_.below(3) * 4096;
  const std::uint64_t extents = 1 + world_.below(6);
  live.lead = world_.one_in(2) ? 0 : world_.below(4096);
  live.lead = is_private ? 0 : live.lead;  // The model of a mapped buffer begins at its window.
  const std::uint64_t end =
      begin + extents * live.extent_bytes - world_.below(live.extent_bytes - live.lead);
  live.bytes = end - begin - live.lead;
  live.file = files_.adopt(end + (world_.one_in(2) ? 0 : world_.below(10'000)), begin);
  BufferShape shape;
  shape.bytes = live.bytes;
  shape.lead = live.lead;
  shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(live.extent_bytes));
  shape.extents = static_cast<std::uint32_t>((live.lead + live.bytes + live.extent_bytes - 1) /
                                             live.extent_bytes);
  shape.read_only = !is_private;
  shape.flags = (mapped ? std::uint32_t{kMapped} : 0) | (is_private ? std::uint32_t{kPrivate} : 0);
  shape.file = live.file.value + 1;
  live.windowed = true;  // Also with one extent, because only a window is read-only.
  shape.pool = host_.window_pool(live.extent_bytes);
  const std::string label = fmt::format("file{}", next_serial_);
  shape.label = label.c_str();
  shape.preferred = some_memory();
  shape.window =
      *host_.reserve_window(shape.extents * live.extent_bytes, live.extent_bytes, mapped);
  live.mapped = mapped ? shape.window : nullptr;
  Result<Handle> handle = residency_.buffers.create(shape);
  if (!handle.ok()) {
    files_.free(live.file);
    host_.release_window(shape.window, 0);
    check(handle.code() == Code::no_capacity, handle.message());
    return;
  }
  live.handle = *handle;
  live.unsure.assign(shape.extents, false);
  note_version(live);
  live.first_reads = mapped ? kSmallestExtent : live.extent_bytes;
  live.possible.assign(shape.extents * live.extent_bytes / live.first_reads, ~std::uint64_t{0});
  if (is_private) {
    live.original = live.model = live.versions.front();
  }
  note("adopt {} bytes {} lead {} begin {}{}{}", label, live.bytes, live.lead, begin,
       mapped ? " mapped" : "", is_private ? " private" : "");
  live_.emplace(next_serial_++, std::move(live));
}

// Notes the current content of the buffer's range of the file.
void Simulation::note_version(Live& live) {
  const std::uint64_t begin = (live.file.value & ((std::uint64_t{1} << 44) - 1)) * 4096 + live.lead;
  const std::vector<std::byte>& bytes = files_.bytes(live.file);
  live.versions.emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                             bytes.begin() + static_cast<std::ptrdiff_t>(begin + live.bytes));
}

// Another process writes the file. If the file times show the change, no new byte may become
// visible. If they do not, new bytes may become visible, but with checksums not in an extent that
// was seen before.
void Simulation::change_file() {
  Live* live = pick();
  if (live == nullptr || !live->adopted || live->versions.size() == 8) {
    return;
  }
  const bool shown = world_.one_in(2);
  note("change of file{}, shown {}", serial_of(*live), shown);
  files_.change(live->file, shown);
  changed_files_.insert(serial_of(*live));
  if (!shown) {
    note_version(*live);
  }
}

void Simulation::compare_adopted(const Held& held) {
  Access seen = held.access;
  seen.length = held.view.length;
  compare_file(live_.at(held.buffer), seen, [&](std::uint64_t at) { return load(held, at); });
}

// The program reads a mapped file at its window.
void Simulation::touch_file(Live& live, const Access& access) {
  compare_file(live, access,
               [&](std::uint64_t at) { return live.mapped[live.lead + access.offset + at]; });
}

template <typename Load>
void Simulation::compare_file(Live& live, const Access& access, const Load& load) {
  // A mapped extent may come by the page. Others come as a whole.
  const std::uint64_t unit = live.first_reads;
  for (std::uint64_t at = 0; at < access.length;) {
    const std::uint64_t offset = access.offset + at;
    const std::uint64_t number = (live.lead + offset) / unit;
    const std::uint64_t rest = (number + 1) * unit - live.lead - offset;
    const std::uint64_t length = std::min(rest, access.length - at);
    std::uint64_t matches = 0;
    for (std::size_t version = 0; version < live.versions.size(); ++version) {
      bool same = true;
      for (std::uint64_t i = 0; i < length && same; ++i) {
        same = load(at + i) == live.versions[version][offset + i];
      }
      matches |= std::uint64_t{same ? 1u : 0u} << version;
    }
    matches &= live.possible[number];
    check(
        matches != 0,
        fmt::format("file{} at {}: bytes that the file did not hold, or not when it was first read",
                    serial_of(live), number * unit));
    if (swarm_.checksums) {
      live.possible[number] = matches;
    }
    at += length;
  }
}

}  // namespace tiermem::sim
