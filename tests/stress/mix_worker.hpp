// The work of each worker thread of the mixed stress: its own buffers with a model of their bytes,
// and random calls on them. A Worker belongs to one thread. All threads of a case share a World.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "support/pattern.hpp"

namespace tiermem::test {

inline constexpr std::uint64_t kCell = 16 << 10;  // The unit of the model: each cell has one seed.
inline constexpr std::uint64_t kMostCells = 128;  // The largest buffer of a worker: 2 MiB.
inline constexpr std::uint64_t kBuffers = 12;     // The buffers of each worker.
inline constexpr std::uint64_t kShared = 4 * kMiB;  // Bytes of each shared buffer.
inline constexpr std::uint64_t kCounters = 512;

using Random = std::mt19937_64;

/// A buffer and the seeds of its cells. Seed 0: zeros.
struct Modelled {
  Buffer buffer;
  std::vector<std::uint64_t> cells;

  static std::uint64_t wrong_in(std::span<const std::uint64_t> words, std::uint64_t seed,
                                std::uint64_t first = 0) {
    if (seed != 0) {
      return wrong(words, seed, first);
    }
    return static_cast<std::uint64_t>(
        std::count_if(words.begin(), words.end(), [](auto w) { return w != 0; }));
  }
  /// Returns the number of words that differ from the model. `words` begin with cell `first`.
  std::uint64_t check(std::span<const std::uint64_t> words, std::uint64_t first) const {
    std::uint64_t n = 0;
    for (std::uint64_t c = 0; c * kCell < words.size() * 8; ++c) {
      n += wrong_in(words.subspan(c * kCell / 8, kCell / 8), cells[first + c]);
    }
    return n;
  }
  void write(std::span<std::uint64_t> words, std::uint64_t first, std::uint64_t seed) {
    for (std::uint64_t c = 0; c * kCell < words.size() * 8; ++c) {
      cells[first + c] = seed + c;
      fill(words.subspan(c * kCell / 8, kCell / 8), seed + c);
    }
  }
};

struct Cells {
  std::uint64_t first, count;
};

inline Cells some_cells(Random& random, const Modelled& m) {
  const std::uint64_t first = random() % m.cells.size();
  return {first, 1 + random() % std::min<std::uint64_t>(m.cells.size() - first, 64)};
}

/// Shared by all threads of a case.
struct World {
  std::unique_ptr<Context> context;
  std::vector<Buffer> shared;  // Read-only; the pattern of seed 1 + its index.
  Buffer counters;
  std::atomic<std::uint64_t> counted{0};
  std::atomic<bool> stop{false};

  void failed(const char* what, const Status& status) {
    ADD_FAILURE() << what << ": " << code_name(status.code()) << ": " << status.message();
    stop = true;
  }
};

class Worker {
 public:
  Worker(World& world, std::uint64_t seed) : world_(world), random_(seed), next_seed_(seed | 1) {}

  void run() {
    while (!world_.stop.load(std::memory_order_relaxed)) {
      if (mine_.size() < kBuffers) {
        allocate();
        continue;
      }
      Modelled& m = mine_[random_() % mine_.size()];
      switch (random_() % 23) {
        case 0:
        case 1:
        case 2:
          write(m);
          break;
        case 3:
        case 4:
        case 5:
        case 6:
          read(m);
          break;
        case 7:
          copy_out(m);
          break;
        case 8:
          copy_in(m);
          break;
        case 9:
        case 10:
          read_shared();
          break;
        case 11:
          count();
          break;
        case 12:
          list();
          break;
        case 13:
        case 14:
          asynchronous(m);
          break;
        case 15:
          move(m);
          break;
        case 16:
          advise(m);
          break;
        case 17:
          forget(m);
          break;
        case 18:
          free_under_view(random_() % mine_.size());
          break;
        case 19:
        case 20:
          gather(m);
          break;
        case 21:
          scatter(m);
          break;
        default:
          free(random_() % mine_.size());
      }
    }
    for (Modelled& m : mine_) {
      read_all(m);
    }
    mine_.clear();
  }

