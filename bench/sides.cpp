// The sides, and their comparison.
#include "bench/sides.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "bench/limited_child.hpp"
#include "bench/mapped_set.hpp"
#include "bench/swap.hpp"
#include "bench/user_pager.hpp"
#include "os/host_memory.hpp"

namespace tiermem::bench {
namespace {

// The peers' programs, and their page tables in the kernel, need a little memory themselves.
constexpr std::uint64_t kSlack = std::uint64_t{16} << 20;

Status wrong_bytes(const std::string& who) {
  return fail(Code::io_error, "{}: bytes were read that are not those written", who);
}

/// A file without a name, filled through a mapping. -1 on failure.
int filled_file(const std::string& directory, Workload& work, std::byte** mapping) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 || ::posix_fallocate(fd, 0, static_cast<off_t>(work.bytes())) != 0) {
    return -1;
  }
  void* const area = ::mmap(nullptr, work.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (area == MAP_FAILED) {
    return -1;
  }
  work.fill(static_cast<std::byte*>(area));
  *mapping = static_cast<std::byte*>(area);
  return ::fdatasync(fd) == 0 ? fd : -1;
}

class TiermemSide : public Side {
 public:
  TiermemSide(const Contest& contest, std::string directory)
      : directory_(std::move(directory)),
        dram_(contest.dram),
        compressed_(contest.compressed),
        extent_(contest.extent),
        reads_file_(contest.reads_file),
        options_(contest.options),
        work_(contest.make()) {}
  Status begin() override {
    auto set = reads_file_ ? adopt()
                           : MappedSet::reserve(directory_, dram_, work_->bytes(), extent_,
                                                compressed_, options_);
    if (!set.ok()) {
      return std::move(set).status();
    }
    set_ = std::move(*set);
    if (!reads_file_) {
      work_->fill(set_.data);
    }
    return run().ok() ? Status() : wrong_bytes("tiermem");
  }
  Result<Sample> run() override {
    const double value = work_->run(set_.data);
    if (!(value > 0) || set_.context->stats().poisoned_touches != 0) {
      return wrong_bytes("tiermem");
    }
    return Sample{value};
  }
  Status finish() override { return work_->whole(set_.data) ? Status() : wrong_bytes("tiermem"); }

 private:
  Result<MappedSet> adopt() {
    std::byte* written = nullptr;
    const int fd = filled_file(directory_, *work_, &written);
    if (fd < 0) {
      return fail(Code::unavailable, "no file in {}", directory_);
    }
    (void)::munmap(written, work_->bytes());
    (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);  // The page cache keeps no bytes for us.
    auto set = MappedSet::adopt(fmt::format("/proc/self/fd/{}", fd), dram_, extent_);
    ::close(fd);
    return set;
  }

  const std::string directory_;
  const std::uint64_t dram_, compressed_, extent_;
  const bool reads_file_;
  const std::string options_;
  const std::unique_ptr<Workload> work_;
  MappedSet set_;
};

/// Memory that outlives its workload; null if it is unavailable.
using Provide = std::function<std::byte*(Workload& work)>;

class ChildSide : public Side {
 public:
  ChildSide(std::uint64_t limit, Provide provide, MakeWorkload make)
      : limit_(limit), provide_(std::move(provide)), make_(std::move(make)) {}
  Status begin() override {
    auto child = LimitedChild::start(limit_, [this]() -> LimitedChild::Answer {
      // For the life of the process: the kernel reclaims it.
      Workload* const work = make_().release();
      std::byte* const data = provide_(*work);
      if (data == nullptr || !(work->run(data) > 0)) {
        return {};
      }
      return [work, data](std::uint32_t question) {
        return question == kRun ? work->run(data) : work->whole(data) ? 1.0 : 0.0;
      };
    });
    if (!child.ok()) {
      return std::move(child).status();
    }
    child_ = std::move(*child);
    return {};
  }
  Result<Sample> run() override {
    auto value = ask(kRun);
    return value.ok() ? Result<Sample>(Sample{*value}) : std::move(value).status();
  }
  Status finish() override { return ask(kWhole).status(); }
  unsigned begun_again() const override { return begun_again_; }

