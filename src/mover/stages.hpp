// The stages of transfers. Each kind of transfer goes through stages of its own. All changes that
// exist are in kStageChanges, and advance() asserts it. The stepping thread only.
//
//   promote        start → staging → prepare → read → land → parked → (published)
//                  land → recopy → staging or land, where the source is written
//                  land → abandoned → (undone), where streams have pins on what never came
//                  land, parked → unmap → (undone), where the frame is in its window already
//   promote_parts  start → read → land → (published)
//   demote         start → (measure →) slot → staging → copy → hash → write → (published)
//                  `hash` only where the slot has the bytes of before, of which perhaps few have
//                  changed; `measure` only where a new slot may need less room than the extent
//                  a mapped extent: start → (drop →) withdraw → measure → … → write → (gone), or,
//                  recalled, → remap → (as before)
//   demote_parts   as the demote of a mapped extent. With a slot that cannot be written:
//                  hash → whole → read (the missing pages) → copy → slot → write, all, to another.
//                  If other pages of the extent stay: hash or write → remap → (as before)
//   evict          start → (drop →) unmap → (done), or, of a mapped file: start → drop → (done, or
//                  as before if other pages stay)
//   empty          start → unmap → (done)
//   show           start → show → (done)
//   relocate       start → relocate → (published, or as before)
//   destage        start → slot → prepare → read → land → write → (done)
//   gather         start → read → (done)
#pragma once

#include <cstdint>