 private:
  std::uint64_t new_seed() { return next_seed_ += 2 * kMostCells; }

  void require(const char* what, const Status& status) {
    if (!status.ok()) {
      world_.failed(what, status);
    }
  }
  void expect_right(std::uint64_t wrong_count, const char* what) {
    if (wrong_count != 0) {
      ADD_FAILURE() << what << ": " << wrong_count << " words are wrong";
      world_.stop = true;
    }
  }

  void allocate() {
    constexpr std::array<std::uint64_t, 5> kExtents = {0, 0, 4096, 64 << 10, kMiB};
    BufferOptions options;
    options.extent_bytes = kExtents[random_() % kExtents.size()];
    constexpr std::array<std::uint32_t, 5> kFlags = {0, 0, kIsolated, kNoChecksum, kDroppable};
    options.flags = kFlags[random_() % kFlags.size()];
    options.advice = random_() % 3 == 0 ? Advice::random : Advice::normal;
    Modelled m;
    m.cells.resize(1 + random_() % kMostCells);
    auto made = world_.context->alloc(m.cells.size() * kCell, options);
    if (!made.ok()) {
      world_.failed("alloc", made.status());
      return;
    }
    m.buffer = std::move(*made);
    mine_.push_back(std::move(m));
  }

  View acquire(Modelled& m, Cells cells, std::uint32_t mode) {
    auto view = m.buffer.acquire(mode, cells.first * kCell, cells.count * kCell);
    if (!view.ok()) {
      world_.failed("acquire", view.status());
      return {};
    }
    return std::move(*view);
  }

  void write(Modelled& m) {
    const Cells cells = some_cells(random_, m);
    View view = acquire(m, cells, random_() % 2 == 0 ? kDiscard : kWrite);
    m.write(view ? view.as<std::uint64_t>() : std::span<std::uint64_t>(), cells.first, new_seed());
  }

  void read(Modelled& m) {
    const Cells cells = some_cells(random_, m);
    if (View view = acquire(m, cells, kRead)) {
      if (random_() % 4 == 0) {
        std::this_thread::yield();
      }
      expect_right(m.check(view.as<std::uint64_t>(), cells.first), "a view");
    }
  }

  void read_all(Modelled& m) {
    for (std::uint64_t first = 0; first < m.cells.size(); first += 32) {
      const Cells cells{first, std::min<std::uint64_t>(32, m.cells.size() - first)};
      if (View view = acquire(m, cells, kRead)) {
        expect_right(m.check(view.as<std::uint64_t>(), cells.first), "at the end");
      }
    }
  }

  void copy_out(Modelled& m) {
    const Cells cells = some_cells(random_, m);
    copy_.resize(cells.count * kCell / 8);
    require("read", m.buffer.read(cells.first * kCell, copy_.data(), copy_.size() * 8));
    expect_right(m.check(copy_, cells.first), "a copy");
  }

  void copy_in(Modelled& m) {
    const Cells cells = some_cells(random_, m);
    copy_.resize(cells.count * kCell / 8);
    m.write(copy_, cells.first, new_seed());
    require("write", m.buffer.write(cells.first * kCell, copy_.data(), copy_.size() * 8));
  }

