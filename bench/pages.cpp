// Pages that can be checked by themselves.
#include "bench/pages.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "bench/clock.hpp"
#include "bench/random_bytes.hpp"
#include "bench/zipf.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kPart = std::uint64_t{1} << 20;

/// Splitmix64: a different word for each value.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

/// The first words of a page: its number, its count of writes, and a seal over both. The rest is
/// noise.
struct Head {
  std::uint64_t name = 0;
  std::uint64_t writes = 0;
  std::uint64_t seal = 0;

  void set(std::uint64_t page, std::uint64_t count) {
    name = mix(page);
    writes = count;
    seal = mix(name ^ count);
  }
  bool right(std::uint64_t page) const { return name == mix(page) && seal == mix(name ^ writes); }
};

class PageWorkload : public Workload {
 public:
  explicit PageWorkload(const PageTouches& touches) : touches_(touches) {
    if (touches.zipf > 0) {
      zipf_.emplace(touches.pages, touches.zipf);
    }
  }

  std::uint64_t bytes() const override { return touches_.pages * kPageBytes; }

  void fill(std::byte* data) override {
    for (std::uint64_t at = 0; at < bytes(); at += kPart) {
      (touches_.compressible ? fill_compressible : fill_random)(
          data + at, std::min(kPart, bytes() - at), at + 1);
      for (std::uint64_t page = at / kPageBytes; page < std::min(at + kPart, bytes()) / kPageBytes;
           ++page) {
        head(data, page).set(page, 0);
      }
    }
  }

  double run(std::byte* data) override {
    std::atomic<std::uint64_t> wrong{0}, written{0};
    const bool settles = runs_ == 0 && touches_.settle != 0;
    const std::uint64_t each = (settles ? touches_.settle : touches_.touches) / touches_.threads;
    ++runs_;
    const double start = now_seconds();
    const auto part = [&](unsigned thread) {
      std::mt19937_64 dice(runs_ * 1000 + thread);
      std::uint64_t bad = 0, mine = 0;
      for (std::uint64_t i = 0; i < each; ++i) {
        const std::uint64_t page = next(dice);
        Head& touched = head(data, page);
        bad += touched.right(page) ? 0 : 1;
        if (touches_.writes && i % 2 == 1) {
          touched.set(page, touched.writes + 1);
          ++mine;
        }
      }
      wrong += bad;
      written += mine;
    };
    std::vector<std::thread> others;
    for (unsigned thread = 1; thread < touches_.threads; ++thread) {
      others.emplace_back(part, thread);
    }
    part(0);
    for (std::thread& other : others) {
      other.join();
    }
    const double took = now_seconds() - start;
    written_ += written;
    return wrong == 0 ? static_cast<double>(each * touches_.threads) / took : 0;
  }

  bool whole(const std::byte* data) override {
    std::uint64_t writes = 0, wrong = 0;
    for (std::uint64_t page = 0; page < touches_.pages; ++page) {
      const auto& found = *reinterpret_cast<const Head*>(data + page * kPageBytes);
      wrong += found.right(page) ? 0 : 1;
      writes += found.writes;
    }
    return wrong == 0 && writes == written_;
  }

 private:
  static Head& head(std::byte* data, std::uint64_t page) {
    return *reinterpret_cast<Head*>(data + page * kPageBytes);
  }
  std::uint64_t next(std::mt19937_64& dice) {
    if (touches_.step != 0) {
      return at_ = (at_ + touches_.step) % touches_.pages;
    }
    return zipf_ ? (*zipf_)(dice) : dice() % touches_.pages;
  }

  const PageTouches touches_;
  std::optional<Zipf> zipf_;
  std::uint64_t runs_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t at_ = 0;  // The newest page of a run in steps.
};

}  // namespace

std::unique_ptr<Workload> make_page_workload(const PageTouches& touches) {
  return std::make_unique<PageWorkload>(touches);
}

}  // namespace tiermem::bench