 private:
  static constexpr std::uint32_t kRun = 0, kWhole = 1;
  static constexpr unsigned kAgain = 12;  // Maximum replacements of a killed child.
  Result<double> ask(std::uint32_t question) {
    while (true) {
      Status status = child_ != nullptr ? Status() : begin();
      if (status.ok()) {
        auto value = child_->ask(question);
        if (value.ok()) {
          return value;
        }
        status = std::move(value).status();
      }
      if (status.code() != Code::unavailable || begun_again_ == kAgain) {
        return status;
      }
      ++begun_again_;
      child_.reset();
    }
  }

  const std::uint64_t limit_;
  const Provide provide_;
  const MakeWorkload make_;
  std::unique_ptr<LimitedChild> child_;
  unsigned begun_again_ = 0;
};

/// Anonymous memory in whole huge pages.
std::byte* anonymous(std::uint64_t bytes, int advice) {
  void* const area = ::mmap(nullptr, bytes + host::kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) {
    return nullptr;
  }
  const auto at = reinterpret_cast<std::uintptr_t>(area);
  const auto whole = (at + host::kHugePage - 1) / host::kHugePage * host::kHugePage;
  (void)::madvise(reinterpret_cast<void*>(whole), bytes, advice);
  return reinterpret_cast<std::byte*>(whole);
}

class PlainSide : public Side {
 public:
  explicit PlainSide(std::unique_ptr<Workload> work) : work_(std::move(work)) {}
  ~PlainSide() override {
    if (data_ != nullptr) {
      (void)::munmap(data_, work_->bytes());
    }
  }
  Status begin() override {
    data_ = anonymous(work_->bytes(), MADV_HUGEPAGE);
    if (data_ == nullptr) {
      return fail(Code::unavailable, "no memory for plain memory");
    }
    work_->fill(data_);
    return run().ok() ? Status() : wrong_bytes("plain memory");
  }
  Result<Sample> run() override {
    const double value = work_->run(data_);
    return value > 0 ? Result<Sample>(Sample{value}) : wrong_bytes("plain memory");
  }
  Status finish() override { return work_->whole(data_) ? Status() : wrong_bytes("plain memory"); }

 private:
  const std::unique_ptr<Workload> work_;
  std::byte* data_ = nullptr;
};

/// A side in a child process: its use begins there.
SideChoice child_side(const Contest& contest, std::string name, std::string settings,
                      Provide provide) {
  const std::uint64_t limit = contest.dram + kSlack;
  std::string command = fmt::format("{}, in a cgroup of {} bytes", settings, limit);
  return {std::move(name), std::move(command),
          [limit, provide = std::move(provide), make = contest.make]() -> std::unique_ptr<Side> {
            return std::make_unique<ChildSide>(limit, provide, make);
          }};
}

/// A side that begins when it is first measured; the measuring code gets its failure.
struct Lazy {
  SideChoice choice;
  std::unique_ptr<Side> side;
  Result<Sample> run() {
    if (side == nullptr) {
      auto made = choice.make();
      if (Status begun = made->begin(); !begun.ok()) {
        return begun;
      }
      side = std::move(made);
    }
    return side->run();
  }
};

}  // namespace

SideChoice tiermem_side(const Contest& contest, const std::string& directory) {
  return {"tiermem", "", [&contest, directory]() -> std::unique_ptr<Side> {
            return std::make_unique<TiermemSide>(contest, directory);
          }};
}

std::vector<SideChoice> swap_sides(const Contest& contest, const std::string& how) {
  std::vector<SideChoice> sides;
  for (const auto& [advice, word] :
       {std::pair{MADV_NOHUGEPAGE, "small pages"}, std::pair{MADV_HUGEPAGE, "huge pages"}}) {
    sides.push_back(
        child_side(contest, fmt::format("{}, {}", how, word),
                   fmt::format("anonymous memory of {}, {} on the same disk", word, how),
                   [pages = advice](Workload& work) {
                     std::byte* const data = anonymous(work.bytes(), pages);
                     if (data != nullptr) {
                       work.fill(data);
                     }
                     return data;
                   }));
  }
  return sides;
}

