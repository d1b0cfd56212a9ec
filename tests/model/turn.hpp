// One turn of an actor of the model, and the atomics whose every access is a step.
//
// An actor is a plain function. It has no stack that could be kept, so it is run again from its
// start for each step: op() and its like answer from the actor's log what they answered before, the
// step is made where the log ends, and the rest of the function is left by longjmp. So an actor
// must be a function of its answers alone, and change the world only inside of those.
//
// Steps are sequentially consistent. What weaker orders allow beyond that is argued beside each of
// them; this checks the protocol, not the fences.
#pragma once

#include <array>
#include <atomic>
#include <csetjmp>
#include <cstdint>
#include <functional>
#include <type_traits>

namespace tiermem::model {

/// What one actor has been answered: with the world, its whole state.
struct Log {
  static constexpr unsigned kMostAnswers = 96;
  static constexpr unsigned kMostAccesses = 20;

  std::array<std::uint64_t, kMostAccesses> accesses{};  ///< Of the op under way: what each saw.
  std::array<std::uint16_t, kMostAnswers> answers{};    ///< Of the ops that ended, in this round.
  std::uint16_t accessed = 0, answered = 0, round = 0, ended = 0;
};

/// One turn of one actor. What the actor's function and the atomics see of the explorer.
class Turn {
 public:
  explicit Turn(Log& log) : log_(log) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// An operation of several accesses, of which each is a step of its own. What `f` does after the
  /// last of them belongs to that step; its result is all that the actor learns.
  template <typename F>
  std::uint32_t op(F&& f) {
    if (next_ < log_.answered) {
      return log_.answers[next_++];
    }
    replayed_ = 0;
    return note(result_of(f));
  }
  /// What no other actor changes: asked for right after the step before, and no step by itself.
  template <typename F>
  std::uint32_t know(F&& f) {
    return next_ < log_.answered ? log_.answers[next_++] : note(result_of(f));
  }
  /// All of `f` is one step.
  template <typename F>
  std::uint32_t step(F&& f) {
    return wait([] { return true; }, f);
  }
  /// As step, once `ready` holds.
  template <typename Ready, typename F>
  std::uint32_t wait(Ready&& ready, F&& f) {
    if (next_ < log_.answered) {
      return log_.answers[next_++];
    }
    begin_step();
    if (!ready()) {
      outcome_.blocked = true;
      leave();
    }
    return note(result_of(f));
  }
  /// `while (turn.round(n)) …` runs its body n times. The body learns nothing of the rounds before,
  /// so that states which differ in those only are one.
  bool round(unsigned n) {
    if (in_round_) {
      ++log_.round;
      log_.answered = 0;
      log_.answers = {};
      next_ = 0;
    }
    in_round_ = true;
    return log_.round < n;
  }
  [[noreturn]] void fail(const char* why) {
    outcome_.failure = why;
    leave();
  }

  /// For ModelAtomic: what the access sees, now or when it was made.
  template <typename Change>
  std::uint64_t access(std::uint64_t& value, Change&& change) {
    if (replayed_ < log_.accessed) {
      return log_.accesses[replayed_++];
    }
    begin_step();
    if (log_.accessed == Log::kMostAccesses) {
      fail("an operation does not come to an end");
    }
    const std::uint64_t before = value;
    change(value);
    log_.accesses[log_.accessed++] = before;
    ++replayed_;
    return before;
  }

  struct Outcome {
    bool blocked = false;           ///< It waits: nothing has changed.
    const char* failure = nullptr;  ///< What fail() was told.
  };
  /// Runs the actor up to the end of its next step.
  template <typename Run>
  Outcome take(Run&& run) {
    current = this;
    if (setjmp(left_) == 0) {
      run(*this);
      log_ = {};
      log_.ended = 1;
    }
    current = nullptr;
    return outcome_;
  }

  static inline Turn* current = nullptr;  ///< Null: nothing is explored, accesses just happen.

 private:
  template <typename F>
  static std::uint32_t result_of(F&& f) {
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
      f();
      return 0;
    } else {
      return static_cast<std::uint32_t>(f());
    }
  }
  void begin_step() {
    if (stepped_) {
      leave();
    }
    stepped_ = true;
  }
  std::uint32_t note(std::uint32_t answer) {
    if (log_.answered == Log::kMostAnswers) {
      fail("an actor does not come to an end");
    }
    log_.answers[log_.answered++] = static_cast<std::uint16_t>(answer);
    log_.accesses = {};
    log_.accessed = 0;
    return log_.answers[next_++];
  }
  [[noreturn]] void leave() { std::longjmp(left_, 1); }

  Log& log_;
  unsigned next_ = 0, replayed_ = 0;
  bool stepped_ = false, in_round_ = false;
  Outcome outcome_;
  std::jmp_buf left_;
};

/// In place of std::atomic<std::uint64_t>: each access is a step of the actor whose turn it is.
class ModelAtomic {
 public:
  constexpr ModelAtomic(std::uint64_t value) : value_(value) {}

  std::uint64_t load(std::memory_order) const {
    return access([](std::uint64_t&) {});
  }
  std::uint64_t fetch_add(std::uint64_t n, std::memory_order) {
    return access([n](std::uint64_t& value) { value += n; });
  }
  std::uint64_t fetch_sub(std::uint64_t n, std::memory_order) {
    return access([n](std::uint64_t& value) { value -= n; });
  }
  std::uint64_t fetch_or(std::uint64_t mask, std::memory_order) {
    return access([mask](std::uint64_t& value) { value |= mask; });
  }
  std::uint64_t fetch_and(std::uint64_t mask, std::memory_order) {
    return access([mask](std::uint64_t& value) { value &= mask; });
  }
  /// Never fails without a reason: whoever calls it would only try again.
  bool compare_exchange_weak(std::uint64_t& seen, std::uint64_t next, std::memory_order) {
    const std::uint64_t expected = seen;
    seen = access([=](std::uint64_t& value) { value = value == expected ? next : value; });
    return seen == expected;
  }
  std::uint64_t value() const { return value_; }

  /// Called with the value before and after each change.
  static inline std::function<void(std::uint64_t, std::uint64_t)> on_change;

 private:
  template <typename Change>
  std::uint64_t access(Change&& change) const {
    const auto noted = [&](std::uint64_t& value) {
      const std::uint64_t before = value;
      change(value);
      if (value != before && on_change) {
        on_change(before, value);
      }
    };
    if (Turn::current != nullptr) {
      return Turn::current->access(value_, noted);
    }
    const std::uint64_t before = value_;
    noted(value_);
    return before;
  }

  mutable std::uint64_t value_;
};

}  // namespace tiermem::model
