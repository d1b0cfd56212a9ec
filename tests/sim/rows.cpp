// Gathers: the mover's reads for them must match the model, without promoting the extents.
#include <bit>

#include "tests/sim/simulation.hpp"

namespace tiermem::sim {

// Allocates a buffer of one extent to read into. The model does not contain its bytes.
bool Simulation::take_memory(Reading& reading) {
  BufferShape shape;
  shape.bytes = swarm_.extent_bytes;
  shape.extent_shift = static_cast<std::uint8_t>(std::countr_zero(swarm_.extent_bytes));
  shape.extents = 1;
  shape.label = "rows being read";
  const Handle spare = residency_.reuse_spare(shape, false);
  Result<Handle> handle = spare != 0 ? Result<Handle>(spare) : residency_.buffers.create(shape);
  if (!handle.ok()) {
    return false;
  }
  reading.memory = *handle;
  const Access all{*handle, 0, 0, kDiscard, {}, 0};
  if (residency_.try_acquire({&all, 1}, {&reading.view, 1}) == Code::ok) {
    return true;
  }
  Pending& p = new_pending(RequestKind::acquire);
  p.own = true;
  p.request.views = &reading.view;
  p.request.spans.resize(1);
  const Status status = residency_.resolve(all, p.request.spans[0], "acquire");
  check(status.ok(), status.message());
  p.request.deadline_ns = world_.now + 1 + static_cast<std::int64_t>(world_.below(5'000'000));
  mover_.post(&p.request);
  finish(p);
  if (!p.request.status.ok()) {
    free_memory(reading);
  }
  return p.request.status.ok();
}

void Simulation::free_memory(const Reading& reading) {
  if (residency_.make_spare(reading.memory) == Code::busy) {
    Pending& p = new_pending(RequestKind::free);
    p.request.index = Buffers::index_of(reading.memory);
    mover_.post(&p.request);
  }
}

// Returns whether a device has a read to this memory.
bool Simulation::reads_to(const test::PageBytes& memory) const {
  return files_.reads_to(memory) || port_.reads_to(memory) ||
         std::any_of(further_.begin(), further_.end(),
                     [&](const Further& each) { return each.port.reads_to(memory); });
}

void Simulation::gather() {
  Live* live = pick();
  auto reading = std::make_unique<Reading>();
  const bool to_program = known_dice_() % 2 == 0;
  if (live == nullptr || (!to_program && !take_memory(*reading))) {
    return;
  }
  reading->buffer = serial_of(*live);
  Span span;
  const Access all{live->handle, 0, 0, kRead, {}, 0};
  const Status status = residency_.resolve(all, span, "gather");
  check(status.ok(), status.message());
  const std::uint32_t unit = mover_.read_unit(*span.record);
  const std::uint64_t blocks = (live->lead + live->bytes + unit - 1) / unit;
  std::set<std::uint64_t> chosen;
  for (std::uint64_t n = swarm_.extent_bytes / unit; n > 0; --n) {
    chosen.insert(world_.below(blocks));
  }
  reading->own.resize(to_program ? chosen.size() * unit : 0);
  auto* data = to_program ? reading->own.data() : static_cast<std::byte*>(reading->view.data);
  reading->sums.resize(chosen.size());
  for (const std::uint64_t block : chosen) {
    const std::uint64_t at = block * unit;
    const ExtentRef ref = span.first + static_cast<ExtentRef>(at / live->extent_bytes);
    const auto offset = static_cast<std::uint32_t>(at % live->extent_bytes);
    GatherRead* const last = reading->reads.empty() ? nullptr : &reading->reads.back();
    if (last != nullptr && last->ref == ref && last->offset + last->length == offset &&
        world_.one_in(2)) {
      last->length += unit;
    } else {
      reading->reads.push_back({.ref = ref,
                                .offset = offset,
                                .length = unit,
                                .data = data,
                                .to_program = to_program,
                                .sums = &reading->sums[static_cast<std::size_t>(
                                    std::distance(chosen.begin(), chosen.find(block)))]});
    }
    data += unit;
  }
  reading->list = {
      .reads = reading->reads,
      .into = to_program ? kNoExtent
                         : residency_.buffers.at(Buffers::index_of(reading->memory)).first.load()};
  post(std::move(reading), span);
}

void Simulation::post(std::unique_ptr<Reading> reading, const Span& span) {
  reading->compared.resize(reading->reads.size());
  reading->held.resize(reading->reads.size());
  Pending& p = new_pending(RequestKind::gather);
  p.buffers = {reading->buffer};
  p.request.spans = {span};
  p.request.gather = &reading->list;
  p.request.deadline_ns = world_.one_in(4)
                              ? Request::kForever
                              : world_.now + 1 + static_cast<std::int64_t>(world_.below(5'000'000));
  reading->asked = &p;
  note("{} {} reads of buffer{}", reading->list.known ? "confirm" : "gather", reading->reads.size(),
       reading->buffer);
  readings_.push_back(std::move(reading));
  mover_.post(&p.request);
}

// Confirms blocks of earlier gathers: whether their slots are unchanged.
void Simulation::confirm() {
  if (!swarm_.confirms || known_.empty() || known_dice_() % 2 == 0) {
    return;
  }
  const std::size_t serial = known_[known_dice_() % known_.size()].buffer;
  const auto live = live_.find(serial);
  if (live == live_.end() || freed(serial)) {
    std::erase_if(known_, [&](const Known& known) { return known.buffer == serial; });
    return;
  }
  auto reading = std::make_unique<Reading>();
  reading->buffer = serial;
  reading->list.known = true;
  std::vector<const Known*> chosen;
  for (const Known& known : known_) {
    if (known.buffer == serial) {
      chosen.push_back(&known);
    }
  }
  std::ranges::sort(chosen, [](const Known* a, const Known* b) {
    return std::pair(a->ref, a->offset) < std::pair(b->ref, b->offset);
  });
  reading->own.resize(chosen.size() * 4096);
  reading->sums.resize(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    std::memcpy(reading->own.data() + i * 4096, chosen[i]->bytes.data(), 4096);
    reading->sums[i] = chosen[i]->sum;
    reading->reads.push_back({.ref = chosen[i]->ref,
                              .offset = chosen[i]->offset,
                              .length = 4096,
                              .data = reading->own.data() + i * 4096,
                              .sums = &reading->sums[i]});
  }
  reading->list.reads = reading->reads;
  Span span;
  const Access all{live->second.handle, 0, 0, kRead, {}, 0};
  const Status status = residency_.resolve(all, span, "gather");
  check(status.ok(), status.message());
  post(std::move(reading), span);
}

void Simulation::remember(const Reading& reading, const GatherRead& read) {
  constexpr std::size_t kMost = 64;
  if (!swarm_.confirms || read.found != GatherRead::Found::bytes || read.sum_bytes != 4096) {
    return;
  }
  Known known{reading.buffer, read.ref, read.offset, read.sums[0], {read.data, read.data + 4096}};
  if (Checksums::hash(read.data, 4096) != known.sum) {
    return;  // A gathering thread does not take it.
  }
  if (known_.size() < kMost) {
    known_.push_back(std::move(known));
  } else {
    known_[known_dice_() % kMost] = std::move(known);
  }
}

// A gather may show any content of the buffer since the request: a copy on a device may be written
// while the slot is read. A step may also publish the result of a read and then allow a write
// behind it.
void Simulation::note_models() {
  for (const auto& reading : readings_) {
    const auto live = live_.find(reading->buffer);
    if (live == live_.end() || freed(reading->buffer) || live->second.adopted) {
      continue;
    }
    const std::vector<std::byte>& model = live->second.model;
    for (std::size_t i = 0; i < reading->reads.size(); ++i) {
      const GatherRead& read = reading->reads[i];
      const std::uint64_t begin = begin_of(read, live->second);
      const std::uint64_t end = std::min<std::uint64_t>(begin + read.length, model.size());
      std::vector<std::byte> now(model.data() + begin, model.data() + end);
      auto& held = reading->held[i];
      if (held.empty() || held.back() != now) {
        held.push_back(std::move(now));
      }
    }
  }
}

// Returns the position of the read in the buffer's extents.
std::uint64_t Simulation::begin_of(const GatherRead& read, const Live& live) {
  const ExtentRef first = residency_.buffers.find(live.handle)->first.load();
  return std::uint64_t{read.ref - first} * live.extent_bytes + read.offset;
}

void Simulation::compare_readings() {
  for (const auto& reading : readings_) {
    const auto live = live_.find(reading->buffer);
    for (std::size_t i = 0; i < reading->reads.size(); ++i) {
      if (reading->reads[i].found != GatherRead::Found::nothing && !reading->compared[i]) {
        reading->compared[i] = true;
        if (live != live_.end() && !freed(reading->buffer)) {
          compare(*reading, i, live->second);
          remember(*reading, reading->reads[i]);
        }
      }
    }
  }
  // A request that ended early is answered while its reads to other memory than the program's
  // continue: its record goes at once.
  std::erase_if(readings_, [&](const std::unique_ptr<Reading>& reading) {
    if (!reading->asked->done) {
      return false;
    }
    if (reading->memory != 0) {
      check(residency_.release({&reading->view, 1}) == Code::ok, "release refused a live view");
      free_memory(*reading);
    }
    check(!reads_to(reading->own), "a request was answered before a read to the program's memory");
    const bool ended_well = reading->asked->request.status.ok();
    for (const GatherRead& read : reading->reads) {
      check(!ended_well || read.found != GatherRead::Found::nothing,
            "a gather ended well without a read");
    }
    return true;
  });
}

void Simulation::compare(const Reading& reading, std::size_t index, const Live& live) {
  const GatherRead& read = reading.reads[index];
  if (read.found != GatherRead::Found::bytes && read.found != GatherRead::Found::zeros &&
      read.found != GatherRead::Found::known) {
    return;
  }
  const std::uint64_t begin = begin_of(read, live);
  const auto& may = live.adopted ? live.versions : reading.held[index];
  // The origin of the bytes in `may`.
  const std::uint64_t origin = live.adopted ? live.lead : begin;
  for (std::uint32_t from = 0; from < read.length; from += 4096) {
    const bool zeros = read.found == GatherRead::Found::zeros;
    if (!zeros && read.sum_bytes != 0 && read.sums[from / 4096] != Checksums::Hash{} &&
        Checksums::hash(read.data + from, 4096) != read.sums[from / 4096]) {
      check(faulty() || any_port(&FakePort::corrupted) || changed_files_.count(reading.buffer) != 0,
            "bytes without their checksum");
      continue;  // A caller sees that, too.
    }
    const auto same = [&](const std::vector<std::byte>& bytes) {
      for (std::uint64_t i = std::max(begin + from, live.lead);
           i < std::min(begin + from + 4096, live.lead + live.bytes); ++i) {
        const std::byte there = zeros ? std::byte{0} : read.data[i - begin];
        if (there != bytes[i - origin]) {
          return false;
        }
      }
      return true;
    };
    const bool good = std::any_of(may.begin(), may.end(), same);
    check(good, fmt::format("gather of buffer{} at {}: {} are not what the model holds",
                            reading.buffer, begin + from, zeros ? "zeros" : "the bytes read"));
  }
}

}  // namespace tiermem::sim
