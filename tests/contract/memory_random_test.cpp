// Random sequences of legal calls on a memory, compared with a model of bytes and accounting.
//
// Property: the bytes of a frame are those that were written last within its domain, wherever the
// frame is; a frame that changed its domain, or was cleared, reads as zeros. After each call in_use
// covers every frame that is held, and an acquired frame never exceeds the budget.
#include "contract/memory_contract.hpp"
#include "contract/random_calls.hpp"
#include "support/sanitizers.hpp"

namespace tiermem::contract {
namespace {

class MemoryModel : RandomModel {
 public:
  explicit MemoryModel(MemorySubject& subject)
      : subject_(subject), memory_(subject.memory()), space_(subject.space()) {
    for (const std::uint64_t bytes : facts().extents) {
      const Pool pool = space_.window_pool(bytes);
      pools_.push_back({Pool::locked, bytes});
      if (pool != Pool::locked && bytes >= facts().own_memory_from) {
        pools_.push_back({pool, bytes});
      }
    }
    for (const bool mapped : {false, true}) {
      for (const std::uint64_t bytes : mapped ? facts().mapped_extents : facts().window_extents) {
        const auto window = space_.reserve_window(kPlaces * bytes, bytes, mapped);
        if (!window.ok()) {
          require(false, window.message());
          return;
        }
        windows_.push_back({*window, bytes, mapped, {}});
      }
    }
  }

  RunResult run(const std::vector<std::uint64_t>& calls) {
    for (const std::uint64_t call : calls) {
      if (failed()) {
        break;
      }
      make(Choices(call));
      check_books();
    }
    finish();
    return result();
  }

 private:
  static constexpr std::uint64_t kPlaces = 2;
  static constexpr std::uint64_t kDomains = 3;
  struct Class {
    Pool pool;
    std::uint64_t bytes;
  };
  struct Window {
    std::byte* begin;
    std::uint64_t bytes;
    bool mapped;
    bool taken[kPlaces];
  };
  struct Held {
    FrameId frame;
    Class of;
    std::uint64_t domain;
    std::uint64_t seed = 0;  // The seed of its bytes.
    bool known = false;      // Bytes may be read: it was populated and written, or cleared.
    Window* window = nullptr;
    std::uint64_t place = 0;
    std::byte* at() const { return window->begin + place * of.bytes; }
  };

  const MemoryFacts& facts() const { return subject_.facts(); }
  using RandomModel::require;
  void require(const Status& status, const char* call) {
    require(status.ok(), std::string(call) + ": " + status.message());
  }

  void make(Choices choices) {
    switch (choices.below(12)) {
      case 0:
      case 1:
      case 2:
        return acquire(choices);
      case 3:
        return give_back(choices);
      case 4:
      case 5:
        return write(choices);
      case 6:
      case 7:
        return enter(choices);
      case 8:
        return leave(choices);
      case 9:
        return trim(choices);
      case 10:
        return clear(choices);
      default:
        return set_budget(choices);
    }
  }

