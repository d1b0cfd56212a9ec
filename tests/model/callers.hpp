// The callers of the model. Their steps are those of residency/residency.hpp and .cpp: a view from
// acquire to release, freeing, and reusing a spare buffer.
#pragma once

#include "model/world.hpp"

namespace tiermem::model {

class Caller {
 public:
  struct View {
    unsigned space = kHost;
    bool writes = false;
    std::uint8_t generation = 1;  ///< The generation in the handle.
  };

  Caller(World& world, Turn& turn, Flaw flaw) : world_(world), turn_(turn), flaw_(flaw) {}

  /// Residency::hit, the use of the view, and Residency::end. Returns false on a miss; if the
  /// handle is valid, the mover then knows of it.
  bool view(const View& v) {
    if (!pin(v)) {
      // Posts a request.
      turn_.step([&] { world_.woken |= world_.generation == v.generation ? 1 : 0; });
      return false;
    }
    use(v);
    return true;
  }

  /// The steps of resolve_in and pin_in.
  bool pin(const View& v) {
    if (turn_.step([&] { return world_.generation == v.generation; }) == 0) {
      return false;
    }
    auto& word = world_.words[v.space];
    const bool as_writer = v.writes && flaw_ != Flaw::writers_in_shared;
    const bool keeps = flaw_ == Flaw::writer_keeps_copying || flaw_ == Flaw::writer_clears_late;
    const auto pinned = static_cast<Pin>(turn_.op([&] {
      return !as_writer ? word.pin_read()
             : keeps    ? word.pin_write_keeping_copying()
                        : word.pin_write();
    }));
    if (pinned != Pin::ok) {
      if (flaw_ != Flaw::silent_miss) {
        tell_of_release();
      }
      return false;
    }
    const bool live = turn_.step([&] {
      const bool same = world_.generation == v.generation;
      return same || flaw_ == Flaw::no_generation_check ? hold(v) : false;
    });
    if (!live && flaw_ != Flaw::no_undo) {
      unpin(v);
    }
    return live;
  }

  /// Uses and releases the view. Reads are checked in every state in which the view is held.
  void use(const View& v) {
    turn_.step([&] {
      if (v.writes) {
        world_.write(v.space);
      }
      --(v.writes ? world_.writers : world_.readers)[v.space];
    });
    unpin(v);
  }

  void unpin(const View& v) {
    auto& word = world_.words[v.space];
    const bool as_writer = v.writes && flaw_ != Flaw::writers_in_shared;
    if (turn_.op([&] { return as_writer ? word.unpin_write() : word.unpin_read(); }) == 0) {
      turn_.fail("a pin has gone");
    }
    if (as_writer && flaw_ == Flaw::writer_clears_late) {
      turn_.op([&] { word.clear_copying(); });
    }
    tell_of_release();
  }

  /// The steps of Residency::make_spare. Returns false if the mover must free the buffer.
  bool make_spare() {
    auto& word = world_.words[kHost];
    const auto plain = [&] {
      return turn_.op([&] {
        const ExtentBits bits = word.load();
        return bits.phase() == Phase::exclusive && !bits.pinned() && !bits.known_elsewhere();
      }) != 0;
    };
    const bool looked = flaw_ == Flaw::free_looks_first && plain();
    mark_freed();
    const auto gone = [&](bool vacated) {
      world_.newest = vacated ? kZeros : world_.newest;  // The next user must see zeros.
      return vacated;
    };
    if (flaw_ == Flaw::free_looks_first) {
      return looked && turn_.op([&] {
        word.set_phase(Phase::vacant);
        return gone(true);
      }) != 0;
    }
    return plain() && turn_.op([&] { return gone(word.try_vacate()); }) != 0;
  }

  /// The step of Buffers::mark_freed.
  void mark_freed() {
    turn_.step([&] { ++world_.generation; });
  }

  /// The step of Buffers::reuse: the extent's next life begins with zeros.
  void reuse() {
    turn_.step([&] { world_.life = ++world_.generation; });
  }

  /// The steps of Residency::pin_vacant for one extent, and the use of the view.
  bool view_vacant(const View& v) {
    auto& word = world_.words[v.space];
    if (turn_.op([&] { return word.load().phase() == Phase::vacant; }) == 0 ||
        turn_.op([&] { return word.try_claim(); }) == 0) {
      return view(v);
    }
    const bool same = turn_.step([&] { return world_.generation == v.generation; }) != 0;
    if (same) {
      turn_.step([&] { world_.frame[v.space] = kZeros; });
      turn_.op([&] {
        word.end_claim(v.writes);
        return hold(v);
      });
    } else {
      turn_.op([&] { word.undo_claim(); });
    }
    tell_of_release();
    if (same) {
      use(v);
    }
    return same;
  }

 private:
  bool hold(const View& v) {
    if (world_.life != v.generation) {
      turn_.fail("a view shows the bytes of another buffer");
    }
    ++(v.writes ? world_.writers : world_.readers)[v.space];
    return true;
  }
  void tell_of_release() {
    turn_.step([&] { world_.woken |= world_.pins_wanted; });
  }

  World& world_;
  Turn& turn_;
  const Flaw flaw_;
};

}  // namespace tiermem::model
