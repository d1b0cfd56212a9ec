// One turn of an actor of the model, and the atomics that make every access a step.
//
// An actor is a plain function. Its stack cannot be kept, so the function runs again from its start
// for each step. op() and similar calls return their earlier answers from the actor's log. At the
// end of the log the step is made, and longjmp leaves the rest of the function. An actor must
// therefore depend only on its answers, and must change the world only inside these calls.
//
// Steps are sequentially consistent. Comments at the weaker memory orders of the real code argue
// what these allow in addition. The model checks the protocol and not the fences.
#pragma once

#include <array>
#include <atomic>
#include <csetjmp>
#include <cstdint>
#include <functional>
#include <type_traits>

namespace tiermem::model {

/// The answers that one actor has received. With the world, they are its whole state.
struct Log {
  static constexpr unsigned kMostAnswers = 96;
  static constexpr unsigned kMostAccesses = 20;

  std::array<std::uint64_t, kMostAccesses> accesses{};  ///< The values seen by the op in progress.
  std::array<std::uint16_t, kMostAnswers> answers{};    ///< The answers of ended ops of this round.
  std::uint16_t accessed = 0, answered = 0, round = 0, ended = 0;
};

/// One turn of one actor: the interface of the explorer for actors and atomics.
class Turn {
 public:
  explicit Turn(Log& log) : log_(log) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// An operation of several accesses; each access is a step. The code of `f` after the last access
  /// belongs to that step. The actor learns only the result of `f`.
  template <typename F>
  std::uint32_t op(F&& f) {
    if (next_ < log_.answered) {
      return log_.answers[next_++];
    }
    replayed_ = 0;
    return note(result_of(f));
  }
  /// Reads a value that no other actor changes. This is not a step, and must directly follow the
  /// previous step.
  template <typename F>
  std::uint32_t know(F&& f) {
    return next_ < log_.answered ? log_.answers[next_++] : note(result_of(f));
  }
  /// Makes one step of all of `f`.
  template <typename F>
  std::uint32_t step(F&& f) {
    return wait([] { return true; }, f);
  }
  /// The same as step, as soon as `ready` holds.
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
  /// `while (turn.round(n)) …` runs its body n times. The body forgets the earlier rounds, so
  /// states that differ only in those rounds are the same state.
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

  /// For ModelAtomic: returns the value before the access, which is made now or was made earlier.
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
    bool blocked = false;           ///< The actor waits, and nothing has changed.
    const char* failure = nullptr;  ///< The argument of fail().
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

  /// Null outside the explorer: accesses are then made directly.
  static inline Turn* current = nullptr;

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

/// Replaces std::atomic<std::uint64_t>: each access is a step of the current actor.
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
  /// Never fails spuriously, because the caller would only try again.
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