  void acquire(Choices choices) {
    const Class of = pools_[choices.below(pools_.size())];
    const std::uint64_t domain = choices.below(kDomains);
    const FrameUsage before = memory_.usage();
    const std::uint64_t charge =
        of.pool == Pool::locked ? std::max(of.bytes, facts().chunk_bytes) : of.bytes;
    const FrameId frame = memory_.acquire_frame({of.pool, of.bytes, domain});
    say() << "acquire " << of.bytes << " of pool " << static_cast<int>(of.pool) << ", domain "
          << domain << (frame.valid() ? "\n" : ": no room\n");
    const FrameUsage after = memory_.usage();
    if (!frame.valid()) {
      require(before.used() + charge > before.budget, "acquire: there is room and no frame");
      require(after.used() == before.used(), "acquire: a refusal changes the books");
      return;
    }
    if (after.in_use != before.in_use) {  // It is not cut from a chunk that is in use.
      require(after.in_use == before.in_use + charge, "acquire: a wrong charge");
      require(after.in_use <= after.budget, "acquire: in use exceeds the budget");
      require(after.used() == before.used() || after.used() <= after.budget,
              "acquire: a fresh frame exceeds the budget");
    }
    for (const Held& held : held_) {
      require(!(held.frame == frame), "acquire: the frame is in use");
    }
    held_.push_back({frame, of, domain});
    populate(held_.back(), false);
  }
  void populate(Held& held, bool clear) {
    const bool needed = memory_.needs_populate(held.frame);
    if (needed || clear) {
      require(memory_.populate(held.frame, clear, nullptr), "populate");
      require(!memory_.needs_populate(held.frame), "populate: it is still needed");
    }
    if (clear) {
      held.seed = 0;
      held.known = true;
      check(held);
      return;
    }
    // Each page begins with a word that names the domain, or with zero.
    const Block bytes = bytes_of(subject_, held.frame, held.of.bytes);
    for (std::uint64_t i = 0; i < bytes.size(); i += kSmallestExtent) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, 8);
      require(word == 0 || word % kDomains == held.domain,
              "acquire: the frame has bytes of another domain, at " + std::to_string(i));
    }
  }

  void give_back(Choices choices) {
    if (Held* const held = choose(held_, choices, [](const Held& each) { return !each.window; })) {
      say() << "return " << name(*held) << "\n";
      check(*held);
      memory_.return_frame(held->frame);
      std::erase_if(held_, [&](const Held& each) { return &each == held; });
    }
  }
  void write(Choices choices) {
    Held* const held = choose(held_, choices, [](const Held&) { return true; });
    if (held == nullptr) {
      return;
    }
    check(*held);
    held->seed = ++last_seed_ * kDomains + held->domain;
    held->known = true;
    say() << "write " << name(*held) << "\n";
    const Block bytes = block(*held);
    if (held->window == nullptr) {
      require(put(subject_, held->frame, bytes), "write");
    } else {
      subject_.write(held->at(), bytes.data(), bytes.size());
    }
    check(*held);
  }
  void clear(Choices choices) {
    if (Held* const held = choose(held_, choices, [](const Held& each) { return !each.window; })) {
      say() << "clear " << name(*held) << "\n";
      populate(*held, true);
    }
  }
  void enter(Choices choices) {
    if (windows_.empty()) {
      return;
    }
    Window& window = windows_[choices.below(windows_.size())];
    const std::uint64_t place = choices.below(kPlaces);
    Held* const held = choose(held_, choices, [&](const Held& each) {
      return !each.window && each.known && each.of.bytes == window.bytes &&
             each.of.pool == space_.window_pool(window.bytes);
    });
    if (held == nullptr || window.taken[place]) {
      return;
    }
    std::byte* const at = window.begin + place * window.bytes;
    if (memory_.needs_populate(held->frame)) {  // Its pages may have been split.
      require(memory_.populate(held->frame, false, at), "populate");
      check(*held);
    }
    say() << (window.mapped ? "restore " : "map ") << name(*held) << " at place " << place << "\n";
    Mechanism used{};
    if (window.mapped) {
      require(space_.restore(held->frame, at), "restore");
    } else if (!space_.host_addressable()) {
      require(space_.show(held->frame, at), "show");
      Block seen(window.bytes);
      subject_.read(seen.data(), at, seen.size());
      require(seen == block(*held), "show: the window has other bytes");
      return;  // It keeps its own address.
    } else if (last_seed_ % 2 == 0 && facts().takes_home) {
      require(space_.show(held->frame, at), "show");
    } else {
      require(space_.map(held->frame, at, used), "map");
    }
    window.taken[place] = true;
    held->window = &window;
    held->place = place;
    check(*held);
  }
  void leave(Choices choices) {
    const bool drop = choices.below(3) == 0;
    if (Held* const held = choose(held_, choices, [](const Held& each) { return each.window; })) {
      check(*held);
      take_out(*held, drop);
    }
  }
  void take_out(Held& held, bool drop) {
    std::byte* const at = held.at();
    const bool home = !held.window->mapped && facts().takes_home;
    say() << (drop ? "unmap " : home ? "take_home " : "withdraw or unmap ") << name(held) << "\n";
    if (drop || (!home && !held.window->mapped)) {
      require(space_.unmap(held.frame, at), "unmap");
      drop = true;
    } else if (home) {
      require(space_.take_home(held.frame, at), "take_home");
    } else {
      require(space_.withdraw(held.frame, at), "withdraw");
    }
    held.window->taken[held.place] = false;
    held.window = nullptr;
    if (drop) {  // Its bytes may be gone; then it is fresh.
      held.known = false;
      populate(held, false);
    }
    check(held);
  }
  void trim(Choices choices) {
    const std::uint64_t bytes = choices.below(3) == 0 ? ~std::uint64_t{0} : choices.below(8) << 19;
    const FrameUsage before = memory_.usage();
    const std::uint64_t freed = contract::trim(memory_, bytes);
    const FrameUsage after = memory_.usage();
    say() << "trim " << bytes << ": " << freed << "\n";
    require(after.used() == before.used() - freed, "trim: it frees something else than it returns");
    require(freed >= std::min(bytes, before.cached), "trim: it leaves frames");
  }
  void set_budget(Choices choices) {
    const std::uint64_t budget = facts().budget * (4 + choices.below(5)) / 8;
    say() << "set_budget " << budget << "\n";
    memory_.set_budget(budget);
    require(memory_.usage().budget == budget, "set_budget");
  }

