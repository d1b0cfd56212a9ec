// Fault L7: handles, view tokens and operations did not identify their context, so another context
// accepted them as its own. Here each call of the C++ and of the C interface gets those of another
// context.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/pattern.hpp"
#include "tiermem.h"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

// Two contexts with the same history: without a tag all their handles, tokens and operations are
// equal.
struct TwoContexts {
  static constexpr std::uint64_t kBytes = 1 << 20;
  struct One {
    std::unique_ptr<Context> context;
    Buffer plain;
  };

  TwoContexts() {
    for (One* one : {&ours, &theirs}) {
      one->context = make_context("dram=32M; nvme=" + directory.path() + ":64M");
      one->plain = make_buffer(*one->context, kBytes, "plain");
      const std::vector<std::byte> bytes(kBytes, one == &ours ? std::byte{1} : std::byte{2});
      EXPECT_TRUE(one->plain.write(0, bytes.data(), kBytes).ok());
    }
  }
  Directory directory;
  One ours, theirs;
};

void expect_foreign(Code want, const char* call, const Status& status) {
  EXPECT_EQ(status.code(), want) << call << ": " << status.message();
  EXPECT_NE(std::string(status.message()).find("another context"), std::string::npos)
      << call << ": " << status.message();
}

TEST(FaultsFound, L07_buffer_of_another_context_is_refused_by_every_call) {
  TwoContexts two;
  Context& here = *two.ours.context;
  const Handle foreign = two.theirs.plain.handle();
  const Access access{foreign, 0, 4096, kRead, {}, 0};
  ViewRecord view;
  std::vector<std::byte> bytes(TwoContexts::kBytes);
  const std::uint64_t rows[] = {0, 1, 2};
  const Rows from_foreign{foreign, 0, 64, 0, rows, 3};
  const Rows from_ours{two.ours.plain.handle(), 0, 64, 0, rows, 3};
  Op op;
  const auto at_end = [](Result<Op> begun) {
    return begun.ok() ? begun->wait() : std::move(begun).status();
  };
  CopyItem item{foreign, 0, bytes.data(), 64, kRead, Code::ok};
  const std::pair<const char*, std::function<Status()>> calls[] = {
      {"acquire",
       [&] {
         return here.acquire({&access, 1}, Timeout::forever(), {&view, 1});
       }},
      {"acquire_async",
       [&] {
         return at_end(here.acquire_async({&access, 1}, {&view, 1}));
       }},
      {"prefetch",
       [&] {
         return here.prefetch({&access, 1});
       }},
      {"prefetch op",
       [&] {
         return here.prefetch({&access, 1}, 0, &op);
       }},
      {"evict",
       [&] {
         return here.evict({&access, 1});
       }},
      {"migrate dram",
       [&] {
         return here.migrate({&access, 1}, {Kind::dram, 0});
       }},
      {"migrate block",
       [&] {
         return here.migrate({&access, 1}, {Kind::block, 0});
       }},
      {"advise cold",
       [&] {
         return here.advise({&access, 1}, Advice::cold);
       }},
      {"advise will_need",
       [&] {
         return here.advise({&access, 1}, Advice::will_need);
       }},
      {"advise dont_need",
       [&] {
         return here.advise({&access, 1}, Advice::dont_need);
       }},
      {"advise frozen",
       [&] {
         return here.advise({&access, 1}, Advice::frozen);
       }},
      {"read", [&] { return here.read(foreign, 0, bytes.data(), 64); }},
      {"write", [&] { return here.write(foreign, 0, bytes.data(), 64); }},
      {"copy", [&] { return here.copy({&item, 1}); }},
      {"copy without promoting", [&] { return here.copy({&item, 1}, kNoPromote); }},
      {"gather", [&] { return here.gather(from_foreign, bytes.data()); }},
      {"gather op",
       [&] { return here.gather(from_foreign, bytes.data(), Timeout::forever(), &op); }},
      {"gather_into from", [&] { return here.gather_into(from_foreign, two.ours.plain.handle()); }},
      {"gather_into to", [&] { return here.gather_into(from_ours, foreign); }},
      {"scatter", [&] { return here.scatter(from_foreign, bytes.data()); }},
      {"move_bytes to",
       [&] {
         return here.move_bytes(two.theirs.plain.handle(), 0, two.ours.plain.handle(), 0, 4096);
       }},
      {"move_bytes from",
       [&] {
         return here.move_bytes(two.ours.plain.handle(), 0, two.theirs.plain.handle(), 0, 4096);
       }},
      {"address", [&] { return here.address(foreign).status().clone(); }},
      {"info", [&] { return here.info(foreign).status().clone(); }},
      {"why", [&] { return here.why(foreign, 0).status().clone(); }},
      {"free", [&] { return here.free(foreign); }},
  };
  for (const auto& [name, call] : calls) {
    expect_foreign(Code::stale_handle, name, call());
  }
  EXPECT_FALSE(here.hit(access, view));
  // Neither context has changed.
  ASSERT_TRUE(two.theirs.plain.read(0, bytes.data(), TwoContexts::kBytes).ok());
  EXPECT_EQ(bytes, std::vector<std::byte>(TwoContexts::kBytes, std::byte{2}));
  ASSERT_TRUE(two.ours.plain.read(0, bytes.data(), TwoContexts::kBytes).ok());
  EXPECT_EQ(bytes, std::vector<std::byte>(TwoContexts::kBytes, std::byte{1}));
}

