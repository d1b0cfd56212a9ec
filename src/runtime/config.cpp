// load_config in four steps: read every source, apply options from the weakest source to the
// strongest, set the budgets of the two tiers, check the options against each other.
#include "runtime/config.hpp"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>

#include "base/arena.hpp"
#include "base/error.hpp"
#include "residency/extents.hpp"
#include "runtime/options.hpp"
#include "runtime/settings.hpp"
#include "tier/page_codec.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kLongestPath = 4095;
constexpr unsigned kHighestNumber = 1023;  // The number of a GPU or a NUMA node.
// A smaller guess is useless: eight extents of 2 MiB.
constexpr std::uint64_t kSmallestGuess = 16 * kMiB;

/// Settings of the tiers, before they are compared with the machine.
struct Wanted {
  std::optional<std::uint64_t> dram_bytes;
  std::optional<double> dram_percent;
  std::optional<std::vector<BlockDevice>> devices;  // Empty: nvme=off.
  std::vector<BlockDevice> slow;
  std::set<const Option*> named;
};

std::optional<std::string> value_of(const Environment& env, const char* name) {
  const char* value = env ? env(name) : nullptr;
  if (value == nullptr || trim(value).empty()) {
    return std::nullopt;
  }
  return std::string(trim(value));
}

Spec spec_of(std::string_view tiers) {
  return {std::string(tiers), "the spec string"};
}

// ---- reading ----------------------------------------------------------------------------------

/// Reads each option's own variable.
Settings settings_from_variables(const Environment& env) {
  Settings settings;
  for (const Option& option : option_table()) {
    for (const char* const name : {former_variable(option), option.env}) {
      const auto value = name != nullptr ? value_of(env, name) : std::nullopt;
      if (value) {
        settings.push_back(make_setting(option, *value, name));
      }
    }
  }
  return settings;
}

/// All sources, the weakest first: the settings of each, or its error.
std::vector<Result<Settings>> all_sources(std::span<const Spec> tiers, const char* toml_path,
                                          const Environment& env) {
  std::vector<Result<Settings>> sources;
  if (const auto path = value_of(env, "TIERMEM_CONFIG")) {
    sources.push_back(settings_from_file(*path));
  }
  if (const auto spec = value_of(env, "TIERMEM_TIERS")) {
    sources.push_back(settings_from_spec(*spec, "TIERMEM_TIERS"));
  }
  sources.emplace_back(settings_from_variables(env));
  if (toml_path != nullptr && *toml_path != '\0') {
    sources.push_back(settings_from_file(toml_path));
  }
  sources.push_back(settings_from_specs(tiers));
  return sources;
}

/// Reads and checks every source, even if a stronger one wins. A mistake is reported when it is
/// made, not when the other source is removed.
Result<std::vector<Settings>> read_sources(std::span<const Spec> tiers, const char* toml_path,
                                           const Environment& env) {
  std::vector<Settings> sources;
  for (Result<Settings>& source : all_sources(tiers, toml_path, env)) {
    if (!source.ok()) {
      return std::move(source).status();
    }
    sources.push_back(std::move(*source));
  }
  return sources;
}

// ---- applying ---------------------------------------------------------------------------------

/// "50%" or "12.5%": above 0, at most 100.
std::optional<double> parse_percent(std::string_view text) {
  if (!text.ends_with('%')) {
    return std::nullopt;
  }
  text = trim(text.substr(0, text.size() - 1));
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  // This form also refuses not-a-number.
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0 && value <= 100)) {
    return std::nullopt;
  }
  return value;
}

Status apply_dram(const Setting& setting, Wanted& wanted) {
  const std::string& text = setting.items.front();
  wanted.dram_bytes.reset();
  wanted.dram_percent = parse_percent(text);
  if (wanted.dram_percent) {
    return {};
  }
  const auto bytes = parse_size(text);
  if (!bytes.ok() || *bytes < setting.option->low || *bytes > setting.option->high) {
    return refuse_value(*setting.option, text, setting.origin);
  }
  wanted.dram_bytes = *bytes;
  return {};
}