  /// Gathers rows, which are parts of cells, in no order, from a buffer of its own and from a
  /// shared one.
  void gather(const Modelled& m) {
    constexpr std::uint64_t kRow = kCell / 8;
    const std::uint64_t which = random_() % world_.shared.size();
    for (const bool mine : {true, false}) {
      const Buffer& buffer = mine ? m.buffer : world_.shared[which];
      std::vector<std::uint64_t> rows(1 + random_() % 100);
      for (std::uint64_t& row : rows) {
        row = random_() % (buffer.size() / kRow);
      }
      copy_.resize(rows.size() * kRow / 8);
      Op op;
      const bool later = random_() % 4 == 0;
      Status status = world_.context->gather(buffer.rows(kRow, rows), copy_.data(),
                                             Timeout::forever(), later ? &op : nullptr);
      const bool cancel = later && random_() % 2 == 0;
      if (cancel) {
        require("cancel", op.cancel());
      }
      status = later ? op.wait() : std::move(status);
      if (cancel && status.code() == Code::cancelled) {
        continue;
      }
      require("gather", status);
      for (std::size_t i = 0; i < rows.size() && status.ok(); ++i) {
        const std::span<const std::uint64_t> words(&copy_[i * kRow / 8], kRow / 8);
        const std::uint64_t word = rows[i] * kRow / 8;
        expect_right(mine ? Modelled::wrong_in(words, m.cells[rows[i] / 8], word % (kCell / 8))
                          : wrong(words, 1 + which, word),
                     "a row");
      }
    }
  }

  void scatter(Modelled& m) {
    std::vector<std::uint64_t> rows(1 + random_() % 16);
    copy_.resize(rows.size() * kCell / 8);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = random_() % m.cells.size();
      m.write({&copy_[i * kCell / 8], kCell / 8}, rows[i], new_seed());
    }
    require("scatter", m.buffer.scatter(kCell, rows, copy_.data()));
  }

  void read_shared() {
    const std::uint64_t which = random_() % world_.shared.size();
    const std::uint64_t offset = random_() % (kShared / kCell) * kCell;
    const std::uint64_t length = std::min(kShared - offset, (1 + random_() % 32) * kCell);
    auto view = world_.shared[which].acquire(kRead, offset, length);
    require("a shared buffer", view.status());
    if (view.ok()) {
      expect_right(wrong(view->as<std::uint64_t>(), 1 + which, offset / 8), "a shared buffer");
    }
  }

  void count() {
    const std::uint64_t page = random_() % (world_.counters.size() / 4096);
    auto view = world_.counters.acquire(kWrite, page * 4096, 4096);
    require("the counters", view.status());
    if (view.ok()) {
      std::atomic_ref(view->as<std::uint64_t>()[random_() % kCounters]).fetch_add(1);
      ++world_.counted;
    }
  }

  /// Acquires ranges of several buffers, some of them twice, in one call.
  void list() {
    std::array<Access, 4> accesses;
    std::array<std::uint64_t, 3> of{};
    std::array<Cells, 3> cells{};
    for (std::size_t i = 0; i < 3; ++i) {
      of[i] = random_() % mine_.size();
      cells[i] = some_cells(random_, mine_[of[i]]);
      cells[i].count = std::min<std::uint64_t>(cells[i].count, 16);
      accesses[i] = mine_[of[i]].buffer.range(cells[i].first * kCell, cells[i].count * kCell);
    }
    const std::uint64_t which = random_() % world_.shared.size();
    accesses[3] = world_.shared[which].range(0, kCell);
    std::array<ViewRecord, 4> views;
    const Status status = world_.context->acquire(accesses, Timeout::forever(), views);
    require("a list", status);
    if (!status.ok()) {
      return;
    }
    for (std::size_t i = 0; i < 3; ++i) {
      const std::span words(static_cast<const std::uint64_t*>(views[i].data), views[i].length / 8);
      expect_right(mine_[of[i]].check(words, cells[i].first), "a list");
    }
    expect_right(wrong({static_cast<const std::uint64_t*>(views[3].data), kCell / 8}, 1 + which),
                 "a list");
    std::shuffle(views.begin(), views.end(), random_);
    require("release of a list", world_.context->release(views));
  }

