// One failure, once or from some point on, at any place. Goal: for every n, a run in which the n-th
// call of a system call fails ends with right bytes or with an error message, and leaves nothing
// behind: no descriptor, pin, slot or buffer. If the call failed only once, the next context of the
// same process works. Method: nth_call.hpp. The run allocates, writes more than memory holds,
// evicts, reads, touches a mapped buffer, adopts a file, frees and closes. A failed allocation is
// simulated by refused memory, because the library has its own memory from mmap and uses no malloc.
// Two threads run rows and operations at once, and the process forks in the middle.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "fault/nth_call.hpp"
#include "support/pattern.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kFileBytes = 2 * kMiB + 4096 + 8;

/// Returns the number of open descriptors, except /proc/self/pagemap: the library keeps one for the
/// process.
std::size_t open_descriptors() {
  std::size_t n = 0;
  for (int fd = 0; fd < 1024; ++fd) {  // Opens nothing, because an open might fail.
    char link[64], target[256];
    std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t length = ::readlink(link, target, sizeof(target));
    const std::string_view text(target, length < 0 ? 0 : static_cast<std::size_t>(length));
    n += length > 0 && !text.ends_with("/pagemap") ? 1 : 0;
  }
  return n;
}

bool g_for_good = false;  // In the child: the memory for messages may be refused too.

/// Returns true if there is no error. An error must have a message.
bool fine(const Status& status) {
  if (!status.ok() && (!g_for_good || status.info() != nullptr)) {
    EXPECT_NE(status.info(), nullptr) << code_name(status.code());
    EXPECT_GT(std::strlen(status.message()), 10u) << code_name(status.code());
  }
  return status.ok();
}

sigjmp_buf g_back;

/// Returns whether all words are those of `seed`. A touch that cannot be served raises SIGBUS.
bool touched_right(std::span<std::uint64_t> words, std::uint64_t seed) {
  return sigsetjmp(g_back, 1) != 0 || wrong(words, seed) == 0;
}

class SweepRun {
 public:
  SweepRun(std::string directory, std::string options)
      : directory_(std::move(directory)), options_(std::move(options)) {}

  /// Does everything once. Returns true if nothing was refused.
  bool run() {
    auto context = Context::create("dram=4M; nvme=" + directory_ + ":32M; workers=1" + options_);
    if (!fine(context.status())) {
      return false;
    }
    bool all = large(**context);
    all = small(**context) && all;
    all = mapped(**context) && all;
    all = adopted(**context) && all;
    all = rows(**context) && all;
    forked(**context);
    EXPECT_TRUE(eventually([&] {
      const Stats stats = (*context)->stats();
      return stats.buffers == 0 && stats.dram_pinned == 0 && stats.block_used == 0;
    })) << "buffers, pins or slots are left";
    return fine((*context)->close(false, Timeout::seconds(20))) && all;
  }

 private:
  /// More than memory holds: written bytes are read back, or the call is refused.
  bool large(Context& context) {
    auto buffer = context.alloc(8 * kMiB);
    if (!fine(buffer.status())) {
      return false;
    }
    bool all = true;
    std::vector<bool> written;
    for (std::uint64_t at = 0; at < buffer->size(); at += kChunk) {
      auto view = buffer->acquire(kDiscard, at, kChunk, Timeout::seconds(20));
      written.push_back(fine(view.status()));
      if (written.back()) {
        fill(view->as<std::uint64_t>(), 1, at / 8);
      }
    }
    all = fine(buffer->evict()) && all;
    for (std::uint64_t at = 0; at < buffer->size(); at += kChunk) {
      all = all && written[at / kChunk];
      if (!written[at / kChunk]) {
        continue;
      }
      auto view = buffer->acquire(kRead, at, kChunk, Timeout::seconds(20));
      if (fine(view.status())) {
        EXPECT_EQ(wrong(view->as<std::uint64_t>(), 1, at / 8), 0u) << "at " << at;
      } else {
        all = false;
      }
    }
    return all;
  }

  bool small(Context& context) {
    bool all = true;
    for (std::uint64_t i = 0; i < 8; ++i) {
      auto buffer = context.alloc(64 << 10);
      std::vector<std::uint64_t> words((64 << 10) / 8);
      fill(words, 100 + i);
      if (!fine(buffer.status()) || !fine(buffer->write(0, words.data(), 64 << 10))) {
        all = false;
        continue;
      }
      (void)fine(buffer->evict());
      std::vector<std::uint64_t> read(words.size());
      if (fine(buffer->read(0, read.data(), 64 << 10))) {
        EXPECT_EQ(read, words);
      } else {
        all = false;
      }
    }
    return all;
  }

