// Rows of a table of eight times DRAM. Single rows by Zipf's law are compared with fio's random
// reads of the same number of bytes at the same depth, and rows with neighbours with single ones.
// Every row is checked. One thread calls gather.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/bare_io.hpp"
#include "bench/core.hpp"
#include "bench/working_set.hpp"
#include "bench/zipf.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr std::uint64_t kTimesDram = 8;
constexpr std::uint64_t kRow = 256;
constexpr std::uint64_t kPage = 4096;
constexpr unsigned kDepth = 64;
constexpr std::size_t kList = 8192;  // Rows per call.

std::uint64_t word_of(std::uint64_t row) {
  return row * 0xBF58476D1CE4E5B9u ^ 0x94D049BB133111EBu;
}

/// The table: each row of 256 bytes begins with a unique word.
class Table {
 public:
  static Result<std::unique_ptr<Table>> create(const std::string& directory, std::uint64_t dram,
                                               std::uint64_t row_cache = 0) {
    std::unique_ptr<Table> table(new Table);
    table->bytes_ = dram * kTimesDram;
    auto context =
        Context::create(fmt::format("dram={}; nvme={}:{}; depth={}; row_cache={}", dram, directory,
                                    table->bytes_ + 512 * kMiB, kDepth, row_cache));
    if (!context.ok()) {
      return std::move(context).status();
    }
    table->context_ = std::move(*context);
    auto buffer =
        table->context_->alloc(table->bytes_, {.advice = Advice::random, .label = "table"});
    if (!buffer.ok()) {
      return std::move(buffer).status();
    }
    table->buffer_ = std::move(*buffer);
    Status status = table->fill();
    if (!status.ok()) {
      return status;
    }
    return table;
  }

  std::uint64_t bytes() const { return bytes_; }
  /// Gathers these rows. Sets `good` to false if one has wrong bytes.
  Status rows(std::uint64_t row_bytes, const std::vector<std::uint64_t>& index, bool& good) {
    memory_.resize(index.size() * row_bytes);
    Status status = buffer_.gather(row_bytes, index, memory_.data());
    for (std::size_t i = 0; i < index.size() && status.ok(); ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, memory_.data() + i * row_bytes, sizeof(word));
      good = good && word == word_of(index[i] * (row_bytes / kRow));
    }
    return status;
  }
  Stats stats() const { return context_->stats(); }

 private:
  Table() = default;
  Status fill() {
    std::mt19937_64 random(1);
    for (std::uint64_t at = 0; at < bytes_; at += 2 * kMiB) {
      auto view = buffer_.acquire(kDiscard, at, 2 * kMiB);
      if (!view.ok()) {
        return std::move(view).status();
      }
      auto words = view->as<std::uint64_t>();
      for (std::uint64_t i = 0; i < words.size(); ++i) {
        words[i] = i % (kRow / 8) == 0 ? word_of((at + i * 8) / kRow) : random();
      }
    }
    // Resident bytes stay resident: a gather promotes nothing, so nothing must leave.
    return buffer_.evict(0, bytes_ / 2);
  }

  std::uint64_t bytes_ = 0;
  std::unique_ptr<Context> context_;
  Buffer buffer_;
  std::vector<std::byte> memory_;
};

/// `draw` fills a list, and is called until a second has passed; only the gathers are timed.
/// `figure` computes the result from the counters before and after, and the seconds.
template <typename Draw, typename Figure>
Result<Sample> run_second(Table& table, std::uint64_t row_bytes, Draw&& draw, Figure&& figure) {
  std::vector<std::uint64_t> index;
  const Stats before = table.stats();
  double took = 0;
  double cpu = 0;
  bool good = true;
  while (took < 1) {
    draw(index);
    const double cpu_before = cpu_seconds();
    const double start = now_seconds();
    Status status = table.rows(row_bytes, index, good);
    took += now_seconds() - start;
    cpu += cpu_seconds() - cpu_before;
    if (!status.ok()) {
      return status;
    }
  }
  if (!good) {
    return fail(Code::internal, "a row had wrong bytes");
  }
  const Stats after = table.stats();
  const auto bytes = static_cast<double>(after.gather_bytes - before.gather_bytes);
  return Sample{figure(before, after, took), cpu / (bytes / kGiB)};
}

