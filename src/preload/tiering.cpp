// off -> starting -> on, or -> stopped. The context is never destroyed: it must outlive the last
// thread that touches a tiered byte, and that is after every exit handler.
#include "preload/tiering.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <optional>

#include "base/arena.hpp"
#include "base/error.hpp"
#include "base/kept_descriptors.hpp"
#include "base/large_stack.hpp"
#include "base/log.hpp"
#include "base/no_cancel.hpp"
#include "base/no_signals.hpp"
#include "preload/run_page.hpp"
#include "preload/share.hpp"
#include "preload/start.hpp"
#include "preload/wrap.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/options.hpp"

namespace tiermem::preload {
namespace {

enum class Stage : std::uint8_t { off, starting, on, stopped };

// Written by the thread that starts or stops. Relaxed reads may see a change late, which costs a
// little plain memory. The release store of g_context publishes the context.
constinit std::atomic<Stage> g_stage{Stage::off};
constinit std::atomic<Context*> g_context{nullptr};
constinit std::atomic<std::size_t> g_plain{0};
// Why a process stopped while it was too small to report it.
constinit std::atomic<const char*> g_untold{nullptr};
constinit std::atomic<std::size_t> g_large_extent{kSmallExtent};  // Written before the stage is on.

Settings read_settings() {
  Settings settings;
  if (const std::uint64_t total = run_total(); total != 0) {
    settings.start = run_start(total);
  }
  read_size("TIERMEM_START", settings.start);
  read_size("TIERMEM_THRESHOLD", settings.large);
  settings.medium = std::min(settings.medium, settings.large);
  return settings;
}

bool give_up(const std::string& why) {
  tell_not_tiered("no memory of this process is tiered: " + why);
  g_stage.store(Stage::stopped);
  return false;
}

void tell_stopped(const char* why) {
  tell_not_tiered(fmt::format("the memory that it took later was not tiered: {}", why));
}

std::uint64_t largest_file(const Config& config) {
  std::uint64_t most = 0;
  for (const auto* const devices : {&config.block, &config.slow}) {
    for (const BlockDevice& device : *devices) {
      struct stat status {};
      const bool raw = ::stat(device.path.c_str(), &status) == 0 && S_ISBLK(status.st_mode);
      most = raw ? most : std::max(most, device.bytes);
    }
  }
  return most;
}

// `plain` is the process's bytes of plain memory.
bool create_context(std::uint64_t plain) {
  if (!arena_is_enclosed()) {
    return give_up(
        "the limit of address space (ulimit -v) leaves no room for tiermem's own; raise it");
  }
  if (const char* why = nullptr; wrapping() && !start_wrapping(why)) {
    return give_up(fmt::format("its system calls cannot be wrapped: {}", why));
  }
  // Values derived from the budget, such as the cap of the block tier, use the budget of the whole
  // run, because this process's share changes. TIERMEM_DRAM is that budget when the run began.
  const std::uint64_t share = join_run(plain);
  const std::uint64_t total = run_total();
  const std::string dram = total != 0 ? "; dram=" + format_size(total) : "";
  // Memory of programs is mapped, and persistent memory takes none of it.
  auto made = Context::create("fork=follow; gpu=off; pmem=off" + dram, {.name = "preload"});
  if (!made.ok()) {
    return give_up(made.message());
  }
  // TIERMEM_USERFAULT is for programs that are known to make no such calls.
  const char* const asked_for = ::secure_getenv("TIERMEM_USERFAULT");
  const bool user_mode =
      (*made)->impl().host_space().facts().userfault.source == UserfaultSource::user_mode;
  if (user_mode && !wrapping() && (asked_for == nullptr || *asked_for == '\0')) {
    return give_up(fmt::format(
        "only user-mode userfaultfd here, and system calls on absent pages would fail with EFAULT; "
        "{}, or set vm.unprivileged_userfaultfd=1 (sysctl)",
        ::secure_getenv("TIERMEM_RUN") != nullptr
            ? "start `tiermem run` as the user of this process"
            : "use `tiermem run`"));
  }
  rlimit files{};
  const std::uint64_t wanted = largest_file((*made)->impl().config);
  if (::getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < wanted) {
    return give_up(
        fmt::format("its files may have at most {} (ulimit -f), but its block tier needs {}; raise "
                    "the limit, or give --nvme a smaller size",
                    human_bytes(files.rlim_cur), human_bytes(wanted)));
  }
  if (share != 0) {
    if (const Status status = (*made)->set_budget({Kind::dram, 0}, share); !status.ok()) {
      log_error("share: cannot set the budget of this process: {}", status.message());
    }
  }
  Context* const context = made->release();
  constexpr std::uint64_t kLeastExtents = 32;
  const char* const asked = ::secure_getenv("TIERMEM_EXTENT");
  if (asked != nullptr && *asked != '\0') {
    g_large_extent.store(
        std::clamp<std::uint64_t>(std::bit_floor(context->stats().dram_budget / kLeastExtents),
                                  kSmallExtent, context->impl().config.extent));
  }
  g_context.store(context, std::memory_order_release);
  g_stage.store(Stage::on);
  follow_run(*context);
  return true;
}

bool start(std::uint64_t plain) {
  const NoCancel until_it_runs;
  const NoSignals quiet;
  Stage expected = Stage::off;
  if (!g_stage.compare_exchange_strong(expected, Stage::starting)) {
    return false;
  }
  const BeyondLimit descriptors;
  bool started = false;
  LargeStack().run([&] { started = create_context(plain); });
  return started;
}

}  // namespace

void read_size(const char* name, std::size_t& value) {
  const char* const text = ::secure_getenv(name);
  if (text == nullptr || *text == '\0') {
    return;
  }
  if (const auto size = parse_size(text); size.ok() && *size >= 4096) {
    value = *size;
  } else {
    tell(LogLevel::error, fmt::format("{}='{:.60}' is not a size of at least 4096 bytes, such as "
                                      "64M; {} is used",
                                      name, text, format_size(value)));
  }
}

const Settings& settings() {
  static const Settings read = [] {
    const ArenaScope inside;
    return read_settings();
  }();
  return read;
}

std::size_t large_extent() {
  return g_large_extent.load(std::memory_order_relaxed);
}

bool tiered(std::size_t bytes) {
  const Stage stage = g_stage.load(std::memory_order_relaxed);
  if (stage == Stage::on) {
    return true;
  }
  const bool may_matter = g_untold.load(std::memory_order_relaxed) != nullptr;
  if ((stage != Stage::off && !may_matter) || inside_tiermem()) {
    return false;
  }
  const std::size_t before = g_plain.fetch_add(bytes, std::memory_order_relaxed);
  if (before + bytes <= settings().start) {
    return false;
  }
  const ArenaScope inside;
  if (const char* const why = may_matter ? g_untold.exchange(nullptr) : nullptr; why != nullptr) {
    tell_stopped(why);
  }
  return stage == Stage::off && start(before);
}

std::uint64_t largest_file() {
  Context* const tiers = context();
  return tiers == nullptr ? 0 : largest_file(tiers->impl().config);
}

Context* context() {
  return g_context.load(std::memory_order_acquire);
}

void stop_tiering(const char* why) {
  if (!in_own_process()) {
    return;  // A child of vfork, which shares this memory.
  }
  const Stage before = g_stage.exchange(Stage::stopped);
  if (before == Stage::off) {
    g_untold.store(why);  // The process may stay small.
  } else if (before != Stage::stopped) {
    const ArenaScope inside;
    tell_stopped(why);
  }
}

}  // namespace tiermem::preload