  bool mapped(Context& context) {
    auto buffer = context.alloc(2 * kMiB, {.flags = kMapped});
    if (!fine(buffer.status())) {
      return buffer.code() == Code::unsupported;
    }
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = [](int) { siglongjmp(g_back, 1); };
    sigaction(SIGBUS, &action, &before);
    const std::span<std::uint64_t> words{reinterpret_cast<std::uint64_t*>(*buffer->address()),
                                         2 * kMiB / 8};
    volatile bool filled = false;
    if (sigsetjmp(g_back, 1) == 0) {
      fill(words, 2);
      filled = true;
    }
    bool all = filled && fine(buffer->evict());
    if (filled) {
      EXPECT_TRUE(touched_right(words, 2));
    }
    sigaction(SIGBUS, &before, nullptr);
    return all;
  }

  bool adopted(Context& context) {
    auto file = context.adopt_file((directory_ + "/file").c_str());
    if (!fine(file.status())) {
      return false;
    }
    std::vector<std::uint64_t> read(kFileBytes / 8);
    if (!fine(file->read(0, read.data(), kFileBytes))) {
      return false;
    }
    EXPECT_EQ(wrong(read, 3), 0u);
    return true;
  }

  /// Gather, scatter and operations by two threads, each with its own rows.
  bool rows(Context& context) {
    auto table = context.alloc(kRowsBytes, {.advice = Advice::random});
    auto target = context.alloc(kRowsBytes);
    std::vector<std::uint64_t> words(kRowsBytes / 8);
    fill(words, 4);
    if (!fine(table.status()) || !fine(target.status()) ||
        !fine(table->write(0, words.data(), kRowsBytes)) || !fine(table->evict())) {
      return false;
    }
    std::atomic<bool> all{true};
    // By the main thread: malloc gives another one memory by mmap, which may be refused.
    std::array<HalfOfRows, 2> halves = {HalfOfRows(0), HalfOfRows(1)};
    const auto work = [&](std::uint64_t from) {
      const bool mine = half_of_rows(context, *table, *target, from, halves[from]);
      all = mine && all;
    };
    std::thread other;
    try {
      other = std::thread(work, 1);
    } catch (const std::system_error&) {
      all = false;
    }
    work(0);
    if (other.joinable()) {
      other.join();
    }
    std::vector<std::uint64_t> after(words.size());
    if (!fine(table->read(0, after.data(), kRowsBytes))) {
      return false;
    }
    EXPECT_EQ(after, words) << "a row was scattered to where another is";
    return all;
  }

  struct HalfOfRows {
    explicit HalfOfRows(std::uint64_t from) {
      for (std::uint64_t row = from; row < kRowsBytes / kRowBytes; row += 2) {
        index.push_back(row);
      }
      words.resize(index.size() * kRowBytes / 8);
    }
    std::vector<std::uint64_t> index, words;
  };

  static bool half_of_rows(Context& context, const Buffer& table, const Buffer& target,
                           std::uint64_t from, HalfOfRows& half) {
    const std::vector<std::uint64_t>& index = half.index;
    std::vector<std::uint64_t>& words = half.words;
    const Rows rows = table.rows(kRowBytes, index);
    const auto right = [&](const Status& status) {
      for (std::size_t i = 0; status.ok() && i < index.size(); ++i) {
        EXPECT_EQ(wrong({&words[i * kRowBytes / 8], kRowBytes / 8}, 4, index[i] * kRowBytes / 8),
                  0u);
      }
      return fine(status);
    };
    const auto ended = [](Status begun, Op& op) {
      return begun.ok() ? op.wait(Timeout::seconds(20)) : std::move(begun);
    };
    bool all = right(context.gather(rows, words.data(), Timeout::seconds(20)));
    const bool has_rows = all;
    {
      Op op;
      all = right(ended(context.gather(rows, words.data(), Timeout::seconds(20), &op), op)) && all;
    }
    all = fine(context.gather_into(rows, target.handle(), from * kRowsBytes / 2,
                                   Timeout::seconds(20))) &&
          all;
    if (has_rows) {
      Op op;
      all = fine(ended(context.scatter(rows, words.data(), Timeout::seconds(20), &op), op)) && all;
    }
    const Access range = table.range(0, 64 << 10);
    ViewRecord view;
    auto op = context.acquire_async({&range, 1}, {&view, 1});
    Status status = op.ok() ? op->wait(Timeout::seconds(20)) : op.status().clone();
    all = fine(status) && (!status.ok() || fine(context.release({&view, 1}))) && all;
    Op prefetch;
    return fine(ended(context.prefetch({&range, 1}, 0, &prefetch), prefetch)) && all;
  }