/// "/data/a:100G" or "/data/a". A last colon belongs to the path if a slash follows it.
std::optional<BlockDevice> parse_device(const Option& option, std::string_view item) {
  BlockDevice device;
  const auto colon = item.rfind(':');
  if (colon != std::string_view::npos && item.find('/', colon) == std::string_view::npos) {
    const auto bytes = parse_size(item.substr(colon + 1));
    if (!bytes.ok() || *bytes < option.low || *bytes > option.high) {
      return std::nullopt;
    }
    device.bytes = *bytes;
    item = trim(item.substr(0, colon));
  }
  const bool clean =
      std::none_of(item.begin(), item.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!item.starts_with('/') || item.size() > kLongestPath || !clean) {
    return std::nullopt;
  }
  while (item.size() > 1 && item.ends_with('/')) {
    item.remove_suffix(1);
  }
  device.path = item;
  return device;
}

Status apply_devices(const Setting& setting, Config& config, Wanted& wanted) {
  std::vector<BlockDevice> devices;
  const bool slow = setting.option == find_option("slow");
  const bool pmem = setting.option == find_option("pmem");
  const bool off = setting.items.size() == 1 && setting.items.front() == "off";
  if (setting.items.empty() || setting.items.size() > most_devices(*setting.option)) {
    return refuse_value(*setting.option, fmt::format("{} devices", setting.items.size()),
                        setting.origin);
  }
  for (const std::string& item : setting.items) {
    if (off) {
      break;
    }
    auto device = parse_device(*setting.option, item);
    if (!device) {
      return refuse_value(*setting.option, item, setting.origin);
    }
    const auto same = [&](const BlockDevice& other) { return other.path == device->path; };
    if (std::any_of(devices.begin(), devices.end(), same)) {
      return fail(Code::invalid_argument, "{} ({:.64}): {:.100} is named twice; remove one",
                  setting.option->name, setting.origin, device->path);
    }
    if (slow && device->bytes == 0) {
      return fail(Code::invalid_argument,
                  "slow ({:.64}): {:.100} needs a size; add one, such as {:.40}:1T", setting.origin,
                  device->path, device->path);
    }
    devices.push_back(std::move(*device));
  }
  if (slow) {
    wanted.slow = std::move(devices);
  } else if (pmem) {
    config.pmem = std::move(devices);
  } else {
    wanted.devices = std::move(devices);
  }
  return {};
}

/// "0:16G" or "1".
std::optional<NumberedTier> parse_numbered(const Option& option, std::string_view item) {
  NumberedTier tier;
  const auto colon = item.find(':');
  if (colon != std::string_view::npos) {
    const auto bytes = parse_size(item.substr(colon + 1));
    if (!bytes.ok() || *bytes < option.low || *bytes > option.high) {
      return std::nullopt;
    }
    tier.bytes = *bytes;
    item = trim(item.substr(0, colon));
  }
  const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), tier.index);
  if (item.empty() || error != std::errc() || end != item.data() + item.size() ||
      tier.index > kHighestNumber) {
    return std::nullopt;
  }
  return tier;
}

Status apply_numbered(const Setting& setting, std::vector<NumberedTier>& to) {
  std::vector<NumberedTier> tiers;
  const bool off = setting.items.size() == 1 && setting.items.front() == "off";
  if (setting.items.size() > most_devices(*setting.option)) {
    return refuse_value(*setting.option, fmt::format("{} numbers", setting.items.size()),
                        setting.origin);
  }
  for (const std::string& item : setting.items) {
    if (off) {
      break;
    }
    const auto tier = parse_numbered(*setting.option, item);
    if (!tier) {
      return refuse_value(*setting.option, item, setting.origin);
    }
    const auto same = [&](const NumberedTier& other) { return other.index == tier->index; };
    if (std::any_of(tiers.begin(), tiers.end(), same)) {
      return fail(Code::invalid_argument, "{} ({:.64}): {} is named twice; remove one",
                  setting.option->name, setting.origin, tier->index);
    }
    tiers.push_back(*tier);
  }
  to = std::move(tiers);
  return {};
}