void draw_list(const Zipf& zipf, std::mt19937_64& random, std::vector<std::uint64_t>& index) {
  index.resize(kList);
  std::generate(index.begin(), index.end(), [&] { return zipf(random); });
}

/// Rows by Zipf's law, some of them from a cache of a quarter of DRAM.
Status cached(Session& session, Table& plain, std::uint64_t dram) {
  session.tell("gather: writing a second table");
  auto made = Table::create(session.settings().directory, dram, dram / 4);
  if (!made.ok()) {
    return std::move(made).status();
  }
  const Zipf zipf(plain.bytes() / kRow);
  std::mt19937_64 random(11);
  const auto rows = [&](Table& table) {
    return [&] {
      std::uint64_t asked = 0;
      return run_second(
          table, kRow,
          [&](std::vector<std::uint64_t>& index) {
            draw_list(zipf, random, index);
            asked += kList;
          },
          [&](const Stats&, const Stats&, double seconds) {
            return static_cast<double>(asked) / seconds / 1e3;
          });
    };
  };
  for (int i = 0; i < 3; ++i) {  // Until the cache has the frequent rows.
    auto warm = rows(**made)();
    if (!warm.ok()) {
      return std::move(warm).status();
    }
  }
  return session.compare("gather_256b_row_cache", "thousand rows/s", Better::higher, 0,
                         rows(**made),
                         {"without a cache", "the same gathers with row_cache=0", rows(plain)});
}

}  // namespace

Status gather(Session& session) {
  const std::string& directory = session.settings().directory;
  const std::uint64_t dram = std::min(benchmark_dram(), 256 * kMiB);
  session.tell("gather: writing the table");
  auto made = Table::create(directory, dram);
  if (!made.ok()) {
    return std::move(made).status();
  }
  Table& table = **made;
  session.tell("gather: writing the peer's file");
  auto bare = BareIo::create(directory, table.bytes());
  if (!bare.ok()) {
    return std::move(bare).status();
  }
  std::mt19937_64 random(7);
  auto peer = best_of(session, "gather_256b", Better::higher, 3, (*bare)->random_candidates(kDepth),
                      "thousand reads/s");
  if (peer.ok()) {
    const Zipf zipf(table.bytes() / kRow);
    std::uint64_t asked = 0, read = 0;
    Status compared = session.compare(
        "gather_256b", "thousand reads/s", Better::higher, bars::kGather,
        [&] {
          return run_second(
              table, kRow,
              [&](std::vector<std::uint64_t>& index) {
                draw_list(zipf, random, index);
                asked += kList;
              },
              [&](const Stats& before, const Stats& after, double seconds) {
                read += after.gather_reads - before.gather_reads;
                return static_cast<double>(after.gather_reads - before.gather_reads) / seconds /
                       1e3;
              });
        },
        *peer);
    if (!compared.ok()) {
      return compared;
    }
    session.note(fmt::format("gather_256b: {:.3g} rows for each read",
                             static_cast<double>(asked) / static_cast<double>(read)));
  } else {
    session.skip("gather_256b", peer.message());
  }
  // The same number of pages in groups of eight neighbours, and alone. Counts requested bytes
  // instead of read bytes.
  const auto pages = [&](std::uint64_t together) {
    return [&, together] {
      std::uint64_t bytes = 0;
      return run_second(
          table, kPage,
          [&, together](std::vector<std::uint64_t>& index) {
            index.clear();
            while (index.size() < kList / 4) {
              const std::uint64_t first =
                  random() % (table.bytes() / 2 / kPage / together) * together;
              for (std::uint64_t i = 0; i < together; ++i) {
                index.push_back(first + i);
              }
            }
            bytes += index.size() * kPage;
          },
          [&](const Stats&, const Stats&, double seconds) {
            return static_cast<double>(bytes) / seconds / 1e9;
          });
    };
  };
  Status compared =
      session.compare("gather_32k_coalesced", "GB/s", Better::higher, bars::kGatherCoalesced,
                      pages(8), {"single pages", "the same with 4 KiB at once", pages(1)});
  return compared.ok() ? cached(session, table, dram) : std::move(compared);
}

}  // namespace tiermem::bench
