// Creates a context, its threads, and ends it.
#include "runtime/context_impl.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/arena.hpp"
#include "base/arena_reserve.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/no_cancel.hpp"
#include "base/own_thread.hpp"
#include "base/results.hpp"
#include "observe/receipt_text.hpp"
#include "os/host_memory.hpp"
#include "os/memory_limits.hpp"
#include "residency/buffer_limits.hpp"
#include "runtime/held.hpp"

namespace tiermem {
namespace {

// Halved, like kMostExtents, if the process's address space is limited.
constexpr std::uint32_t kMostBuffers = 1u << 24;
constexpr std::uint64_t kReserve = std::uint64_t{4} << 20;         // base/arena_reserve.hpp
constexpr std::uint64_t kLargestStaged = std::uint64_t{16} << 20;  // Unless `extent` is larger.

struct SyncRequest {
  std::atomic<std::uint32_t> done{0};
};

// A thread needs a stack, and a memory limit may refuse it.
Status no_thread(const char* which) {
  constexpr std::uint64_t kStack = std::uint64_t{8} << 20;
  char why[160];
  char setting[64];
  if (host::explain_refusal(kStack, host::Wanted::memory, why, sizeof(why), setting,
                            sizeof(setting))) {
    return host::refused(EAGAIN, kStack, host::Wanted::memory, "the stack of {}", which);
  }
  return fail_native(Code::unavailable, EAGAIN,
                     "{}: no thread can be created (RLIMIT_NPROC or pids.max); raise the limit",
                     which);
}

}  // namespace

std::int64_t deadline_of(Timeout timeout) {
  if (timeout.ns < 0) {
    return Request::kForever;
  }
  const std::int64_t now = now_ns();
  return timeout.ns > Request::kForever - now ? Request::kForever : now + timeout.ns;
}

Context::Impl::Impl(const Config& c, std::uint32_t buffers, std::uint32_t extents)
    : residency(buffers, extents, 1 + static_cast<unsigned>(c.gpus.size())),
      config(c),
      faults_(
          residency,
          [](void* argument, Request& request) {
            static_cast<Impl*>(argument)->post_fault(request);
          },
          this, now_ns),
      busy_poll_(std::int64_t{c.busy_poll} * 1000) {
  residency.wake = [](void* self) { static_cast<Impl*>(self)->wake(); };
  residency.wake_argument = this;
}

Result<std::unique_ptr<Context::Impl>> Context::Impl::create(const Config& config,
                                                             const HostFacts& facts) {
  if (!arena_fill_reserve()) {
    return host::refused(ENOMEM, kReserve, host::Wanted::memory, "the reserve of a context");
  }
  if (!make_tombstone()) {
    return fail(
        Code::no_capacity,
        "create: allocation of address space for the first context failed; raise `ulimit -v`");
  }
  std::unique_ptr<Impl> impl;
  // If address space is limited, the program needs most of it.
  constexpr std::uint64_t kExtentBytes = 192;  // Approximate size of the records of one extent.
  const std::uint64_t left = host::address_space_left();
  unsigned shift = 0;
  while (shift < 10 && (kMostExtents >> shift) * kExtentBytes > left / 16) {
    ++shift;
  }
  while (impl == nullptr) {
    try {
      impl.reset(new Impl(config, kMostBuffers >> shift, kMostExtents >> shift));
      if (!impl->residency.tag.valid() && forget_buried()) {
        impl.reset();
      }
    } catch (const std::bad_alloc&) {
      if (!forget_buried() && shift++ == 10) {
        return host::refused(ENOMEM, (kMostExtents >> (shift - 1)) * kExtentBytes,
                             host::Wanted::addresses, "the records of a context");
      }
    }
  }
  if (!impl->residency.tag.valid()) {
    return fail(Code::no_capacity,
                "create: this process has {} live contexts, which is the maximum; end some first",
                ContextTag::kMost);
  }
  Status status = impl->build(facts);
  if (status.ok()) {
    status = impl->start();
  }
  if (!status.ok()) {
    return status;
  }
  return impl;
}

Status Context::Impl::build(const HostFacts&) {
  HostSpaceOptions space_options;
  if (config.compressed != 0) {
    compressed_ = std::make_unique<CompressedTier>(CompressedTier::budget_for(config.compressed));
  }
  space_options.memories = {{.budget = config.dram.budget - config.compressed}};
  for (const NodeMemory& node : config.numa) {
    space_options.memories.push_back(
        {.budget = node.bytes, .place = {Kind::numa, static_cast<std::uint16_t>(node.index)}});
  }
  for (const BlockDevice& memory : config.pmem) {
    const auto number = static_cast<std::uint16_t>(&memory - config.pmem.data());
    space_options.memories.push_back(
        {.budget = memory.bytes, .place = {Kind::pmem, number}, .path = memory.path});
  }
  space_options.mechanism = config.mechanism;
  space_options.huge_pages = config.huge_pages;
  space_options.userfault = config.userfault;
  space_options.follow_forks = config.fork == Fork::follow;
  auto space = HostSpace::create(space_options);
  if (!space.ok()) {
    return std::move(space).status();
  }
  host_space_ = std::move(space).value();
  residency.buffers.set_interleave(interleave_order(config.bandwidths));
  // Read-ahead of a scan: enough for any device's depth, but not enough to evict itself.
  constexpr std::uint64_t kMostAhead = std::uint64_t{32} << 20;
  faults_.attach(*host_space_, std::min(kMostAhead, config.dram.budget / 4));

  std::vector<std::unique_ptr<BlockFile>> files;
  std::vector<BlockFile*> devices;  // Owned by the port.
  std::vector<unsigned> opened;     // By block tier.
  for (const std::vector<BlockFileOptions>& tier : file_options()) {
    for (const BlockFileOptions& options : tier) {
      auto file = BlockFile::open(options);
      if (!file.ok()) {
        return std::move(file).status();
      }
      files.push_back(std::move(file).value());
      if (opened.empty()) {
        devices.push_back(files.back().get());
      }
    }
    opened.push_back(static_cast<unsigned>(tier.size()));
  }
  std::string reason;
  port_ = make_io_port(std::move(files), port_options(), reason);
  if (port_ == nullptr) {
    return fail(Code::unavailable, "{}; accepted for io_engine: auto, io_uring, threads", reason);
  }
  if (!reason.empty()) {
    log_warn("{}", reason);
  }
  lanes_ = std::make_unique<IoLanes>(*port_);
  for (unsigned tier = 0; tier < opened.size(); ++tier) {
    lanes_->give_devices(tier, opened[tier]);
    BlockOptions options;
    options.depth = config.depth;
    options.piece_bytes = config.piece;
    options.budget = tier == 0 ? config.block_budget : config.slow[tier - 1].bytes;
    options.require_direct = config.direct == DirectIo::require;
    options.index = static_cast<std::uint16_t>(tier);
    blocks_.push_back(std::make_unique<BlockTier>(lanes_->lane(tier), options));
  }
  files_ = std::make_unique<FileTier>(lanes_->files(), config.depth, config.piece);
  faults_.attach(*files_);
  workers_ = std::make_unique<WorkerThreads>(config.workers, config.populate_workers,
                                             [this] { port_->wake(); });
  if (!workers_->works()) {
    return no_thread("a worker");
  }
  if (Status status = open_gpus(); !status.ok()) {
    return status;
  }
  if (Status status = open_direct_path(devices); !status.ok()) {
    return status;
  }
  MoverOptions options;
  options.checksums = config.checksum;
  options.receipts = config.receipts;
  options.explain = [](std::uint64_t bytes, host::Wanted wanted, char* text, std::size_t text_room,
                       char* setting, std::size_t setting_room) {
    (void)host::explain_refusal(bytes, wanted, text, text_room, setting, setting_room);
  };
  // At most a quarter of the memory may be in flight ahead of use.
  options.prefetch_limit = static_cast<unsigned>(
      std::clamp<std::uint64_t>(config.dram.budget / 4 / config.extent, 2, 256));
  options.endurance_bytes_per_day = config.endurance;
  options.ahead_bytes_max = config.dram.budget / 100 * config.ahead;
  options.workers_move = config.workers >= 4;  // docs/decisions/own-jobs.md
  // A larger value would displace the bytes that a loop keeps in memory
  // (docs/decisions/extents-in-parts.md).
  options.scan_bytes = std::min(std::uint64_t{4} << 20, config.dram.budget / 32);
  std::vector<AddressSpace*> spaces = {host_space_.get()};
  for (const std::unique_ptr<GpuTier>& gpu : gpus_) {
    spaces.push_back(gpu.get());
  }
  if (!gpus_.empty()) {
    for (unsigned number = 0; number < host_space_->memories().size(); ++number) {
      host_space_->memory(number).lock_pages_with(gpus_[0].get());  // Page-locked for all GPUs.
    }
    options.direct = direct_.get();
    options.staging_bytes = std::min(config.gpu_staging, config.dram.budget / 4);
    // Room for four of the largest extents.
    options.staging_frame_bytes = std::max(
        config.extent,
        std::clamp(std::bit_floor(options.staging_bytes / 4), kDefaultExtent, kLargestStaged));
    residency.device_extent_shift =
        static_cast<std::uint8_t>(std::countr_zero(options.staging_frame_bytes));
  }
  std::vector<SlotTier*> slots;
  if (compressed_ != nullptr) {
    slots.push_back(compressed_.get());
  }
  for (const std::unique_ptr<BlockTier>& block : blocks_) {
    slots.push_back(block.get());
  }
  mover_ = std::make_unique<Mover>(residency, spaces, slots, files_.get(), *workers_, options);
  mover_->attach(&placed);
  if (!gpus_.empty() && !mover_->has_staging()) {
    return fail(Code::no_capacity,
                "gpu: a staging piece of {} is more than a quarter of the DRAM budget of {}; raise "
                "dram, or lower extent",
                human_bytes(options.staging_frame_bytes), human_bytes(config.dram.budget));
  }
  return {};
}

Status Context::Impl::change_dram(Request& request) {
  if (compressed_ == nullptr) {
    return ask(request);
  }
  if (changes_dram_.exchange(true, std::memory_order_acquire)) {
    return fail(Code::busy, "set_budget: another change of a budget is under way; wait for it");
  }
  struct Ends {
    ~Ends() { changes.store(false, std::memory_order_release); }
    std::atomic<bool>& changes;
  } const ends{changes_dram_};
  const std::uint64_t dram = request.value;
  const std::uint64_t share = std::min(config.compressed, dram / 2);
  const std::uint64_t before = compressed_->budget();
  compressed_->set_budget(CompressedTier::budget_for(share));
  const std::uint64_t compressed = std::max(share, compressed_->memory_bytes());
  request.value = dram - std::min(dram, compressed);
  Status status =
      request.value >= kSmallestExtent
          ? ask(request)
          : fail(Code::no_capacity, "set_budget: {}, of which compressed memory has {}; name more",
                 human_bytes(dram), human_bytes(compressed));
  if (!status.ok()) {
    compressed_->set_budget(before);
  }
  return status;
}

// By block tier, in the order of demotion.
std::vector<std::vector<BlockFileOptions>> Context::Impl::file_options() const {
  if (config.block.empty()) {
    return {};
  }
  std::uint64_t named = 0;
  unsigned unnamed = 0;
  for (const BlockDevice& device : config.block) {
    named += device.bytes;
    unnamed += device.bytes == 0 ? 1 : 0;
  }
  const auto add = [&](std::vector<BlockFileOptions>& tier, const BlockDevice& device) {
    BlockFileOptions& options = tier.emplace_back();
    options.path = device.path;
    const std::uint64_t rest = config.block_budget - std::min(config.block_budget, named);
    options.limit = device.bytes != 0 ? device.bytes : rest / unnamed;
    options.reserve_free_bytes = config.reserve_free;
    options.require_direct = config.direct == DirectIo::require;
    options.nameable = config.gpu_direct == GpuDirect::direct;
  };
  std::vector<std::vector<BlockFileOptions>> all(1);
  for (const BlockDevice& device : config.block) {
    add(all.front(), device);
  }
  for (const BlockDevice& device : config.slow) {
    add(all.emplace_back(), device);
  }
  return all;
}

PortOptions Context::Impl::port_options() const {
  PortOptions options;
  options.depth = config.depth;
  options.engine = config.io_engine;
  options.require = config.io_engine == Engine::io_uring;
  return options;
}

Status Context::Impl::start() {
  if (!register_fork_handlers()) {
    return fail(Code::no_capacity, "create: allocation of the fork handlers failed; free memory");
  }
  enlist();
  Status status = start_threads();
  if (!status.ok()) {
    stop();
    return status;
  }
  state_.store(State::open, std::memory_order_release);
  return start_inspector();
}

Status Context::Impl::start_threads() {
  const char* which = "the mover";
  try {
    // If possible, the mover's thread also sleeps on faults: a switch to another thread costs as
    // much as reading a page from the device.
    const bool signals = host_space_->signals();
    serves_faults_ = host_space_->maps() && !signals && port_->watch(host_space_->fault_fd());
    mover_thread_ = own_thread("tiermem-mover", [this] { run_mover(); });
    which = "the fault reader";
    if (signals) {
      host_space_->answer_by(
          [](void* self, const UserfaultEvent& touch) {
            return static_cast<Impl*>(self)->answer_touch(touch);
          },
          this);
    } else if (host_space_->maps() && !serves_faults_) {
      fault_thread_ = own_thread("tiermem-fault", [this] { faults_.run(gate_); });
    }
  } catch (const std::system_error&) {
    return no_thread(which);
  }
  if (serves_faults_ && config.busy_poll != 0) {
    halt_poll_.start();
  }
  return {};
}

void Context::Impl::add_own_counts(Stats& stats) const {
  stats.poisoned_touches = faults_.poisoned();
  stats.faults = faults_.served();
  stats.fault_wait_ns = faults_.waited_ns();
  placed.add_stats(stats);
  const DeviceMemory::Books blocks = device_memory.books();
  stats.gpu_placed = blocks.bytes;
  stats.gpu_paused = blocks.paused;
  const auto add_bytes = [&stats](Place place, std::uint64_t in, std::uint64_t out) {
    for (TierStats& tier : std::span(stats.tiers).first(stats.tier_count)) {
      tier.bytes_in += tier.place == place ? in : 0;
      tier.bytes_out += tier.place == place ? out : 0;
    }
  };
  for (const std::unique_ptr<GpuTier>& gpu : gpus_) {
    const GpuCounters counters = gpu->counters();
    stats.gpu_bytes_in += counters.bytes_in;
    stats.gpu_bytes_out += counters.bytes_out;
    add_bytes(gpu->place(), counters.bytes_in, counters.bytes_out);
  }
  // Peer copies: each of the two devices counts them, and they do not pass through the host's
  // memory.
  const std::uint64_t peer = stats.gpu_bytes_peer / 2;
  // Direct transfers: the mover counts them, the devices' copy counters do not.
  const std::uint64_t in = stats.gpu_direct_in;
  const std::uint64_t out = stats.gpu_direct_out;
  stats.host_bytes_in = stats.promoted + stats.prefetched - in + stats.gather_bytes +
                        (stats.gpu_bytes_out - std::min(peer, stats.gpu_bytes_out));
  stats.host_bytes_out =
      stats.demoted - out + (stats.gpu_bytes_in - std::min(peer, stats.gpu_bytes_in));
  stats.gpu_bytes_in += in;
  stats.gpu_bytes_out += out;
  // The first memory of the host has what all of them gave each other. It also gets the bytes that
  // came to no other one.
  TierStats& first = stats.tiers.front();
  first.bytes_in += stats.host_bytes_in;
  first.bytes_out += stats.host_bytes_out;
  for (const Memory* const memory : host_space_->memories().subspan(1)) {
    const TierStats& further = *stats.tier(memory->place());
    first.bytes_in -= further.bytes_in;
    first.bytes_out -= further.bytes_out;
  }
}

// The mover's thread has ended, so its counters may be read here.
void Context::Impl::write_stats_file() {
  if (config.stats_file == "off") {
    return;
  }
  Stats stats;
  ReceiptsCopy receipts;
  mover_->fill_stats(stats);
  mover_->copy_receipts(receipts, config.receipts);
  add_own_counts(stats);
  const std::string text = stats_json_text(stats, receipts, now_ns());
  std::string path = config.stats_file;
  if (const auto at = path.find("%p"); at != std::string::npos) {
    path.replace(at, 2, std::to_string(::getpid()));
  }
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  std::size_t done = 0;
  ssize_t n = file >= 0 ? 1 : -1;
  while (n > 0 && done < text.size()) {
    n = ::write(file, text.data() + done, text.size() - done);
    done += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  if (done < text.size()) {
    log_warn("stats_file: cannot write {}: {}", path, std::strerror(errno));
  }
  if (file >= 0 && ::close(file) != 0) {
    log_warn("stats_file: cannot finish {}: {}", path, std::strerror(errno));
  }
}

Status Context::Impl::usable(const char* call) const {
  switch (state_.load(std::memory_order_acquire)) {
    case State::open:
      return {};
    case State::forked:
      return fail(Code::shut_down,
                  "{}: this context belongs to the parent process; create one after fork", call);
    case State::tombstone:
      return fail(Code::shut_down, "{}: the context has ended: it was destroyed", call);
    default:
      return fail(Code::shut_down, "{}: the context is closed", call);
  }
}

Status Context::Impl::usable_gpus(const char* call) const {
  Status status = usable(call);
  return status.ok() && gpus_.empty()
             ? fail(Code::unsupported, "{}: this context has no GPU; see the option gpu", call)
             : std::move(status);
}

std::string Context::Impl::list_views() {
  std::string text;
  unsigned shown = 0;
  std::uint64_t more = 0;
  residency.views.walk([&](const LiveViews::Holder& holder) {
    const BufferRecord& record = residency.buffers.at(Buffers::index_of(holder.buffer));
    if ((record.flags.load(std::memory_order_relaxed) & kOfHeaps) != 0) {
      return;
    }
    if (shown == 4) {
      ++more;
      return;
    }
    ++shown;
    text += fmt::format(
        "{}'{}' by thread {} for {:.1f} s", shown > 1 ? ", " : "", record.label.get().or_none(),
        holder.thread,
        static_cast<double>(std::max<std::int64_t>(0, now_ns() - holder.since_ns)) / 1e9);
  });
  if (more > 0) {
    text += fmt::format(" and {} more", more);
  }
  return text;
}

Status Context::Impl::close(bool force, Timeout timeout) {
  std::lock_guard lock(close_mutex_);
  if (!open()) {
    return {};
  }
  const std::string views = force ? std::string() : list_views();
  if (!views.empty()) {
    ErrorInfo info = error_info(
        Code::busy, "close: views are still held of {}; release them, or close with force", views);
    return Status(info);
  }
  // A thread that raised posting_ before this either sees the new state, or close() waits for it.
  // After the loop no thread posts any more. The drain is the last request, and no thread waits for
  // an answer that never comes.
  state_.store(State::closing, std::memory_order_seq_cst);
  while (posting_.load(std::memory_order_seq_cst) != 0) {
    std::this_thread::yield();  // Lasts for the few instructions of post().
  }
  inspector_.stop();
  placed.close();
  Request drain;
  drain.kind = RequestKind::drain;
  drain.deadline_ns = deadline_of(timeout);
  const Status drained = ask(drain);
  // The drain has ended everything that they waited for. If it timed out, they still wait for reads
  // of devices to the program's memory, which must not be given back before.
  errands_->stop();
  copy_errands_->stop();
  const bool released = await_releases(drain.deadline_ns);
  stop();
  try {
    write_stats_file();
  } catch (const std::exception& error) {
    log_warn("stats_file: {}", error.what());
  }
  state_.store(State::closed, std::memory_order_release);
  if (drained.code() == Code::timed_out) {
    return fail(Code::timed_out,
                "close: transfers did not end in {} ms and were abandoned; pass a longer timeout",
                timeout.ns / 1'000'000);
  }
  if (!released) {
    return fail(Code::timed_out,
                "close: timed out after {} ms waiting for streams that still use released views; "
                "synchronize the streams first",
                timeout.ns / 1'000'000);
  }
  return {};
}

void Context::Impl::stop() {
  order_stop();
  if (mover_thread_.joinable()) {
    port_->wake();
    mover_thread_.join();
  }
  if (host_space_ != nullptr && host_space_->signals()) {
    host_space_->answer_by(nullptr, nullptr);
  }
  halt_poll_.stop();
  if (fault_thread_.joinable()) {
    host_space_->stop_faults();
    fault_thread_.join();
  }
}

// ---- Requests ----------------------------------------------------------------------------------

void Context::Impl::post(Request& request, bool wakes) {
  const NoCancel until_posted;
  posting_.fetch_add(1, std::memory_order_seq_cst);  // Partner: close().
  const bool late =
      state_.load(std::memory_order_seq_cst) != State::open && request.kind != RequestKind::drain;
  if (!late && mover_->post(&request) && wakes) {
    port_->wake();
  }
  posting_.fetch_sub(1, std::memory_order_seq_cst);
  if (late) {
    request.status = fail(Code::shut_down, "the context was closed during the call");
    request.on_done(request);
  }
}

Status Context::Impl::ask(Request& request) {
  const NoCancel until_answered;
  SyncRequest sync;
  request.context = &sync;
  request.on_done = [](Request& done) {
    auto& word = static_cast<SyncRequest*>(done.context)->done;
    // The waiter may return as soon as it sees the store. Afterwards only the futex address of the
    // request is used, and waking an address without waiters is harmless.
    word.store(1, std::memory_order_release);
    word.notify_one();
  };
  post(request);
  sync.done.wait(0, std::memory_order_acquire);
  return std::move(request.status);
}

void Context::Impl::ask_and_forget(std::unique_ptr<Request> request) {
  request->on_done = [](Request& done) { delete &done; };
  post(*request.release());
}

Result<OpHandle> Context::Impl::ask_async(std::unique_ptr<Request> request) {
  Request* raw = request.get();
  const OpHandle op = ops.add(std::move(request));
  if (op == 0) {
    return fail(Code::busy,
                "{} operations are under way, which is the maximum; wait for some of them",
                Ops::kMost);
  }
  post(*raw);
  return op;
}

Status Context::Impl::resolve_all(std::span<const Access> list, Request& request,
                                  const char* call) {
  request.spans.resize(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    Status status = residency.resolve(list[i], request.spans[i], call);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

Status Context::Impl::acquire_through_mover(std::span<const Access> list, Timeout timeout,
                                            std::span<ViewRecord> views, const StreamOrder& order,
                                            const std::atomic<bool>* cancel) {
  const NoCancel while_it_waits;
  Request request;
  request.kind = RequestKind::acquire;
  request.cancel_with = cancel;
  Status status = resolve_all(list, request, "acquire");
  if (status.ok()) {
    status = give_windows(request, "acquire");
  }
  if (!status.ok()) {
    return status;
  }
  if (timeout.ns == 0) {
    return fail(
        Code::busy,
        "acquire: not all of the {} ranges are resident; pass a timeout, or prefetch them first",
        list.size());
  }
  request.views = views.data();
  request.thread = static_cast<std::int32_t>(::syscall(SYS_gettid));
  request.deadline_ns = deadline_of(timeout);
  request.for_stream = !order.is_host();
  status = ask(request);
  if (status.ok() && request.for_stream) {
    HeldViews held(residency, views.first(list.size()));
    status = follow_copies(request, order);
    if (status.ok()) {
      held.keep();
    }
  }
  return status;
}

void Context::Impl::note_cancel() {
  mover_->note_cancel();
  port_->wake();
}

}  // namespace tiermem