  /// A child of fork has no context of its parent, and ends.
  static void forked(Context& context) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool ended = context.alloc(4096).code() == Code::shut_down;
      ::_exit(ended ? 0 : 1);
    }
    int status = 0;
    if (child > 0) {
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
  }

  static constexpr std::uint64_t kRowsBytes = 256 << 10;
  static constexpr std::uint64_t kRowBytes = 512;
  const std::string directory_, options_;
};

struct Swept {
  const char* name;
  long number;
  int error;
  const char* options = "";
  bool for_good = false;
};

constexpr const char* kThreads = "; io_engine=threads";

class Sweep : public ::testing::TestWithParam<Swept> {};

TEST_P(Sweep, a_call_that_fails_costs_an_error_in_words_at_most) {
  const Swept& swept = GetParam();
  const Directory directory;
  std::vector<std::uint64_t> words(kFileBytes / 8);
  fill(words, 3);
  std::ofstream(directory.path() + "/file", std::ios::binary)
      .write(reinterpret_cast<const char*>(words.data()), kFileBytes);
  // Tries each of the first calls and then fewer, because the later ones are very similar.
  unsigned runs = 0;
  for (unsigned nth = 1;; nth += 1 + nth / 16) {
    const NthCall call{swept.number, swept.error, nth, swept.for_good};
    const NthCallEnd end = in_child_with(call, [&] {
      g_for_good = swept.for_good;
      const std::size_t before = open_descriptors();
      (void)SweepRun(directory.path(), swept.options).run();
      EXPECT_EQ(open_descriptors(), before) << "descriptors are left open";
      if (nth % 4 == 1 && !swept.for_good) {
        EXPECT_TRUE(SweepRun(directory.path(), swept.options).run())
            << "the next context is not whole";
        EXPECT_EQ(open_descriptors(), before);
      }
      return ChildEnd();
    });
    SKIP_IF(end.skip);
    ++runs;
    if (!end.failed_one || HasFailure()) {
      break;
    }
  }
  if (runs == 1) {
    GTEST_SKIP() << "never called here";
  }
  std::printf("%u runs\n", runs);
}

INSTANTIATE_TEST_SUITE_P(
    SystemCalls, Sweep,
    testing::Values(
        Swept{"mmap", SYS_mmap, ENOMEM}, Swept{"mremap", SYS_mremap, ENOMEM, "; mechanism=remap"},
        Swept{"mprotect", SYS_mprotect, ENOMEM}, Swept{"madvise", SYS_madvise, ENOMEM},
        Swept{"ioctl", SYS_ioctl, ENOMEM}, Swept{"userfaultfd", SYS_userfaultfd, EPERM},
        Swept{"openat", SYS_openat, EMFILE}, Swept{"fallocate", SYS_fallocate, ENOSPC},
        Swept{"fstatfs", SYS_fstatfs, EIO}, Swept{"eventfd2", SYS_eventfd2, EMFILE},
        Swept{"eventfd2_threads", SYS_eventfd2, EMFILE, kThreads},
        Swept{"clone3", SYS_clone3, EAGAIN}, Swept{"io_uring_setup", SYS_io_uring_setup, ENOMEM},
        Swept{"io_uring_register", SYS_io_uring_register, ENOMEM},
        Swept{"io_uring_enter", SYS_io_uring_enter, EAGAIN},
        Swept{"mmap_for_good", SYS_mmap, ENOMEM, "", true},
        Swept{"mremap_for_good", SYS_mremap, ENOMEM, "; mechanism=remap", true},
        Swept{"preadv", SYS_preadv, EIO, kThreads}, Swept{"pwritev", SYS_pwritev, EIO, kThreads}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace tiermem::test
