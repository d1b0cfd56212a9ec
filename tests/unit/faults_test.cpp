// Touches that are served while their buffer changes: it is freed, its pages come another way, or
// it does not exist. The test takes the mover's place. Goal: no toucher waits for ever. A toucher
// that is woken touches again, which is another fault.
#include "runtime/faults.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "dram_fixture.hpp"
#include "residency/residency.hpp"
#include "toucher.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kExtent = 64 * kKiB;
constexpr std::uint8_t kShift = 16;
constexpr int kSoon = 10'000;  // Milliseconds.

class FaultsTest : public testing::Test, protected MovedFrame {
 protected:
  FaultsTest() : MovedFrame(Mechanism::uffd_move, kExtent, true) {}
  void SetUp() override {
    if (!why_not.empty()) {
      GTEST_SKIP() << why_not;
    }
    faults_.attach(*space, 0);
    BufferShape shape;
    shape.bytes = 2 * kExtent;
    shape.extent_shift = kShift;
    shape.extents = 2;
    shape.window = window;
    const auto made = residency_.buffers.create(shape);
    ASSERT_TRUE(made.ok()) << made.message();
    buffer_ = *made;
    for (ExtentRef i = 0; i < 2; ++i) {
      residency_.extents.begin(record().first.load() + i, Buffers::index_of(buffer_), false);
    }
  }

  BufferRecord& record() { return residency_.buffers.at(Buffers::index_of(buffer_)); }
  ExtentWord& word() { return residency_.extents.word(kHost, record().first.load()); }
  std::byte* page() const { return window + 5 * host::kPage; }
  void is_mapped() { faults_.add(buffer_, window, 2, kShift); }
  void is_freed() { ASSERT_TRUE(residency_.buffers.mark_freed(buffer_)); }

  /// Serves one touch that has arrived.
  void serve_one() {
    pollfd ready{space->fault_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, kSoon), 1) << "the toucher was not woken";
    faults_.serve_waiting(1);
  }
  /// Expects that the woken toucher touches again, and continues with zeros.
  void expect_another_touch(const Toucher& toucher) {
    Fault fault;
    ASSERT_TRUE(space->next_fault(kSoon, fault)) << "the toucher was not woken";
    EXPECT_EQ(fault.address - page(), 0);
    EXPECT_TRUE(toucher.waits());
    space->fill_hole(page());
    EXPECT_TRUE(toucher.goes_on());
  }
  /// Answers in the mover's place.
  void answer(Status status = {}) {
    ASSERT_EQ(posted_.size(), 1u);
    Request& request = *posted_.back();
    posted_.clear();
    request.status = std::move(status);
    request.on_done(request);
  }

  Residency residency_{8, 64, 1};
  Handle buffer_ = 0;
  std::vector<Request*> posted_;
  Faults faults_{
      residency_,
      [](void* of, Request& request) { static_cast<FaultsTest*>(of)->posted_.push_back(&request); },
      this, [] { return std::int64_t{7}; }};
};

TEST_F(FaultsTest, buffer_is_freed_before_its_touch_is_served_then_it_touches_again) {
  is_mapped();
  is_freed();
  const Toucher toucher(page());
  serve_one();
  EXPECT_TRUE(posted_.empty());
  EXPECT_EQ(faults_.served(), 1u);
  EXPECT_EQ(faults_.waiting(), 0u);
  expect_another_touch(toucher);
}

TEST_F(FaultsTest, buffer_is_freed_before_its_touch_is_answered_then_it_touches_again) {
  is_mapped();
  const Toucher toucher(page());
  serve_one();
  EXPECT_EQ(faults_.waiting(), 1u);
  is_freed();
  answer(fail(Code::io_error, "of another life"));
  EXPECT_EQ(faults_.waiting(), 0u);
  EXPECT_EQ(faults_.poisoned(), 0u) << "an error of the freed buffer is none of the next";
  expect_another_touch(toucher);
}

