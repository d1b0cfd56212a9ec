// acquire and release of resident bytes, beside the minimum for any such call: one atomic add and
// one atomic subtract on a word with the same sharing.
#include <alloca.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/core.hpp"
#include "tiermem.h"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kView = 64 << 10;
constexpr std::uint64_t kManyExtents = 512;
constexpr std::uint64_t kRounds = 400000;  // Rounds per sample, which takes milliseconds.
constexpr double kNano = 1e9;

struct alignas(128) Word {
  std::atomic<std::uint64_t> value{0};
};

/// The old value is used, as a pin must use it; otherwise the compiler would choose another
/// instruction.
inline void looked_at(std::uint64_t old) {
  asm volatile("" : : "r"(old));
}

/// The bare pair, with the memory order of an acquire and a release.
inline void bare_pair(std::atomic<std::uint64_t>& word) {
  looked_at(word.fetch_add(1, std::memory_order_acquire));
  looked_at(word.fetch_sub(1, std::memory_order_release));
}

/// Processor time of the calling thread, without the time of other threads on its processor.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Nanoseconds of one call of `once`.
template <typename Once>
double timed(std::uint64_t rounds, Once once) {
  const double start = thread_seconds();
  for (std::uint64_t i = 0; i < rounds; ++i) {
    once();
  }
  return (thread_seconds() - start) * kNano / static_cast<double>(rounds);
}

/// `timed` with the stack at another position in its page each time. If a thread's stack writes and
/// its pinned word have the same page offset, a processor delays one for the other (measured: 33 ns
/// instead of 13). Threads' stacks begin at similar offsets, so a single collision could dominate
/// the result.
template <typename Once>
[[gnu::noinline]] double timed_elsewhere(std::uint64_t rounds, Once once) {
  static std::atomic<std::size_t> calls{0};
  auto* gap = static_cast<volatile char*>(alloca(64 + calls.fetch_add(1) * 832 % 4096));
  gap[0] = 0;
  return timed(rounds, once);
}