SideChoice mmap_side(const Contest& contest, const std::string& directory, int advice,
                     const char* word) {
  return child_side(contest, fmt::format("mmap, {}", word),
                    fmt::format("MAP_SHARED of a file, madvise {}", word),
                    [directory, advice, only_reads = contest.reads_file](Workload& work) {
                      std::byte* data = nullptr;
                      if (filled_file(directory, work, &data) < 0) {
                        return static_cast<std::byte*>(nullptr);
                      }
                      if (only_reads && ::mprotect(data, work.bytes(), PROT_READ) != 0) {
                        return static_cast<std::byte*>(nullptr);
                      }
                      (void)::madvise(data, work.bytes(), advice);
                      return data;
                    });
}

SideChoice pager_side(const Contest& contest, const std::string& directory, unsigned handlers,
                      std::uint64_t block) {
  return child_side(
      contest, fmt::format("UFFDIO_COPY, {} handlers, {} KiB", handlers, block / 1024),
      fmt::format("{} threads answer faults by pread with O_DIRECT and UFFDIO_COPY of {} bytes",
                  handlers, block),
      [directory, handlers, block, dram = contest.dram](Workload& work) {
        std::byte* written = nullptr;
        const int fd = filled_file(directory, work, &written);
        if (fd < 0) {
          return static_cast<std::byte*>(nullptr);
        }
        (void)::munmap(written, work.bytes());
        return UserPager::start({fd, work.bytes(), dram, block, handlers});
      });
}

SideChoice plain_side(const Contest& contest) {
  return {"plain memory", "mmap, MADV_HUGEPAGE, no limit",
          [make = contest.make]() -> std::unique_ptr<Side> {
            return std::make_unique<PlainSide>(make());
          }};
}

Status compare_sides(Session& session, const Contest& contest, std::vector<SideChoice> peers) {
  std::map<std::string, Lazy> sides;  // By name; the elements do not move.
  std::vector<Peer> candidates;
  for (SideChoice& peer : peers) {
    Lazy& lazy = sides[peer.name];
    candidates.push_back({peer.name, peer.command, [&lazy] { return lazy.run(); }});
    lazy.choice = std::move(peer);
  }
  auto best = best_of(session, contest.name, contest.better, contest.rounds, std::move(candidates),
                      contest.unit);
  if (!best.ok()) {
    session.skip(contest.name, best.status().message());
    return {};
  }
  std::erase_if(sides, [&](const auto& side) { return side.first != best->name; });
  // Only now: the peers' processes are forks of this one, and must begin without a context.
  Lazy ours{tiermem_side(contest, session.settings().directory), nullptr};
  session.tell(fmt::format("{}: writing the buffer", contest.name));
  Status status = session.compare(
      contest.name, contest.unit, contest.better, contest.bar, [&] { return ours.run(); }, *best);
  if (status.ok()) {
    session.tell(fmt::format("{}: all bytes are checked", contest.name));
    status = ours.side->finish();
  }
  Side& peer = *sides.begin()->second.side;
  status = status.ok() ? peer.finish() : std::move(status);
  if (peer.begun_again() != 0) {
    session.note(fmt::format(
        "{}: the peer ({}) ended {} times, for want of memory as it seems, and was begun again",
        contest.name, best->name, peer.begun_again()));
  }
  if (status.code() == Code::unavailable) {
    session.skip(contest.name, status.message());
    return {};
  }
  return status;
}

Status beside_swap(Session& session, const Contest& contest, std::vector<SideChoice> peers) {
  // Each tried peer has a part of its bytes there.
  auto swap = Swap::on(session.settings().directory,
                       contest.make()->bytes() * (swap_sides(contest).size() + 1));
  if (!swap.ok()) {
    session.skip(contest.name, swap.status().message());
    return {};
  }
  return compare_sides(session, contest, std::move(peers));
}

Status beside_zswap(Session& session, const Contest& contest) {
  auto zswap = Zswap::on();
  if (!zswap.ok()) {
    session.skip(contest.name, zswap.status().message());
    return {};
  }
  Contest both = contest;
  both.compressed = contest.dram / 2;
  const std::string how = fmt::format("zswap ({}) before swap", (*zswap)->compressor());
  return beside_swap(session, both, swap_sides(both, how));
}

}  // namespace tiermem::bench
