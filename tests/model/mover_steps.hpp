// The mover's steps on one extent, as in src/mover. It knows without a step what only the mover
// changes. It reads what callers change, as the real mover does.
#pragma once

#include "model/world.hpp"

namespace tiermem::model {

class MoverSteps {
 public:
  MoverSteps(World& world, Turn& turn, Flaw flaw) : world_(world), turn_(turn), flaw_(flaw) {}

  /// The steps of Mover::decide for a request that waits for pins: it tries, asks for news of
  /// released pins, tries again, and sleeps.
  template <typename Try>
  void until(Try&& attempt) {
    if (attempt()) {
      return;
    }
    turn_.step([&] { world_.pins_wanted = 1; });
    bool done = flaw_ != Flaw::no_second_look && attempt();
    while (!done) {
      turn_.wait([&] { return world_.woken != 0; }, [&] { world_.woken = 0; });
      done = attempt();
    }
    turn_.step([&] { world_.pins_wanted = 0; });
  }

  // ---- evict.cpp -------------------------------------------------------------------------------

  /// The steps of leave and finish_evict. `drop`: the bytes are no longer needed.
  bool leave(unsigned space, bool even_dirty, bool drop = false) {
    if (!enter_outgoing(space, even_dirty, drop)) {
      return false;
    }
    finish_evict(space);
    return true;
  }

  bool enter_outgoing(unsigned space, bool even_dirty, bool drop = false) {
    auto& word = world_.words[space];
    const auto entered = [&](bool yes) {
      world_.newest = yes && drop && !world_.readable(1 - space) ? kLost : world_.newest;
      return yes;
    };
    if (flaw_ == Flaw::leave_without_looking) {
      const bool may = turn_.op([&] {
        const ExtentBits bits = word.load();
        return (bits.readable() || bits.phase() == Phase::vacant) && !bits.pinned() &&
               (!bits.dirty() || even_dirty);
      }) != 0;
      return may && turn_.op([&] {
        word.set_phase(Phase::outgoing);
        return entered(true);
      }) != 0;
    }
    return turn_.op([&] {
      return entered(word.try_outgoing(even_dirty || flaw_ == Flaw::leave_even_dirty));
    }) != 0;
  }

  void finish_evict(unsigned space) {
    turn_.step([&] { world_.frame[space] = kNothing; });
    turn_.op([&] { world_.words[space].clear_dirty(); });
    set_phase(space, Phase::none);
    settle();
  }

  /// If one copy is left, it becomes exclusive. Without copies and without a slot the extent is
  /// zero again.
  void settle() {
    const bool host = readable(kHost), device = readable(kDevice);
    const unsigned only = host ? kHost : kDevice;
    if (host != device && phase(only) == Phase::shared) {
      set_phase(only, Phase::exclusive);
    } else if (!host && !device && phase(kHost) == Phase::none &&
               turn_.know([&] { return world_.slot == kNothing; }) != 0) {
      set_phase(kHost, Phase::zero);
    }
  }

  /// The steps of start_evict. An only copy is written to a slot first.
  void evict(unsigned space) {
    const bool dirty = turn_.op([&] { return world_.words[space].load().dirty(); }) != 0;
    const bool elsewhere = readable(1 - space);
    if (!dirty || elsewhere || demote(space)) {
      (void)leave(space, elsewhere);
    }
  }

  // ---- demote.cpp ------------------------------------------------------------------------------

  /// The steps of start_demote, seal, and written.
  bool demote(unsigned space) {
    auto& word = world_.words[space];
    const bool may = turn_.op([&] {
      const ExtentBits bits = flaw_ == Flaw::no_booking ? word.load() : word.note_known_elsewhere();
      return bits.readable() && bits.writers() == 0;
    }) != 0;
    if (!may) {
      return false;
    }
    if (flaw_ != Flaw::copying_set_late) {
      (void)start_copy(space);  // While a writer is pinned this fails, and the write is useless.
    }
    turn_.step([&] {
      world_.copying = world_.frame[space];
      world_.demoting = 1;
      world_.slot = kStale;
    });
    if (flaw_ == Flaw::copying_set_late || flaw_ == Flaw::publish_any) {
      (void)start_copy(space);
    }
    const bool clean = turn_.op([&] {
      const bool published = word.publish_clean();
      world_.slot = published ? world_.copying : world_.slot;
      world_.demoting = 0;
      return published;
    }) != 0;
    if (clean && readable(1 - space)) {
      turn_.op([&] { world_.words[1 - space].clear_dirty(); });
    }
    end_copy(space);
    return clean;
  }

  /// The steps of Carrier::start_copy; end_copy() is its end in Carrier::end.
  bool start_copy(unsigned space) {
    auto& word = world_.words[space];
    if (flaw_ == Flaw::start_beside_writer) {
      turn_.op([&] { word.set_copying(); });
      return true;
    }
    return turn_.op([&] { return word.start_copy(); }) != 0;
  }
  void end_copy(unsigned space) {
    turn_.op([&] { world_.words[space].end_copy(); });
  }

  // ---- promoter.cpp ----------------------------------------------------------------------------