Status apply_setting(const Setting& setting, Config& config, Wanted& wanted) {
  wanted.named.insert(setting.option);
  if (setting.option->type == OptionType::budget) {
    return apply_dram(setting, wanted);
  }
  if (setting.option->type == OptionType::devices) {
    return apply_devices(setting, config, wanted);
  }
  if (setting.option->type == OptionType::numbered) {
    return apply_numbered(setting,
                          setting.option == find_option("numa") ? config.numa : config.gpus);
  }
  return apply_option(config, *setting.option, setting.items.front(), setting.origin);
}

// ---- budgets ----------------------------------------------------------------------------------

std::uint64_t share_of(std::uint64_t bytes, double percent) {
  return static_cast<std::uint64_t>(static_cast<long double>(bytes) * percent / 100);
}

Status settle_dram(const Wanted& wanted, const HostFacts& facts, Config& config) {
  if (wanted.dram_bytes) {
    config.dram = {*wanted.dram_bytes, true};
    return {};
  }
  const auto left = facts.memory_left();
  if (!left) {
    return fail(
        Code::unavailable,
        "dram: the free memory of this machine is unknown ({:.120}); name a size, such as dram=4G",
        facts.memory_available.reason);
  }
  if (wanted.dram_percent) {
    config.dram = {share_of(*left, *wanted.dram_percent), true};
    if (config.dram.budget < find_option("dram")->low) {
      return fail(Code::invalid_argument, "dram: {}% of the {} left comes to {} bytes; name a size",
                  *wanted.dram_percent, human_bytes(*left), config.dram.budget);
    }
    return {};
  }
  config.dram = {std::max(share_of(*left, 80) / kMiB * kMiB, kSmallestGuess), false};
  config.notes.push_back(fmt::format(
      "dram: {}, of {} left as told by /proc/meminfo{}{}", human_bytes(config.dram.budget),
      human_bytes(*left), facts.cgroup_file.available ? " and " : "", facts.cgroup_file.value));
  return {};
}

Status check_row_cache(const Config& config) {
  if (!config.checksum) {
    return fail(Code::invalid_argument,
                "row_cache: it identifies rows by the checksums of their blocks, but checksum is "
                "off; set checksum=on or row_cache=0");
  }
  if (config.fork == Fork::follow) {
    return fail(Code::unsupported,
                "row_cache: with fork=follow no memory can stay in place; set row_cache=0");
  }
  constexpr std::uint64_t kLeast = std::uint64_t{64} << 10;
  if (config.row_cache < kLeast || config.row_cache > config.dram.budget / 2) {
    return fail(Code::invalid_argument,
                "row_cache: {}; accepted are 0, and {} to half of dram, which is {}",
                human_bytes(config.row_cache), human_bytes(kLeast),
                human_bytes(config.dram.budget / 2));
  }
  return {};
}

std::uint64_t saturating_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::uint64_t>::max()
                                                : product;
}

/// The most that a guess takes of a file system: half of its free room, without the reserve.
std::uint64_t usable(const Config& config, const FileSystemRoom& room) {
  // Interprets `auto` as the block tier does.
  const std::uint64_t reserve = config.reserve_free == BlockFileOptions::kDefaultReserve
                                    ? std::min(room.total / 20, 1024 * kMiB)
                                    : config.reserve_free;
  return std::min(room.free / 2, room.free - std::min(room.free, reserve));
}

/// The guessed cap if `room` is usable. A program that reaches it ends, and files grow by need
/// only: so it is generous.
std::uint64_t guessed_cap(const Config& config, std::uint64_t room) {
  return std::min(saturating_multiply(config.dram.budget, 16), room) / kMiB * kMiB;
}

