// Adopted files on devices that misbehave. Goal: every read ends once, with ok only if all its
// bytes were read, and never while a piece of it is in progress. Method: a scripted port breaks or
// shortens the first, second, nth request.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "file_tier_fixture.hpp"
#include "in_child.hpp"

namespace tiermem {
namespace {

using Answer = ScriptedIoPort::Answer;

class FileFaults : public FileTierTest {
 protected:
  static constexpr std::uint64_t kSize = 5 * kMiB + 1000;  // Pieces of 2, 2, 1 MiB and the rest.
  static constexpr std::uint64_t kRoom = 8 * kMiB;

  SlotCompletion run() {
    std::memset(bytes_.get(), 0xEE, kRoom);
    return read(adopted_.base, bytes_.get(), kRoom);
  }
  bool right() { return FileTierTest::right(bytes_.get(), 0, kRoom, kSize); }

  const std::string path_ = file("data", kSize);
  const FileTier::Adopted adopted_ = adopt(path_);
  const Bytes bytes_ = pattern(kRoom, 0);
};

TEST_F(FileFaults, a_short_read_is_resumed_wherever_it_ends) {
  for (const std::int64_t most : {1, 511, 512, 999, 4096, 4097, 1 << 20, (2 << 20) - 1}) {
    for (std::size_t nth = 0; nth < 4; ++nth) {
      const std::size_t begin = port_.log.size();
      port_.script = [&](std::size_t n, const IoRequest&) {
        return n == begin + nth ? Answer{0, most} : Answer{};
      };
      const SlotCompletion completion = run();
      ASSERT_EQ(completion.code, Code::ok) << most << " bytes of request " << nth;
      ASSERT_TRUE(right()) << most << " bytes of request " << nth;
      EXPECT_EQ(completion.retries, port_.log.size() - begin - 4);
    }
  }
}

TEST_F(FileFaults, interrupted_reads_are_made_again_but_not_for_ever) {
  for (const int error : {EINTR, EAGAIN}) {
    const std::size_t begin = port_.log.size();
    port_.script = [&](std::size_t n, const IoRequest&) {
      return Answer{n < begin + 10 ? error : 0};
    };
    const SlotCompletion completion = run();
    EXPECT_EQ(completion.code, Code::ok);
    EXPECT_EQ(completion.retries, 10U);
    EXPECT_TRUE(right());
    port_.script = [&](std::size_t, const IoRequest&) { return Answer{error}; };
    const SlotCompletion given_up = run();
    EXPECT_EQ(given_up.code, Code::io_error);
    EXPECT_EQ(given_up.native, error);
  }
}

TEST_F(FileFaults, an_error_on_any_piece_names_errno_file_and_offset) {
  for (const int error : {EIO, ENODATA, ENXIO, ECANCELED}) {
    for (const std::uint64_t broken : {std::uint64_t{0}, 2 * kMiB, 4 * kMiB, 5 * kMiB}) {
      port_.script = [&](std::size_t, const IoRequest& request) {
        return Answer{request.offset == broken ? error : 0};
      };
      const SlotCompletion completion = run();
      EXPECT_EQ(completion.code, Code::io_error);
      EXPECT_EQ(completion.native, error);
      EXPECT_EQ(completion.device_offset, broken);
      EXPECT_EQ(tier_.device_name(completion.device), path_);
    }
  }
  port_.script = nullptr;
  EXPECT_EQ(run().code, Code::ok) << "the tier works on after errors";
  EXPECT_TRUE(right());
}

TEST_F(FileFaults, no_bytes_at_all_is_an_error_and_not_a_loop) {
  port_.script = [&](std::size_t n, const IoRequest&) { return n == 2 ? Answer{0, 0} : Answer{}; };
  const SlotCompletion completion = run();
  EXPECT_EQ(completion.code, Code::io_error);
  EXPECT_EQ(completion.native, EIO);
  EXPECT_EQ(completion.device_offset, 4 * kMiB);
}

TEST_F(FileFaults, direct_io_refused_by_a_read_is_made_through_the_page_cache) {
  port_.script = [&](std::size_t, const IoRequest& request) {
    return Answer{request.buffered ? 0 : EINVAL};
  };
  EXPECT_EQ(run().code, Code::ok);
  EXPECT_TRUE(right());
  port_.script = [](std::size_t, const IoRequest&) { return Answer{EINVAL}; };
  const SlotCompletion refused = run();
  EXPECT_EQ(refused.code, Code::io_error);
  EXPECT_EQ(refused.native, EINVAL);
}

// The second descriptor, for direct reads, exceeds the process's limit.
TEST_F(FileFaults, direct_io_refused_at_open_is_no_error) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer of types needs descriptors of its own (a pipe) at every check";
#endif
  EXPECT_TRUE(in_child([&] {
    const int next = ::dup(0);
    ::close(next);
    const auto limit = static_cast<rlim_t>(next) + 1;
    const rlimit one_more{limit, limit};
    ::setrlimit(RLIMIT_NOFILE, &one_more);
    const FileTier::Adopted adopted = adopt(path_);
    port_.log.clear();
    const bool ok = read(adopted.base, bytes_.get(), kRoom).code == Code::ok && right() &&
                    std::all_of(port_.log.begin(), port_.log.end(),
                                [](const IoRequest& request) { return request.buffered; });
    const auto none = tier_.adopt(path_.c_str(), 0, 0);
    return ok && none.code() == Code::io_error && none.status().info()->native == EMFILE &&
           says(none.message(), path_);
  }));
}

TEST_F(FileFaults, a_failed_read_waits_for_its_other_pieces) {
  port_.per_reap = 1;
  port_.script = [&](std::size_t n, const IoRequest&) { return Answer{n == 0 ? EIO : 0}; };
  EXPECT_EQ(run().native, EIO);
}

TEST_F(FileFaults, random_faults_in_random_order_never_report_bytes_that_were_not_read) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    port_.shuffle = &random;
    port_.capacity = 1 + random() % 6;
    port_.per_reap = 1 + random() % 4;
    std::uint64_t broken = 0;
    port_.script = [&](std::size_t, const IoRequest& request) {
      const Answer answer = random_fault(random, request.length, seed % 2 == 0);
      if (answer.error == EIO || answer.error == ENODATA) {
        broken |= std::uint64_t{1} << request.offset / (64 * kKiB);
      }
      return answer;
    };
    // An extent of 64 KiB each, all in progress at once.
    constexpr std::uint64_t kExtent = 64 * kKiB;
    constexpr std::uint64_t kReads = 40;
    const Bytes all = pattern(kReads * kExtent, 0);
    for (std::uint64_t i = 0; i < kReads; ++i) {
      tier_.submit({.cookie = i,
                    .slot = slot_at(adopted_.base, i * kExtent),
                    .data = all.get() + i * kExtent,
                    .length = kExtent});
    }
    std::vector<int> ended(kReads, 0);
    for (std::uint64_t left = kReads; left > 0; --left) {
      const SlotCompletion completion = reap_one(tier_);
      const std::uint64_t i = completion.cookie;
      ASSERT_LT(i, kReads);
      ++ended[i];
      ASSERT_EQ(completion.code == Code::ok, (broken >> i & 1) == 0);
      if (completion.code == Code::ok) {
        ASSERT_TRUE(FileTierTest::right(all.get() + i * kExtent, i * kExtent, kExtent, kSize));
      }
    }
    EXPECT_EQ(ended, std::vector<int>(kReads, 1));
    EXPECT_EQ(port_.in_flight, 0U);
  }
}

}  // namespace
}  // namespace tiermem
