// Promotes from other spaces: the straight copy between devices, sources that leave their windows,
// and sources that are written under the copy. The stepping thread only; never waits.
#include <array>
#include <utility>

#include "mover/promoter.hpp"

namespace tiermem {

// Chooses among the copies that have the newest bytes. Memories rank by their numbers, the host
// first, and the slot is the last.
Source Promoter::choose_source(const Promote& transfer) const {
  std::array<Source::Copy, kMaxSpaces + 1> copies;
  unsigned count = 0;
  for (unsigned space = 0; space < directory_.spaces(); ++space) {
    if (space != transfer.space && directory_.readable(transfer.ref, space)) {
      copies[count++] = {.from = Source::From::memory,
                         .space = static_cast<std::uint8_t>(space),
                         .cost = {.rank = space}};
    }
  }
  // A copy that is partial is read, too: its checksums tell.
  if (const SlotCopy slot = directory_.slot_copy(transfer.ref);
      slot.exists() && slot.state != SlotCopy::State::old) {
    copies[count++] = {.from = Source::From::slot, .cost = {.rank = kMaxSpaces}};
  }
  return Source::choose({copies.data(), count}, {.overwritten = transfer.discard,
                                                 .touchable = directory_.touchable(transfer.ref),
                                                 .vacant = transfer.stock});
}

Route::End Promoter::source_end(const Promote& transfer) const {
  return transfer.reading              ? Route::End::slot
         : transfer.source != kNoSpace ? carrier_.end_at(transfer.source)
                                       : Route::End::nothing;
}

Route::Way Promoter::choose_way(const Promote& transfer) const {
  if (transfer.reading) {
    return Route::way(carrier_.ends_of(transfer));
  }
  const bool reaches = transfer.source != kNoSpace && !transfer.by_host &&
                       carrier_.memory_of(transfer).tier->reaches(*memory_of_source(transfer).tier);
  return Route::way({.from = source_end(transfer),
                     .to = carrier_.end_at(transfer.space),
                     .peer_reaches = reaches});
}

// Frames of which views show windows have, but where there is no other memory, addresses of their
// own, too: at home, where they can be page-locked, and where no view looks.
bool Promoter::has_home(ExtentRef ref, FrameId frame) const {
  std::byte* const at = directory_.window_at(ref, kHost);
  return at != nullptr && !directory_.touchable(ref) &&
         memories_.space(kHost).bytes_at(frame, at) != at;
}

// A source without views goes home before it is copied. It stays there for the next copy, until a
// request wants a view.
bool Promoter::takes_source_home(Promote& transfer) {
  const FrameId frame = directory_.frame(kHost, transfer.ref);
  transfer.takes_home =
      has_home(transfer.ref, frame) && directory_.word(kHost, transfer.ref).try_at_home();
  transfer.job.host_at = directory_.window_at(transfer.ref, kHost);
  return transfer.takes_home;
}

void Promoter::source_taken_home(Promote& transfer) {
  if (!std::exchange(transfer.takes_home, false)) {
    return;
  }
  if (transfer.job.taken_home) {
    directory_.address(transfer.ref)
        .store(transfer.job.data, std::memory_order_relaxed);  // Only the mover uses it.
  } else {
    directory_.word(kHost, transfer.ref).clear_at_home();
  }
}

// The frame has come there from its home.
void Promoter::to_window(ExtentRef ref) {
  directory_.address(ref).store(directory_.window_at(ref, kHost), std::memory_order_relaxed);
  directory_.word(kHost, ref).clear_at_home();
}

// The source is written, or was written under the copy: it is copied again once it has no writer. A
// kernel may write for long, so other transfers get the staging.
void Promoter::await_writers(Promote& transfer) {
  if (transfer.spills) {
    undo(transfer, nullptr);  // It is in use again.
    return;
  }
  carrier_.give_staging(transfer);
  transfer.arriving = 0;  // No stream was let in: it could have written.
  advance(transfer, Stage::recopy);
  recopies_.push_back(transfer.job.transfer);
}

void Promoter::serve_recopies() {
  Vector<std::uint32_t> waiting;
  waiting.swap(recopies_);
  for (const std::uint32_t at : waiting) {
    Promote& transfer = carrier_.at<Promote>(at);
    if (directory_.bits(transfer.source, transfer.ref).has_writer()) {
      recopies_.push_back(at);
    } else if (memories_.space(transfer.space).host_addressable()) {
      land(transfer);
    } else {
      advance(transfer, Stage::staging);
      go_on(transfer);
    }
  }
}

}  // namespace tiermem