TEST(FaultsFound, L07_view_of_another_context_is_refused_and_stays_held) {
  TwoContexts two;
  ViewRecord theirs, ours;
  const Access there = two.theirs.plain.range(), here = two.ours.plain.range();
  ASSERT_TRUE(two.theirs.context->acquire({&there, 1}, Timeout::forever(), {&theirs, 1}).ok());
  ASSERT_TRUE(two.ours.context->acquire({&here, 1}, Timeout::forever(), {&ours, 1}).ok());
  expect_foreign(Code::invalid_argument, "release", two.ours.context->release({&theirs, 1}));
  EXPECT_FALSE(two.ours.context->end_view(theirs));
  const ViewRecord both[] = {theirs, theirs};
  expect_foreign(Code::invalid_argument, "release of two", two.ours.context->release(both));
  EXPECT_GT(two.ours.context->stats().dram_pinned, 0u);
  EXPECT_GT(two.theirs.context->stats().dram_pinned, 0u);
  EXPECT_TRUE(two.ours.context->release({&ours, 1}).ok());
  EXPECT_TRUE(two.theirs.context->release({&theirs, 1}).ok());
}

TEST(FaultsFound, L07_operation_of_another_context_is_refused_by_every_call) {
  TwoContexts two;
  Op theirs, ours;
  const Access there = two.theirs.plain.range(), here = two.ours.plain.range();
  ASSERT_TRUE(two.theirs.context->prefetch({&there, 1}, 0, &theirs).ok());
  ASSERT_TRUE(two.ours.context->prefetch({&here, 1}, 0, &ours).ok());
  Context& context = *two.ours.context;
  const OpHandle foreign = theirs.handle();
  expect_foreign(Code::invalid_argument, "wait", context.op_wait(foreign, Timeout::forever()));
  expect_foreign(Code::invalid_argument, "poll", context.op_poll(foreign));
  expect_foreign(Code::invalid_argument, "fd", context.op_fd(foreign).status());
  expect_foreign(Code::invalid_argument, "cancel", context.op_cancel(foreign));
  EXPECT_TRUE(ours.wait().ok());
  EXPECT_TRUE(theirs.wait().ok());
}

TEST(FaultsFound, L07_pointer_of_another_contexts_malloc_is_refused) {
  TwoContexts two;
  auto block = two.theirs.context->malloc_at({Kind::dram, 0}, 100);
  auto own = two.ours.context->malloc_at({Kind::dram, 0}, 100);
  ASSERT_TRUE(block.ok() && own.ok());
  EXPECT_EQ(two.ours.context->free_ptr(*block).code(), Code::invalid_argument);
  EXPECT_EQ(two.ours.context->usable_size(*block).code(), Code::invalid_argument);
  EXPECT_TRUE(two.theirs.context->free_ptr(*block).ok());
  EXPECT_TRUE(two.ours.context->free_ptr(*own).ok());
}

