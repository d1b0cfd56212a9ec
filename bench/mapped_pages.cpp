// Random touches of pages, half of them resident. The peers are today's alternatives: swap or a
// file under mmap, the faster of the two, and a user-level pager with handler threads.
#include <fmt/format.h>
#include <sys/mman.h>

#include <utility>
#include <vector>

#include "bench/mapped.hpp"
#include "bench/pages.hpp"
#include "bench/sides.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kExtent = std::uint64_t{64} << 10;  // As in the preload library.
constexpr std::uint64_t kDram = std::uint64_t{256} << 20;

Contest contest(std::string name, double bar, const PageTouches& touches) {
  return {.name = std::move(name),
          .unit = "touches/s",
          .bar = bar,
          .make = [touches] { return make_page_workload(touches); },
          .dram = touches.pages * kPage / 2,
          .extent = kExtent};
}

/// "1_thread", "2_threads"
std::string threads_of(unsigned threads) {
  return fmt::format("{}_thread{}", threads, threads == 1 ? "" : "s");
}

/// Swap, and mmap without read-ahead: with read-ahead, a random touch reads useless bytes.
Status beside_kernel(Session& session, const Contest& pages) {
  std::vector<SideChoice> peers = swap_sides(pages);
  peers.push_back(mmap_side(pages, session.settings().directory, MADV_RANDOM, "random"));
  return beside_swap(session, pages, std::move(peers));
}

Status beside_pager(Session& session, const Contest& pages) {
  std::vector<SideChoice> peers;
  for (const auto& [handlers, block] : {std::pair{1U, kPage}, std::pair{4U, kPage},
                                        std::pair{16U, kPage}, std::pair{4U, 16 * kPage}}) {
    peers.push_back(pager_side(pages, session.settings().directory, handlers, block));
  }
  return compare_sides(session, pages, std::move(peers));
}

}  // namespace

Status mapped_random_4k_peers(Session& session) {
  for (const unsigned threads : {1U, 2U, 16U}) {
    const PageTouches touches{
        .pages = 2 * kDram / kPage, .touches = 20'000 + 10'000 * threads, .threads = threads};
    const std::string count = threads_of(threads);
    Status status = beside_kernel(
        session,
        contest("mapped_random_4k_kernel_" + count,
                threads == 1 ? bars::kMappedRandomKernel : bars::kMappedRandomKernelMany, touches));
    if (status.ok()) {
      status = beside_pager(
          session, contest("mapped_random_4k_umap_" + count, bars::kMappedRandomUmap, touches));
    }
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

namespace {

/// Touches are signals, and the touching threads read.
Contest by_signal(Contest contest) {
  contest.options = "; userfault=signal";
  return contest;
}

}  // namespace

Status mapped_random_4k_signal(Session& session) {
  for (const unsigned threads : {1U, 2U, 16U}) {
    const PageTouches touches{
        .pages = 2 * kDram / kPage, .touches = 20'000 + 10'000 * threads, .threads = threads};
    Status status = beside_kernel(
        session,
        by_signal(contest("mapped_random_4k_signal_" + threads_of(threads),
                          threads == 1 ? bars::kMappedRandomSignal : bars::kMappedRandomKernelMany,
                          touches)));
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

namespace {

/// Half of the pages fit, and the bytes shrink to a third.
PageTouches packed(unsigned threads) {
  return {.pages = 2 * kDram / kPage,
          .touches = 20'000 + 10'000 * threads,
          .threads = threads,
          .compressible = true};
}

}  // namespace

Status mapped_random_4k_zswap(Session& session) {
  for (const unsigned threads : {1U, 2U, 16U}) {
    Status status = beside_zswap(
        session, contest("mapped_random_4k_zswap_" + threads_of(threads), 0, packed(threads)));
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

Status mapped_random_4k_zswap_signal(Session& session) {
  for (const unsigned threads : {1U, 2U, 16U}) {
    Status status = beside_zswap(
        session, by_signal(contest("mapped_random_4k_zswap_signal_" + threads_of(threads),
                                   bars::kMappedRandomZswap, packed(threads))));
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

Status mapped_steps(Session& session) {
  constexpr std::uint64_t kPages = 2 * kDram / kPage;
  for (const auto& [name, step] : {std::pair{"44k", std::uint64_t{11}},
                                   {"244k", std::uint64_t{61}},
                                   {"back_68k", kPages - 17}}) {
    const PageTouches touches{.pages = kPages, .touches = 60'000, .step = step};
    Status status =
        beside_kernel(session, contest(std::string("mapped_steps_") + name, 0, touches));
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

namespace {

/// Misses teach which pages stay in memory. Three memories of them come first.
PageTouches by_zipf(bool writes) {
  return {.pages = 2 * kDram / kPage,
          .touches = 60'000,
          .settle = 2'000'000,
          .zipf = 0.99,
          .writes = writes};
}

}  // namespace

Status mapped_zipf_4k(Session& session) {
  for (const bool writes : {false, true}) {
    Status status =
        beside_kernel(session, contest(writes ? "mapped_zipf_4k_write" : "mapped_zipf_4k_read",
                                       bars::kMappedZipf, by_zipf(writes)));
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

Status mapped_zipf_4k_signal(Session& session) {
  for (const bool writes : {false, true}) {
    Status status = beside_kernel(session, by_signal(contest(writes ? "mapped_zipf_4k_signal_write"
                                                                    : "mapped_zipf_4k_signal_read",
                                                             bars::kMappedZipf, by_zipf(writes))));
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

// Extents of up to 128 KiB come by the page.
Status mapped_file_random_4k(Session& session) {
  for (const unsigned threads : {1U, 2U, 16U}) {
    const PageTouches touches{
        .pages = 2 * kDram / kPage, .touches = 20'000 + 10'000 * threads, .threads = threads};
    Contest reads =
        contest("mapped_file_random_4k_" + threads_of(threads),
                threads == 1 ? bars::kMappedRandomKernel : bars::kMappedRandomKernelMany, touches);
    reads.extent = 16 * kPage;
    reads.reads_file = true;
    Status status = compare_sides(
        session, reads, {mmap_side(reads, session.settings().directory, MADV_RANDOM, "random")});
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace tiermem::bench