  /// The steps of arm_acquire and Promoter::start, up to `incoming`. Returns false if another user
  /// has claimed the extent.
  bool begin_promote(unsigned space) {
    const auto note = [&] { turn_.op([&] { (void)world_.words[kHost].note_known_elsewhere(); }); };
    if (space != kHost && flaw_ != Flaw::late_booking) {
      note();
    }
    const auto host = static_cast<Phase>(
        turn_.op([&] { return static_cast<unsigned>(world_.words[kHost].load().phase()); }));
    const bool even_dirty = flaw_ == Flaw::spare_even_dirty;
    if (host == Phase::incoming || (host == Phase::vacant && !leave(kHost, even_dirty))) {
      return false;  // The next user has claimed it.
    }
    set_phase(space, Phase::incoming);
    if (flaw_ == Flaw::late_booking) {
      note();
    }
    return true;
  }

  /// A whole promote: from the other space if it has a copy, otherwise from the slot, otherwise
  /// zeros.
  void promote(unsigned space) {
    until([&] { return begin_promote(space); });
    if (turn_.step([&] { return world_.readable(1 - space); }) != 0) {
      copy_from(1 - space, space);
    } else {
      read(space);
      land(space, false, Phase::exclusive);
    }
  }

  /// Reads from the slot, or zeros.
  void read(unsigned space) {
    turn_.step([&] {
      world_.copying = world_.slot == kNothing ? kZeros : world_.slot;
      world_.frame[space] = world_.copying;
    });
  }

  /// The step of publish, after all obstacles are gone.
  void land(unsigned space, bool dirty, Phase phase) {
    turn_.op([&] {
      auto& word = world_.words[space];
      dirty ? word.set_dirty() : word.clear_dirty();
      return 0;
    });
    set_phase(space, phase);
  }

  /// The step of land that reads the source. Returns false if a view writes the source.
  bool copy_once(unsigned from) {
    const bool begun = start_copy(from);
    if (begun) {
      turn_.step([&] { world_.copying = world_.frame[from]; });
    }
    return begun;
  }

  /// Repeats the copy until the source is not written during it.
  void copy_from(unsigned from, unsigned to) {
    until([&] { return copy_once(from) && share(from); });
    turn_.step([&] { world_.frame[to] = world_.copying; });
    const bool dirty = turn_.op([&] { return world_.words[from].load().dirty(); }) != 0;
    land(to, dirty, Phase::shared);
    end_copy(from);
  }

  bool share(unsigned space) {
    if (flaw_ == Flaw::share_any) {
      (void)start_copy(space);
    }
    return turn_.op([&] { return world_.words[space].try_share(); }) != 0;
  }

  /// The steps of arm_acquire for a writer: the copies in other spaces leave.
  void take_away(unsigned space) {
    if (flaw_ == Flaw::copies_stay) {
      set_phase(kHost, Phase::exclusive);
      return;
    }
    until([&] { return leave(space, true); });
  }

  /// The steps of takes_source_home, before a copy to a device. show() has those of to_window, when
  /// a view is wanted. Views miss in between.
  bool take_home() {
    auto& word = world_.words[kHost];
    const bool taken =
        flaw_ == Flaw::home_without_looking ? turn_.op([&] {
          const ExtentBits bits = word.load();
          return bits.view_readable() && !bits.pinned();
        }) != 0 && turn_.op([&] {
          word.set_at_home();
          return true;
        }) != 0
                                            : turn_.op([&] { return word.try_at_home(); }) != 0;
    turn_.step([&] { world_.at_home = taken ? 1 : 0; });
    return taken;
  }
  void show() {
    turn_.step([&] { world_.at_home = 0; });
    turn_.op([&] { world_.words[kHost].clear_at_home(); });
  }

  // ---- relocator.cpp ---------------------------------------------------------------------------

  /// The steps of Relocator::start and moved. The frame of another memory gets the bytes.
  bool relocate(unsigned space) {
    const auto read = [&] { turn_.step([&] { world_.copying = world_.frame[space]; }); };
    if (flaw_ == Flaw::relocate_under_views) {
      read();
    }
    if (!enter_outgoing(space, true)) {
      return false;
    }
    if (flaw_ != Flaw::relocate_under_views) {
      read();
    }
    turn_.step([&] { world_.frame[space] = world_.copying; });
    set_phase(space, Phase::exclusive);
    return true;
  }

  // ---- arrivals.cpp ----------------------------------------------------------------------------

  /// The step of take_over: the source leaves, if no view has written it since it was read.
  bool take_over(unsigned from) {
    return flaw_ == Flaw::take_over_unchecked
               ? enter_outgoing(from, true)
               : turn_.op([&] { return world_.words[from].try_take_over(); }) != 0;
  }

  // ---- Other steps -----------------------------------------------------------------------------

  void set_phase(unsigned space, Phase phase) {
    turn_.op([&] { world_.words[space].set_phase(phase); });
  }

  /// The steps of arm_leave for a free, finish_free, and Buffers::retire.
  void finish_free() {
    for (const unsigned space : {kHost, kDevice}) {
      until([&] {
        const bool has_frame = readable(space) || phase(space) == Phase::vacant;
        return !has_frame || leave(space, true, true);
      });
    }
    turn_.step([&] {
      world_.newest = kZeros;
      world_.slot = kNothing;
    });
    for (const unsigned space : {kHost, kDevice}) {
      turn_.op([&] { world_.words[space].end_life(); });
    }
  }

  bool readable(unsigned space) {
    return turn_.know([&] { return world_.readable(space); }) != 0;
  }
  Phase phase(unsigned space) {
    return static_cast<Phase>(
        turn_.know([&] { return static_cast<unsigned>(world_.phase(space)); }));
  }

 private:
  World& world_;
  Turn& turn_;
  const Flaw flaw_;
};

}  // namespace tiermem::model