/// Sets the caps of named devices. Those without a size share a guessed cap of their file systems.
Status settle_named_devices(const std::vector<BlockDevice>& devices, Config& config) {
  std::uint64_t sized = 0;
  std::uint64_t room = 0;
  bool shares = false;
  std::set<dev_t> counted;  // Directories of one file system share its free room.
  for (const BlockDevice& device : devices) {
    if (device.bytes != 0) {
      if (__builtin_add_overflow(sized, device.bytes, &sized)) {
        return fail(Code::invalid_argument,
                    "nvme: the sizes add up to more than 2^64-1; lower them");
      }
      continue;
    }
    shares = true;
    struct stat status {};
    if (stat(device.path.c_str(), &status) != 0) {
      const int error = errno;
      return fail_native(Code::io_error, error, "nvme: {:.160}: {}", device.path,
                         std::strerror(error));
    }
    if (!S_ISDIR(status.st_mode)) {
      return fail(Code::invalid_argument,
                  "nvme: {:.120} is not a directory and needs a size; add one, such as {:.40}:100G",
                  device.path, device.path);
    }
    const auto found = file_system_room(device.path);
    if (!found.ok()) {
      return found.status().clone();
    }
    room += counted.insert(status.st_dev).second ? usable(config, *found) : 0;
  }
  std::uint64_t cap = sized;
  if (shares) {
    const std::uint64_t guess = guessed_cap(config, room);
    if (guess < kSmallestGuess) {
      return fail(Code::no_capacity,
                  "nvme: directories without a size may use half of the free bytes, less "
                  "reserve_free: only {} here; name sizes, or free space",
                  human_bytes(room));
    }
    if (__builtin_add_overflow(sized, guess, &cap)) {
      return fail(Code::invalid_argument, "nvme: the sizes add up to more than 2^64-1; lower them");
    }
    config.notes.push_back(
        fmt::format("nvme: directories without a size share {}", human_bytes(guess)));
  }
  config.block = devices;
  config.block_budget = cap;
  config.block_hard = !shares;
  return {};
}

/// Further slot tiers come behind the block tier, and each directory is in one tier only.
Status settle_slow_tiers(const std::vector<BlockDevice>& slow, Config& config) {
  if (!slow.empty() && config.block.empty()) {
    return fail(Code::invalid_argument,
                "slow: there is no tier before {:.120}; name it with nvme= instead",
                slow.front().path);
  }
  for (const BlockDevice& device : slow) {
    const auto same = [&](const BlockDevice& other) {
      std::error_code none;
      return other.path == device.path ||
             std::filesystem::equivalent(other.path, device.path, none);
    };
    const auto twice = [&](const std::vector<BlockDevice>& devices) {
      return std::count_if(devices.begin(), devices.end(), same);
    };
    if (twice(config.block) != 0 || twice(slow) > 1) {
      return fail(Code::invalid_argument,
                  "slow: {:.120} is a tier already; name another directory or device", device.path);
    }
  }
  config.slow = slow;
  return {};
}

