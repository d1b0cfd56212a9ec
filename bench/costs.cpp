// The costs of a context itself: the time to create one, its records for each extent, the memory of
// the process beside the budget, and the duration of a step of the mover. No peers, absolute bars.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "bench/core.hpp"
#include "bench/random_bytes.hpp"
#include "bench/working_set.hpp"
#include "os/host_facts.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kExtent = 2 * kMiB;

/// Resident bytes of the process.
Result<std::uint64_t> resident() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/self/statm", "re"),
                                                   std::fclose);
  unsigned long total = 0, pages = 0;
  if (file == nullptr || std::fscanf(file.get(), "%lu %lu", &total, &pages) != 2) {
    return fail(Code::unavailable, "/proc/self/statm cannot be read");
  }
  return std::uint64_t{pages} * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void add(Session& session, const char* name, const char* unit, double value, double bar) {
  Row row;
  row.name = name;
  row.unit = unit;
  row.value = value;
  row.value_bar = bar;
  session.add(std::move(row));
}

/// A context with a budget of 16 GiB, or half of the free memory.
Status start_up(Session& session) {
  const std::uint64_t left = probe_host_facts().memory_left().value_or(4 * kGiB);
  const std::string tiers = fmt::format("dram={}; nvme={}:64G", std::min(16 * kGiB, left / 2),
                                        session.settings().directory);
  std::vector<double> samples;
  for (unsigned i = 0; i < session.settings().pairs; ++i) {
    const double start = now_seconds();
    auto context = Context::create(tiers);
    samples.push_back((now_seconds() - start) * 1e3);
    if (!context.ok()) {
      return std::move(context).status();
    }
  }
  add(session, "start_up", "ms", median(samples), bars::kStartUp);
  return {};
}

/// For extents that were never written, which need records only.
Status books(Session& session) {
  constexpr std::uint64_t kBytes = 128 * kGiB;
  auto context =
      Context::create(fmt::format("dram=256M; nvme={}:256G", session.settings().directory));
  if (!context.ok()) {
    return std::move(context).status();
  }
  auto before = resident();
  auto buffer = (*context)->alloc(kBytes, {.extent_bytes = kExtent});
  if (!buffer.ok()) {
    return std::move(buffer).status();
  }
  auto after = resident();
  if (!before.ok() || !after.ok()) {
    return before.ok() ? std::move(after).status() : std::move(before).status();
  }
  add(session, "metadata", "% of bytes",
      100.0 * static_cast<double>(*after - std::min(*before, *after)) / static_cast<double>(kBytes),
      bars::kMetadata);
  return {};
}

/// Four times the budget is written and read again.
Status memory_and_steps(Session& session) {
  constexpr std::uint64_t kDram = 512 * kMiB;
  auto before = resident();
  if (!before.ok()) {
    return std::move(before).status();
  }
  auto context = Context::create(
      fmt::format("dram={}; nvme={}:{}", kDram, session.settings().directory, 6 * kDram));
  if (!context.ok()) {
    return std::move(context).status();
  }
  std::vector<Buffer> buffers;
  std::uint64_t most = 0;
  for (std::uint64_t i = 0; i < 8 * kDram / kExtent; ++i) {
    const bool writes = i < 4 * kDram / kExtent;
    if (writes) {
      auto buffer = (*context)->alloc(kExtent, {.extent_bytes = kExtent});
      if (!buffer.ok()) {
        return std::move(buffer).status();
      }
      buffers.push_back(std::move(*buffer));
    }
    auto view = buffers[i % (4 * kDram / kExtent)].acquire(writes ? kDiscard : kRead);
    if (!view.ok()) {
      return std::move(view).status();
    }
    if (writes) {
      fill_random(view->data(), kExtent, i + 1);
    }
    if (i % 16 == 0) {
      auto now = resident();
      if (!now.ok()) {
        return std::move(now).status();
      }
      most = std::max(most, *now);
    }
  }
  const double allowed = static_cast<double>(kDram) * 1.05 + 8.0 * kMiB;
  add(session, "memory_beside_budget", "x of budget + 5 % + 8 MiB",
      static_cast<double>(most - std::min(most, *before)) / allowed, 1);
  add(session, "step_p99", "us", static_cast<double>((*context)->stats().step_ns_p99) / 1e3,
      bars::kStep);
  return {};
}

}  // namespace

Status costs(Session& session) {
  session.tell("costs");
  for (Status (*const part)(Session&) : {start_up, books, memory_and_steps}) {
    if (Status status = part(session); !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace tiermem::bench