TEST(FaultsFound, L07_c_calls_refuse_what_belongs_to_another_context) {
  const Directory directory;
  const std::string spec = "dram=16M; nvme=" + directory.path() + ":64M";
  tm_context *here = nullptr, *there = nullptr;
  ASSERT_EQ(tm_context_create(spec.c_str(), nullptr, &here), TM_OK);
  ASSERT_EQ(tm_context_create(spec.c_str(), nullptr, &there), TM_OK);
  tm_buffer ours = 0, theirs = 0;
  ASSERT_EQ(tm_alloc(here, 65536, nullptr, &ours), TM_OK);
  ASSERT_EQ(tm_alloc(there, 65536, nullptr, &theirs), TM_OK);
  EXPECT_NE(ours, theirs);
  const tm_access access{theirs, 0, 0, TM_READ, {0, 0}, 0};
  tm_view view{}, held{};
  const auto says = [](tm_status got, tm_status want, const char* call) {
    EXPECT_EQ(got, want) << call;
    tm_error_info info{};
    info.size = sizeof info;
    EXPECT_EQ(tm_error(nullptr, 0, &info), TM_OK);
    EXPECT_NE(std::strstr(info.text, "another context"), nullptr) << call << ": " << info.text;
  };
  char byte = 0;
  const std::uint64_t row = 0;
  const tm_rows rows{theirs, 0, 64, 0, &row, 1};
  char room[64];
  tm_op op = 0, foreign = 0;
  void* address = nullptr;
  tm_residency residency{};
  residency.size = sizeof residency;
  tm_whereabouts where{};
  where.size = sizeof where;
  says(tm_acquire(here, &access, 1, TM_HOST_ORDER, -1, &view), TM_STALE_HANDLE, "acquire");
  says(tm_acquire_async(here, &access, 1, TM_HOST_ORDER, &view, &op), TM_STALE_HANDLE, "async");
  says(tm_prefetch(here, &access, 1, 0, nullptr), TM_STALE_HANDLE, "prefetch");
  says(tm_evict(here, &access, 1, -1), TM_STALE_HANDLE, "evict");
  says(tm_migrate(here, &access, 1, {TM_DRAM, 0}, -1), TM_STALE_HANDLE, "migrate");
  says(tm_advise(here, &access, 1, TM_COLD, 0), TM_STALE_HANDLE, "advise");
  says(tm_read(here, theirs, 0, &byte, 1, -1), TM_STALE_HANDLE, "read");
  says(tm_write(here, theirs, 0, &byte, 1, -1), TM_STALE_HANDLE, "write");
  tm_copy_item item{theirs, 0, &byte, 1, TM_WRITE, TM_OK};
  says(tm_copy(here, &item, 1, 0, -1, nullptr), TM_STALE_HANDLE, "copy");
  EXPECT_EQ(item.status, TM_STALE_HANDLE);
  says(tm_gather(here, &rows, room, -1, nullptr), TM_STALE_HANDLE, "gather");
  says(tm_gather_into(here, &rows, ours, 0, -1, nullptr), TM_STALE_HANDLE, "gather_into");
  says(tm_scatter(here, &rows, room, -1, nullptr), TM_STALE_HANDLE, "scatter");
  says(tm_address(here, theirs, &address), TM_STALE_HANDLE, "address");
  says(tm_buffer_info(here, theirs, &residency), TM_STALE_HANDLE, "buffer_info");
  says(tm_why(here, theirs, 0, &where), TM_STALE_HANDLE, "why");
  says(tm_free(here, theirs), TM_STALE_HANDLE, "free");
  ASSERT_EQ(tm_acquire(there, &access, 1, TM_HOST_ORDER, -1, &held), TM_OK);
  says(tm_release(here, &held, 1, TM_HOST_ORDER), TM_INVALID_ARGUMENT, "release");
  ASSERT_EQ(tm_release(there, &held, 1, TM_HOST_ORDER), TM_OK);
  ASSERT_EQ(tm_prefetch(there, &access, 1, 0, &foreign), TM_OK);
  int fd = -1;
  tm_error_info info{};
  info.size = sizeof info;
  says(tm_op_poll(here, foreign), TM_INVALID_ARGUMENT, "op_poll");
  says(tm_op_wait(here, &foreign, 1, -1), TM_INVALID_ARGUMENT, "op_wait");
  says(tm_op_fd(here, foreign, &fd), TM_INVALID_ARGUMENT, "op_fd");
  says(tm_op_cancel(here, foreign), TM_INVALID_ARGUMENT, "op_cancel");
  EXPECT_EQ(tm_error(here, foreign, &info), TM_INVALID_ARGUMENT);
  EXPECT_EQ(tm_op_wait(there, &foreign, 1, -1), TM_OK);
  EXPECT_EQ(tm_context_destroy(here, 0, -1), TM_OK);
  EXPECT_EQ(tm_context_destroy(there, 0, -1), TM_OK);
}

// The next context may get the memory, the records and the slots of the previous one.
TEST(FaultsFound, L07_handle_of_an_ended_context_is_refused_by_the_next) {
  Handle before = 0;
  ViewRecord view;
  for (int i = 0; i < 20; ++i) {
    auto context = make_context("dram=16M; nvme=off");
    ASSERT_NE(context, nullptr);
    auto buffer = context->alloc(4096);
    ASSERT_TRUE(buffer.ok());
    if (i > 0) {
      EXPECT_EQ(context->free(before).code(), Code::stale_handle);
      EXPECT_EQ(context->release({&view, 1}).code(), Code::invalid_argument);
    }
    const Access access = buffer->range();
    ASSERT_TRUE(context->acquire({&access, 1}, Timeout::forever(), {&view, 1}).ok());
    before = buffer->detach();
    EXPECT_TRUE(context->close(true).ok());
  }
}

}  // namespace
}  // namespace tiermem::test