/// Compressed memory is a part of the DRAM budget, and half of it at most.
Status settle_compressed(Config& config) {
  if (config.compressed == 0) {
    return {};
  }
  if (!PageCodec::available()) {
    return fail(Code::unsupported,
                "compressed: this build of tiermem has no LZ4; build it with liblz4, or set "
                "compressed=0");
  }
  if (config.block.empty()) {
    return fail(Code::invalid_argument,
                "compressed: bytes that it has no room for need a drive; name one with nvme=, or "
                "set compressed=0");
  }
  if (!config.checksum) {
    return fail(Code::invalid_argument,
                "compressed: it takes pages with checksums, but checksum is off; set checksum=on "
                "or compressed=0");
  }
  if (!config.gpus.empty()) {
    return fail(Code::unsupported,
                "compressed with gpu: buffers that a GPU can use do not come by the page; remove "
                "one of the two options");
  }
  if (const std::size_t tiers = 2 + config.slow.size(); tiers > kMostWritableTiers) {
    return fail(Code::invalid_argument,
                "compressed: with it there are {} tiers to write to; at most {} are accepted: "
                "remove a device of slow, or set compressed=0",
                tiers, kMostWritableTiers);
  }
  constexpr std::uint64_t kLeast = std::uint64_t{64} << 10;
  const std::uint64_t most = config.dram.budget / 2;
  if (config.compressed < kLeast || most < kLeast) {
    return fail(Code::invalid_argument,
                "compressed: {}; accepted are 0, and {} to half of dram, which is {}",
                human_bytes(config.compressed), human_bytes(kLeast), human_bytes(most));
  }
  if (config.compressed > most) {
    config.warnings.push_back(fmt::format(
        "compressed: {} is more than half of dram, so {} is used; raise dram, or lower compressed",
        human_bytes(config.compressed), human_bytes(most)));
    config.compressed = most;
  }
  return {};
}