  std::string name(const Held& held) const {
    return "frame " + std::to_string(held.frame.value) + " of " + std::to_string(held.of.bytes);
  }
  /// The bytes of a frame: each page begins with the seed.
  Block block(const Held& held) {
    Block bytes = pattern(held.of.bytes, held.seed);
    for (std::uint64_t i = 0; i < bytes.size() && held.seed != 0; i += kSmallestExtent) {
      std::memcpy(bytes.data() + i, &held.seed, 8);
    }
    return bytes;
  }
  void check(const Held& held) {
    if (!held.known || failed()) {
      return;
    }
    Block seen(held.of.bytes);
    if (held.window == nullptr) {
      seen = bytes_of(subject_, held.frame, held.of.bytes);
    } else {
      subject_.read(seen.data(), held.at(), seen.size());
    }
    require(seen == block(held), name(held) + " has other bytes");
  }
  void check_books() {
    const FrameUsage usage = memory_.usage();
    std::uint64_t least = 0;
    std::uint64_t most = 0;
    for (const Held& held : held_) {
      least += held.of.bytes;
      most += held.of.pool == Pool::locked ? std::max(held.of.bytes, facts().chunk_bytes)
                                           : held.of.bytes;
    }
    require(usage.in_use >= usage.leaving + least, "a held frame is not charged");
    require(usage.in_use <= usage.leaving + most, "something is charged that is not held");
    require(subject_.consistent(), "the books contradict the records");
  }
  void finish() {
    for (Held& held : held_) {
      if (held.window != nullptr) {
        check(held);
        const Status left = space_.unmap(held.frame, held.at());
        require(left.ok(), "unmap at the end");
      }
      memory_.return_frame(held.frame);
    }
    (void)contract::trim(memory_);
    require(memory_.usage().used() == 0, "something is charged at the end");
    for (const Window& window : windows_) {
      space_.release_window(window.begin, kPlaces * window.bytes);
    }
  }

  MemorySubject& subject_;
  Memory& memory_;
  AddressSpace& space_;
  std::vector<Class> pools_;
  std::vector<Window> windows_;
  std::vector<Held> held_;
  std::uint64_t last_seed_ = 0;
};

TEST_P(MemoryContract, random_calls_are_made_then_bytes_and_books_are_those_of_the_model) {
  run_random_calls(test::kSanitized ? 1 : 4, 150, [](const std::vector<std::uint64_t>& calls) {
    std::string why_not;
    const std::unique_ptr<MemorySubject> fresh = GetParam().make(why_not);
    return MemoryModel(*fresh).run(calls);
  });
}

}  // namespace
}  // namespace tiermem::contract