  void asynchronous(Modelled& m) {
    const Cells cells = some_cells(random_, m);
    const Access range = m.buffer.range(cells.first * kCell, cells.count * kCell);
    ViewRecord record;
    auto op = world_.context->acquire_async({&range, 1}, {&record, 1});
    if (!op.ok()) {
      world_.failed("acquire_async", op.status());
      return;
    }
    const bool cancel = random_() % 2 == 0;
    if (cancel) {
      require("cancel", op->cancel());
    } else if (random_() % 2 == 0) {
      const Status polled = op->poll();
      if (polled.ok()) {
        finish_asynchronous(m, cells, record);
        return;
      }
      if (polled.code() != Code::busy) {
        world_.failed("poll", polled);
        return;
      }
    }
    const Status status = op->wait();
    if (status.ok()) {
      finish_asynchronous(m, cells, record);
    } else if (!cancel || status.code() != Code::cancelled) {
      world_.failed("wait", status);
    }
  }
  void finish_asynchronous(Modelled& m, Cells cells, const ViewRecord& record) {
    const View view(*world_.context, record);
    expect_right(m.check(view.as<std::uint64_t>(), cells.first), "an asynchronous view");
  }

  void move(Modelled& m) {
    const Cells cells = some_cells(random_, m);
    const Access range = m.buffer.range(cells.first * kCell, cells.count * kCell);
    Status status;
    switch (random_() % 4) {
      case 0:
        require("prefetch", world_.context->prefetch({&range, 1}, random_() % 3));
        return;
      case 1:
        require("migrate up", world_.context->migrate({&range, 1}, {Kind::dram, 0}));
        return;
      case 2:
        status = world_.context->migrate(
            {&range, 1}, {Kind::block, 0},
            Timeout::milliseconds(static_cast<std::int64_t>(random_() % 20)));
        break;
      default:
        status = world_.context->evict({&range, 1});
    }
    // An extent that a request in progress needs is not evicted.
    if (!status.ok() && status.code() != Code::busy && status.code() != Code::timed_out) {
      world_.failed("evict", status);
    }
  }

  void advise(Modelled& m) {
    constexpr std::array kAll = {Advice::normal,    Advice::read_mostly, Advice::will_need,
                                 Advice::cold,      Advice::sequential,  Advice::random,
                                 Advice::streamed,  Advice::touched,     Advice::frozen,
                                 Advice::preferred, Advice::keep,        Advice::next_use};
    const Cells cells = some_cells(random_, m);
    const Access range = m.buffer.range(cells.first * kCell, cells.count * kCell);
    require("advise",
            world_.context->advise({&range, 1}, kAll[random_() % kAll.size()], random_() % 2));
    (void)world_.context->tick(random_() % 8 == 0 ? Tick::step : Tick::op);
    const auto info = m.buffer.info();
    require("info", info.status());
    if (info.ok() && (info->bytes != m.buffer.size() || info->lost != 0)) {
      world_.failed("info", Code::internal);
    }
  }

  void forget(Modelled& m) {
    const Cells cells = some_cells(random_, m);
    const Access range = m.buffer.range(cells.first * kCell, cells.count * kCell);
    require("dont_need", world_.context->advise({&range, 1}, Advice::dont_need));
    std::fill_n(m.cells.begin() + static_cast<std::ptrdiff_t>(cells.first), cells.count, 0);
  }

  void free(std::uint64_t at) {
    if (random_() % 2 == 0) {  // Transfers may be in progress.
      (void)mine_[at].buffer.prefetch();
    }
    mine_.erase(mine_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void free_under_view(std::uint64_t at) {
    Modelled& m = mine_[at];
    const Cells cells = some_cells(random_, m);
    if (View view = acquire(m, cells, kRead)) {
      const Handle handle = m.buffer.detach();
      require("free", world_.context->free(handle));
      if (world_.context->free(handle).code() != Code::stale_handle) {
        world_.failed("free of a freed one", Code::internal);
      }
      expect_right(m.check(view.as<std::uint64_t>(), cells.first), "a view of a freed buffer");
    }
    mine_.erase(mine_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  World& world_;
  Random random_;
  std::uint64_t next_seed_;
  std::vector<Modelled> mine_;
  std::vector<std::uint64_t> copy_;
};

}  // namespace tiermem::test