namespace tiermem {

enum class TransferKind : std::uint8_t {
  idle,
  promote,        ///< The bytes of a whole extent come into a frame of `space`.
  promote_parts,  ///< Pages come to a partial extent.
  demote,         ///< Bytes of `space` go to a slot.
  demote_parts,   ///< The changed pages of a partial extent go to a slot.
  evict,          ///< The frame of `space` leaves its window.
  empty,          ///< Some of an extent's pages are discarded.
  show,           ///< The frame of `space` appears in its window; a device's pinned or not.
  relocate,       ///< The frame becomes one of another memory of `space`.
  destage,        ///< The bytes of a slot go to a slot in another tier, too.
  gather,         ///< Blocks are read from a slot to elsewhere; the extent stays where it is.
};

enum class Stage : std::uint8_t {
  start,
  staging,    ///< Takes a place in the staging, if it needs one.
  prepare,    ///< The frame gets its pages.
  read,       ///< At a slot tier.
  land,       ///< The bytes are checked and copied, and the frame appears.
  recopy,     ///< Waits until the source has no writer.
  abandoned,  ///< Waits until no stream has a pin.
  parked,     ///< Waits until its request pins it.
  measure,    ///< A job finds out which pages are zeros.
  slot,       ///< Takes a slot.
  copy,       ///< To the staging, or to the bounce area.
  hash,       ///< A job finds out which bytes have changed.
  whole,      ///< Takes a bounce area for the whole extent.
  write,      ///< At the slot tier.
  unmap,      ///< The frame, or pages, leave the window.
  drop,       ///< Pages that were not written leave the window.
  withdraw,   ///< The frame leaves the window, with its bytes.
  remap,      ///< The frame goes back into the window.
  show,       ///< The frame appears in its window.
  relocate,   ///< The bytes go to the other frame.
};

const char* kind_name(TransferKind kind);
const char* stage_name(Stage stage);

struct StageChange {
  TransferKind kind;
  Stage from, to;
  bool rare = false;  ///< The usual seeds of the simulator do not reach it.
};

/// All changes of stage that exist.
inline constexpr StageChange kStageChanges[] = {
    {TransferKind::promote, Stage::start, Stage::staging},
    {TransferKind::promote, Stage::staging, Stage::prepare},
    {TransferKind::promote, Stage::prepare, Stage::read},
    {TransferKind::promote, Stage::prepare, Stage::land},
    {TransferKind::promote, Stage::read, Stage::land},
    {TransferKind::promote, Stage::land, Stage::read},
    {TransferKind::promote, Stage::land, Stage::parked},
    {TransferKind::promote, Stage::land, Stage::recopy},
    {TransferKind::promote, Stage::recopy, Stage::land},
    {TransferKind::promote, Stage::recopy, Stage::staging},
    {TransferKind::promote, Stage::recopy, Stage::recopy, true},
    {TransferKind::promote, Stage::land, Stage::staging},
    {TransferKind::promote, Stage::read, Stage::staging, true},
    {TransferKind::promote, Stage::land, Stage::abandoned},
    {TransferKind::promote, Stage::land, Stage::unmap, true},
    {TransferKind::promote, Stage::parked, Stage::unmap},
    {TransferKind::promote, Stage::read, Stage::unmap, true},
    {TransferKind::promote_parts, Stage::start, Stage::read},
    {TransferKind::promote_parts, Stage::start, Stage::land},
    {TransferKind::promote_parts, Stage::read, Stage::land},
    {TransferKind::promote_parts, Stage::land, Stage::read},
    {TransferKind::demote, Stage::start, Stage::measure},
    {TransferKind::demote, Stage::start, Stage::slot},
    {TransferKind::demote, Stage::start, Stage::drop},
    {TransferKind::demote, Stage::start, Stage::withdraw},
    {TransferKind::demote, Stage::drop, Stage::withdraw},
    {TransferKind::demote, Stage::withdraw, Stage::measure},
    {TransferKind::demote, Stage::withdraw, Stage::slot},
    {TransferKind::demote, Stage::withdraw, Stage::hash},
    {TransferKind::demote, Stage::withdraw, Stage::remap},
    {TransferKind::demote, Stage::measure, Stage::slot},
    {TransferKind::demote, Stage::measure, Stage::remap},
    {TransferKind::demote, Stage::slot, Stage::slot},
    {TransferKind::demote, Stage::slot, Stage::staging},
    {TransferKind::demote, Stage::slot, Stage::remap},
    {TransferKind::demote, Stage::staging, Stage::copy},
    {TransferKind::demote, Stage::staging, Stage::hash},
    {TransferKind::demote, Stage::staging, Stage::write},
    {TransferKind::demote, Stage::copy, Stage::hash},
    {TransferKind::demote, Stage::copy, Stage::write},
    {TransferKind::demote, Stage::hash, Stage::measure},
    {TransferKind::demote, Stage::hash, Stage::slot},
    {TransferKind::demote, Stage::hash, Stage::write},
    {TransferKind::demote, Stage::hash, Stage::remap},
    {TransferKind::demote, Stage::write, Stage::measure},
    {TransferKind::demote, Stage::write, Stage::slot},
    {TransferKind::demote, Stage::write, Stage::staging, true},
    {TransferKind::demote, Stage::write, Stage::remap},
    {TransferKind::demote_parts, Stage::start, Stage::drop},
    {TransferKind::demote_parts, Stage::start, Stage::withdraw},
    {TransferKind::demote_parts, Stage::drop, Stage::withdraw},
    {TransferKind::demote_parts, Stage::withdraw, Stage::slot},
    {TransferKind::demote_parts, Stage::withdraw, Stage::hash},
    {TransferKind::demote_parts, Stage::withdraw, Stage::remap, true},
    {TransferKind::demote_parts, Stage::slot, Stage::staging},
    {TransferKind::demote_parts, Stage::staging, Stage::hash},
    {TransferKind::demote_parts, Stage::staging, Stage::remap, true},
    {TransferKind::demote_parts, Stage::hash, Stage::write},
    {TransferKind::demote_parts, Stage::hash, Stage::whole},
    {TransferKind::demote_parts, Stage::hash, Stage::remap},
    {TransferKind::demote_parts, Stage::write, Stage::write, true},
    {TransferKind::demote_parts, Stage::write, Stage::whole},
    {TransferKind::demote_parts, Stage::write, Stage::slot, true},
    {TransferKind::demote_parts, Stage::write, Stage::remap},
    {TransferKind::demote_parts, Stage::whole, Stage::read},
    {TransferKind::demote_parts, Stage::read, Stage::copy},
    {TransferKind::demote_parts, Stage::read, Stage::remap},
    {TransferKind::demote_parts, Stage::copy, Stage::slot},
    {TransferKind::demote_parts, Stage::copy, Stage::read, true},
    {TransferKind::demote_parts, Stage::copy, Stage::remap},
    {TransferKind::demote_parts, Stage::slot, Stage::slot},
    {TransferKind::demote_parts, Stage::slot, Stage::write},
    {TransferKind::demote_parts, Stage::slot, Stage::remap},
    {TransferKind::evict, Stage::start, Stage::drop},
    {TransferKind::evict, Stage::start, Stage::unmap},
    {TransferKind::evict, Stage::drop, Stage::unmap, true},
    {TransferKind::empty, Stage::start, Stage::unmap},
    {TransferKind::show, Stage::start, Stage::show},
    {TransferKind::relocate, Stage::start, Stage::relocate},
    {TransferKind::destage, Stage::start, Stage::slot},
    {TransferKind::destage, Stage::slot, Stage::prepare},
    {TransferKind::destage, Stage::prepare, Stage::read},
    {TransferKind::destage, Stage::read, Stage::land},
    {TransferKind::destage, Stage::land, Stage::read, true},
    {TransferKind::destage, Stage::land, Stage::write},
    {TransferKind::gather, Stage::start, Stage::read},
};

constexpr bool may_advance(TransferKind kind, Stage from, Stage to) {
  for (const StageChange& change : kStageChanges) {
    if (change.kind == kind && change.from == from && change.to == to) {
      return true;
    }
  }
  return false;
}

/// Called for each change of stage, for tests. Set while no mover steps.
using StageChanged = void (*)(TransferKind kind, Stage from, Stage to) noexcept;
inline constinit StageChanged stage_changed = nullptr;

}  // namespace tiermem