TEST_F(FaultsTest, extent_comes_and_its_page_is_absent_then_it_touches_again) {
  is_mapped();
  const Toucher toucher(page());
  serve_one();
  EXPECT_EQ(posted_.back()->kind, RequestKind::acquire);
  EXPECT_EQ(posted_.back()->views, nullptr);
  EXPECT_TRUE(posted_.back()->in_parts);
  EXPECT_EQ(posted_.back()->page, 5);
  answer();
  expect_another_touch(toucher);
}

TEST_F(FaultsTest, extent_was_there_and_its_page_is_absent_then_it_gets_zeros) {
  is_mapped();
  word().set_phase(Phase::incoming);
  word().set_phase(Phase::exclusive);
  const Toucher toucher(page());
  serve_one();
  answer();
  EXPECT_TRUE(toucher.goes_on());
  word().set_phase(Phase::outgoing);
}

TEST_F(FaultsTest, error_is_a_bus_error_and_is_told) {
  static std::string why;
  faults_.on_refusal([](const char* text) { why = text; });
  is_mapped();
  const Toucher toucher(page());
  serve_one();
  answer(fail(Code::io_error, "as the test says"));
  EXPECT_TRUE(toucher.gets_bus_error());
  EXPECT_EQ(faults_.poisoned(), 1u);
  EXPECT_EQ(why, "as the test says");
}

TEST_F(FaultsTest, error_comes_after_the_page_then_the_toucher_goes_on) {
  is_mapped();
  const Toucher toucher(page());
  serve_one();
  std::vector<std::byte> bytes(2 * host::kPage);
  const auto at = reinterpret_cast<std::uint64_t>(bytes.data());
  ASSERT_EQ(
      bring_silently(*space, page(), bytes.data() + (host::kPage - at % host::kPage) % host::kPage),
      0);
  answer(fail(Code::io_error, "as the test says"));
  EXPECT_TRUE(toucher.goes_on());
  EXPECT_EQ(faults_.poisoned(), 0u);
}

TEST_F(FaultsTest, buffer_without_faults_has_come_meanwhile_then_it_touches_again) {
  word().set_phase(Phase::incoming);
  word().set_phase(Phase::exclusive);
  const Toucher toucher(page());
  serve_one();
  EXPECT_EQ(faults_.poisoned(), 0u);
  expect_another_touch(toucher);
  word().set_phase(Phase::outgoing);
}

TEST_F(FaultsTest, absent_bytes_without_a_view_are_a_bus_error) {
  const Toucher toucher(page());
  serve_one();
  EXPECT_TRUE(toucher.gets_bus_error());
  EXPECT_EQ(faults_.poisoned(), 1u);
  EXPECT_EQ(faults_.served(), 0u) << "it is not a touch of a mapped buffer";
}

// A thread stores to a view of an adopted file. The buffer is freed before the store is served.
TEST_F(FaultsTest, read_only_extent_has_left_then_the_store_is_made_again) {
  const auto reserved = space->reserve_read_only_window(kExtent, kExtent, false);
  ASSERT_TRUE(reserved.ok()) << reserved.message();
  std::byte* const at = *reserved;
  Mechanism used{};
  ASSERT_TRUE(space->map(frame, at, used).ok());
  {
    const Toucher toucher(at + 5 * host::kPage);
    pollfd ready{space->fault_fd(), POLLIN, 0};
    if (::poll(&ready, 1, 1'000) == 0) {
      EXPECT_TRUE(toucher.goes_on()) << "no store is watched here";
      GTEST_SKIP() << "stores are not watched";
    }
    faults_.serve_waiting(1);
    Fault again;
    ASSERT_TRUE(space->next_fault(kSoon, again)) << "the store was not woken";
    EXPECT_TRUE(again.watched);
    EXPECT_TRUE(toucher.waits());
    space->allow_writes(at, kExtent);
    EXPECT_TRUE(toucher.goes_on());
  }
  EXPECT_TRUE(space->unmap(frame, at).ok());
}

TEST_F(FaultsTest, window_is_removed_then_its_touches_are_mistakes) {
  is_mapped();
  faults_.remove(window);
  const Toucher toucher(page());
  serve_one();
  EXPECT_TRUE(toucher.gets_bus_error());
  EXPECT_TRUE(posted_.empty());
}

}  // namespace
}  // namespace tiermem