bool is_memory_file_system(const std::string& directory) {
  struct statfs status {};
  return statfs(directory.c_str(), &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

struct Candidate {
  std::string directory;
  bool named;  // By TIERMEM_DIR; an error is then reported.
};

std::vector<Candidate> default_directories(const Environment& env) {
  if (const auto named = value_of(env, "TIERMEM_DIR")) {
    return {{*named, true}};
  }
  std::vector<Candidate> candidates;
  if (const std::string cache = cache_directory(env); !cache.empty()) {
    candidates.push_back({cache, false});
  }
  candidates.push_back({"/var/tmp", false});
  return candidates;
}

/// Returns 0 if files can be created in an existing directory, otherwise errno.
int access_error(const std::string& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) {
    return errno;
  }
  if (!S_ISDIR(status.st_mode)) {
    return ENOTDIR;
  }
  return access(directory.c_str(), R_OK | W_OK | X_OK) == 0 ? 0 : errno;
}

/// Takes the first directory that is usable or can be created. Having none is an error only if the
/// user named one.
Status settle_default_block(const Environment& env, Config& config) {
  for (const Candidate& candidate : default_directories(env)) {
    const std::string& directory = candidate.directory;
    if (!directory.starts_with('/')) {
      return fail(Code::invalid_argument,
                  "TIERMEM_DIR: '{:.100}' is not accepted; accepted is a "
                  "path that begins with /",
                  directory);
    }
    // A directory that the user named is never created, so that a typing error does not go
    // unnoticed.
    const std::string there = candidate.named ? directory : existing_part(directory);
    const int error = access_error(there);
    if (error != 0 && candidate.named) {
      return fail_native(Code::io_error, error,
                         "TIERMEM_DIR: {:.140}: {}; name a directory that exists and that this "
                         "user may write to",
                         directory, std::strerror(error));
    }
    std::string reason = error != 0 ? std::strerror(error) : "";
    if (reason.empty() && !candidate.named && is_memory_file_system(there)) {
      reason = "it is memory itself";
    }
    std::uint64_t cap = 0;
    if (reason.empty()) {
      const auto room = file_system_room(there);
      cap = room.ok() ? guessed_cap(config, usable(config, *room)) : 0;
      if (cap < kSmallestGuess) {
        reason = room.ok() ? "only " + human_bytes(room->free) + " are free" : room.message();
      }
    }
    if (reason.empty()) {
      config.block = {{directory, 0}};
      config.block_budget = cap;
      config.block_hard = false;
      config.block_is_made = there != directory;
      config.notes.push_back(fmt::format("nvme: {} in {}", human_bytes(cap), directory));
      return {};
    }
    config.notes.push_back(fmt::format("nvme: not in {}: {}", directory, reason));
  }
  config.notes.emplace_back("nvme: none; DRAM only");
  return {};
}

// ---- checks across options --------------------------------------------------------------------

void settle_workers(const HostFacts& facts, Config& config) {
  if (config.workers == 0) {
    const std::uint64_t cores = std::max<std::uint64_t>(facts.cores.number().value_or(1), 1);
    config.workers = static_cast<unsigned>(std::clamp<std::uint64_t>(cores - 1, 1, 4));
    config.populate_workers =
        static_cast<unsigned>(std::clamp<std::uint64_t>(cores - config.workers, 0, 4));
  }
}

// If processors are scarce, polling takes time from the program.
void settle_polling(const HostFacts& facts, Config& config) {
  if (config.busy_poll != Config::kAutoPoll) {
    return;
  }
  const bool limited = facts.cpu_time_is_limited();
  config.busy_poll = limited ? 0 : 200;
  if (limited) {
    config.notes.push_back(
        fmt::format("busy_poll: 0, a cgroup limits processor time to {} % of one processor",
                    facts.cpu_limit.value));
  }
}

// Each device uses its measured tuning. One port serves all devices, so its defaults are the
// largest that any of them needs, and only if all are known. The gap is the smallest, so that no
// device reads bytes that cost more than another request.
void settle_tuning(const Environment& env, const HostFacts& facts, const Wanted& wanted,
                   Config& config) {
  const std::string cache = cache_directory(env);
  const std::int64_t now = std::time(nullptr);
  unsigned depth = 0;
  std::uint64_t piece = 0;
  std::uint64_t gap = find_option("gather_gap")->high;
  for (const BlockDevice& device : config.block) {
    FoundTuning& found = config.tuning.emplace_back();
    if (!config.tuned) {
      found.reason = "tuned=off";
      continue;
    }
    const auto id =
        identify_device(config.block_is_made ? existing_part(device.path) : device.path);
    found = id.ok() ? find_tuning(cache, *id, facts.kernel.value, now)
                    : FoundTuning{std::nullopt, id.message()};
    if (found.tuning) {
      depth = std::max(depth, found.tuning->depth);
      piece = std::max(piece, found.tuning->piece);
      gap = std::min(gap, found.tuning->gap);
    }
  }
  const bool all = !config.tuning.empty() &&
                   std::all_of(config.tuning.begin(), config.tuning.end(),
                               [](const FoundTuning& found) { return found.tuning.has_value(); });
  if (!all) {
    return;
  }
  const auto named = [&](const char* option) { return wanted.named.contains(find_option(option)); };
  if (!named("depth") || !named("piece")) {
    config.depth = named("depth") ? config.depth : depth;
    config.piece = named("piece") ? config.piece : piece;
    config.notes.push_back(fmt::format("depth: {}, piece: {}, as tiermem tune found best",
                                       config.depth, format_size(config.piece)));
  }
  if (!named("gather_gap")) {
    config.gather_gap = gap;
  }
}

Result<Config> load(std::span<const Spec> tiers, const char* toml_path, const Environment& env,
                    const HostFacts& facts) {
  const auto sources = read_sources(tiers, toml_path, env);
  if (!sources.ok()) {
    return sources.status().clone();
  }
  Config config;
  Wanted wanted;
  for (const Settings& source : *sources) {
    for (const Setting& setting : source) {
      Status applied = apply_setting(setting, config, wanted);
      if (!applied.ok()) {
        return applied;
      }
    }
  }
  if (!config.gpus.empty() && config.fork == Fork::follow) {
    return fail(Code::unsupported,
                "gpu with fork=follow: a child of fork cannot use its parent's GPU; remove one of "
                "the two options");
  }
  if (!config.pmem.empty() && config.fork == Fork::follow) {
    return fail(
        Code::unsupported,
        "pmem with fork=follow: a child of fork would store into its parent's bytes; remove "
        "one of the two options");
  }
  if (config.numa.size() + config.pmem.size() >= kMostMemories) {
    return fail(Code::invalid_argument,
                "numa and pmem: {} memories; accepted are at most {} behind DRAM; name fewer",
                config.numa.size() + config.pmem.size(), kMostMemories - 1);
  }
  settle_workers(facts, config);
  settle_polling(facts, config);
  Status status = settle_dram(wanted, facts, config);
  if (status.ok() && config.row_cache != 0) {
    status = check_row_cache(config);
  }
  if (status.ok() && !wanted.devices) {
    status = settle_default_block(env, config);
  } else if (status.ok() && !wanted.devices->empty()) {
    status = settle_named_devices(*wanted.devices, config);
  }
  if (status.ok()) {
    status = settle_slow_tiers(wanted.slow, config);
  }
  if (status.ok()) {
    status = settle_compressed(config);
  }
  if (!status.ok()) {
    return status;
  }
  settle_tuning(env, facts, wanted, config);
  return config;
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> const char* { return secure_getenv(name); };
}

std::string cache_directory(const Environment& env) {
  const auto cache = value_of(env, "XDG_CACHE_HOME");
  const auto home = value_of(env, "HOME");
  if (cache && cache->starts_with('/')) {  // The XDG standard says to ignore a relative path.
    return *cache + "/tiermem";
  }
  // A service may have a home directory that does not exist. tiermem does not create it.
  return home && home->starts_with('/') && access(home->c_str(), F_OK) == 0
             ? *home + "/.cache/tiermem"
             : "";
}

int make_directories(const std::string& directory) {
  for (std::size_t at = directory.find('/', 1);; at = directory.find('/', at + 1)) {
    if (mkdir(directory.substr(0, at).c_str(), 0700) != 0 && errno != EEXIST && errno != EROFS &&
        errno != EACCES && errno != EPERM) {
      // For an existing directory mkdir may return another error; access() below decides.
      return errno;
    }
    if (at == std::string::npos) {
      break;
    }
  }
  return access_error(directory);
}

std::string existing_part(const std::string& directory) {
  std::string part = directory;
  struct stat status {};
  while (part.size() > 1 && stat(part.c_str(), &status) != 0 && errno == ENOENT) {
    part.resize(std::max<std::size_t>(part.rfind('/'), 1));
  }
  return part;
}

Status make_default_block(const Config& config) {
  if (!config.block_is_made) {
    return {};
  }
  const std::string& directory = config.block.front().path;
  const int error = make_directories(directory);
  return error == 0 ? Status()
                    : fail_native(Code::io_error, error,
                                  "nvme: cannot create {:.140}: {}; name a directory, such as "
                                  "nvme=/data",
                                  directory, std::strerror(error));
}

LogWish log_wish(std::string_view tiers, const char* toml_path, const Environment& env) {
  const ArenaScope scope;
  Config config;
  try {
    const Spec spec = spec_of(tiers);
    for (const Result<Settings>& source : all_sources({&spec, 1}, toml_path, env)) {
      for (const Setting& setting : source.ok() ? *source : Settings()) {
        if (setting.option == find_option("log") || setting.option == find_option("log_file")) {
          (void)apply_option(config, *setting.option, setting.items.front(), setting.origin);
        }
      }
    }
  } catch (const std::exception&) {
    return {};  // Out of memory. The error that the log was for still reaches the caller.
  }
  return {config.log, config.log_file};
}

Result<Config> load_config(std::string_view tiers, const char* toml_path, const Environment& env,
                           const HostFacts& facts) {
  const ArenaScope scope;
  try {
    const Spec spec = spec_of(tiers);
    return load({&spec, 1}, toml_path, env, facts);
  } catch (const std::exception& error) {
    return fail(Code::internal, "configuration: {:.200}", error.what());
  }
}

Result<Config> load_config(std::span<const Spec> tiers, const char* toml_path,
                           const Environment& env, const HostFacts& facts) {
  const ArenaScope scope;
  try {
    return load(tiers, toml_path, env, facts);
  } catch (const std::exception& error) {
    return fail(Code::internal, "configuration: {:.200}", error.what());
  }
}

}  // namespace tiermem