/// The same on two threads that begin together; the slower one counts. Long enough for the threads
/// to overlap even if each sometimes waits for a processor.
template <typename Once>
double timed_on_two(std::uint64_t rounds, Once once) {
  std::barrier start(2);
  std::array<double, 2> took{};
  const auto body = [&](unsigned thread) {
    start.arrive_and_wait();
    took[thread] = timed_elsewhere(rounds * 10, [&] { once(thread); });
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  return std::max(took[0], took[1]);
}

/// Takes and releases a resident view of a range.
class alignas(128) Hit {  // Two of them, on two threads, share no cache line.
 public:
  Hit(Context& context, Access access) : context_(context), access_(access) {}
  void operator()() {
    ViewRecord view;
    const Status taken = context_.acquire({&access_, 1}, Timeout::none(), {&view, 1});
    failed_ |= !taken.ok();
    failed_ |= !context_.release({&view, 1}).ok();
  }
  bool failed() const { return failed_; }

 private:
  Context& context_;
  const Access access_;
  bool failed_ = false;
};

Result<Sample> sample(double value, bool failed) {
  if (failed) {
    return fail(Code::internal, "a view of resident bytes was refused");
  }
  return Sample{value};
}

/// A buffer with all bytes resident and dirty: the state with the least work.
Result<Buffer> resident_buffer(Context& context, std::uint64_t bytes, std::uint64_t extent) {
  auto buffer = context.alloc(bytes, {.extent_bytes = extent, .label = "bench"});
  if (buffer.ok()) {
    auto view = buffer->acquire(kWrite);
    if (!view.ok()) {
      return std::move(view).status();
    }
    std::fill(view->data(), view->data() + bytes, std::byte{1});
  }
  return buffer;
}

Status one_thread(Session& session, Context& context) {
  auto buffer = resident_buffer(context, kView, 0);
  if (!buffer.ok()) {
    return std::move(buffer).status();
  }
  auto word = std::make_unique<Word>();
  Hit hit(context, buffer->range());
  return session.compare(
      "acquire_release_hit", "ns", Better::lower, bars::kHit,
      [&] {
        const double value = timed(kRounds, [&] { hit(); });
        return sample(value, hit.failed());
      },
      {"atomic pair", "std::atomic fetch_add(1, acquire), fetch_sub(1, release)",
       [&] { return Result<Sample>(Sample{timed(kRounds, [&] { bare_pair(word->value); })}); }});
}

Status through_c(Session& session, const std::string& tiers) {
  tm_context* context = nullptr;
  tm_buffer buffer = 0;
  tm_status status = tm_context_create(tiers.c_str(), nullptr, &context);
  if (status == TM_OK) {
    status = tm_alloc(context, kView, nullptr, &buffer);
  }
  tm_access access{};
  access.buffer = buffer;
  access.mode = TM_WRITE;
  tm_view view{};
  if (status == TM_OK) {
    status = tm_acquire(context, &access, 1, TM_HOST_ORDER, -1, &view);
  }
  if (status == TM_OK) {
    status = tm_release(context, &view, 1, TM_HOST_ORDER);
  }
  Status result;
  if (status != TM_OK) {
    result = fail(Code::internal, "the C interface answered {}", static_cast<int>(status));
  } else {
    access.mode = TM_READ;
    bool failed = false;
    auto word = std::make_unique<Word>();
    result = session.compare(
        "acquire_release_hit_c", "ns", Better::lower, bars::kHitC,
        [&] {
          const double value = timed(kRounds, [&] {
            failed |= tm_acquire(context, &access, 1, TM_HOST_ORDER, 0, &view) != TM_OK;
            failed |= tm_release(context, &view, 1, TM_HOST_ORDER) != TM_OK;
          });
          return sample(value, failed);
        },
        {"atomic pair", "std::atomic fetch_add(1, acquire), fetch_sub(1, release)",
         [&] { return Result<Sample>(Sample{timed(kRounds, [&] { bare_pair(word->value); })}); }});
  }
  if (context != nullptr) {
    (void)tm_free(context, buffer);
    (void)tm_context_destroy(context, 0, -1);
  }
  return result;
}

Status many_extents(Session& session, Context& context) {
  auto buffer = resident_buffer(context, kManyExtents * kView, kView);
  if (!buffer.ok()) {
    return std::move(buffer).status();
  }
  // Packed words: eight share a cache line, which is the better case for the peer.
  std::vector<std::atomic<std::uint64_t>> words(kManyExtents);
  Hit hit(context, buffer->range());
  const std::uint64_t rounds = kRounds / kManyExtents * 4;
  const auto each = [](double value) { return value / static_cast<double>(kManyExtents); };
  return session.compare(
      "acquire_release_hit_512_extents", "ns/extent", Better::lower, bars::kHitMany,
      [&] {
        const double value = timed(rounds, [&] { hit(); });
        return sample(each(value), hit.failed());
      },
      {"512 atomic pairs", "512 fetch_add on neighbouring words, then 512 fetch_sub", [&] {
         const double value = timed(rounds, [&] {
           for (auto& word : words) {
             looked_at(word.fetch_add(1, std::memory_order_acquire));
           }
           for (auto& word : words) {
             looked_at(word.fetch_sub(1, std::memory_order_release));
           }
         });
         return Result<Sample>(Sample{each(value)});
       }});
}

Status two_threads(Session& session, Context& context, bool same) {
  auto first = resident_buffer(context, kView, 0);
  auto second = resident_buffer(context, kView, 0);
  if (!first.ok() || !second.ok()) {
    return (first.ok() ? second : first).status().clone();
  }
  std::array<Hit, 2> hits = {Hit(context, first->range()),
                             Hit(context, (same ? *first : *second).range())};
  auto words = std::make_unique<std::array<Word, 2>>();
  return session.compare(
      same ? "acquire_release_hit_2_threads_same" : "acquire_release_hit_2_threads", "ns",
      Better::lower, same ? bars::kHitShared : bars::kHitTwo,
      [&] {
        const double value = timed_on_two(kRounds, [&](unsigned thread) { hits[thread](); });
        return sample(value, hits[0].failed() || hits[1].failed());
      },
      {"atomic pair, 2 threads", same ? "two threads, one word" : "two threads, a word each", [&] {
         return Result<Sample>(Sample{timed_on_two(
             kRounds, [&](unsigned thread) { bare_pair((*words)[same ? 0 : thread].value); })});
       }});
}

}  // namespace

Status acquire_release_hit(Session& session) {
  const std::string tiers = "dram=256M; nvme=off";
  auto context = Context::create(tiers);
  if (!context.ok()) {
    return std::move(context).status();
  }
  Status status = one_thread(session, **context);
  if (status.ok()) {
    status = through_c(session, tiers);
  }
  if (status.ok()) {
    status = many_extents(session, **context);
  }
  for (const bool same : {false, true}) {
    if (status.ok()) {
      status = two_threads(session, **context, same);
    }
  }
  return status;
}

}  // namespace tiermem::bench
