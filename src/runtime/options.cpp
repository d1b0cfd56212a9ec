// The table first, then the parsing of values.
#include "runtime/options.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "os/io_lanes.hpp"
#include "residency/extents.hpp"
#include "tier/frame.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;
constexpr std::uint64_t kAutomatic = BlockFileOptions::kDefaultReserve;  // The number for `auto`.
constexpr std::size_t kLongestPath = 4095;

/// Stores a number, or a choice's index as its enum or bool.
template <auto Field>
void set(Config& config, const OptionValue& value) {
  using T = std::remove_reference_t<decltype(config.*Field)>;
  if constexpr (std::is_same_v<T, std::string>) {
    config.*Field = value.text;
  } else {
    config.*Field = static_cast<T>(value.number);
  }
}

void set_mechanism(Config& config, const OptionValue& value) {
  constexpr std::array kChoices = {Mechanism::uffd_move, Mechanism::copy, Mechanism::remap,
                                   Mechanism::in_place};
  config.mechanism.reset();
  if (value.number > 0) {
    config.mechanism = kChoices[value.number - 1];
  }
}

using enum OptionType;

// Choices are in the order of their enum's values; on|off fields list off first, as false.
constexpr std::array kOptions = {
    Option{"dram", budget, "80 % of what the cgroup and the machine leave", kSmallestExtent,
           kTiB * 65536, "", "TIERMEM_DRAM",
           "Budget of the DRAM tier. A named budget is never exceeded; a percentage refers to the "
           "memory left at start. The default is a guess, and advisory.",
           "ConfigTest.a_named_dram_budget_is_hard", nullptr},
    Option{"nvme", devices, "a directory of tiermem, capped", 2 * kMiB, kTiB * 65536, "off",
           "TIERMEM_NVME",
           "Directories or raw devices of the block tier, each with its cap. Without a size, a "
           "directory shares 16 times the DRAM budget, at most half of the free room. `off`: DRAM "
           "only. `block` is the same option.",
           "ConfigTest.devices_with_sizes_make_a_hard_cap", nullptr},
    Option{"slow", devices, "off", 2 * kMiB, kTiB * 65536, "off", "TIERMEM_SLOW",
           "Further slot tiers behind `nvme`, each a directory or raw device with its cap. Bytes "
           "that `nvme` has no room for go to the first of these tiers that has room. Each needs a "
           "size.",
           "SlowTiers.bytes_that_the_first_tier_has_no_room_for_go_to_the_second", nullptr},
    Option{"compressed", size, "off", 0, kTiB, "off", "TIERMEM_COMPRESSED",
           "A part of the DRAM budget, at most half of it, for compressed pages of mapped buffers. "
           "Pages that leave memory and shrink go there before they go to `nvme`, and come back "
           "without "
           "I/O. 0: none.",
           "CompressedMemory.pages_that_shrink_come_back_without_reads_of_the_drive",
           set<&Config::compressed>},
    Option{"numa", numbered, "off", 2 * kMiB, kTiB * 64, "off", "TIERMEM_NUMA",
           "Memories of NUMA nodes behind DRAM, such as CXL expanders, each with its budget: "
           "`2:64G`, or `1:8G,2:64G`. Bytes that leave DRAM go to the first of them that has room, "
           "and come back when they are used again. Without a size: 80 % of the memory of the node "
           "that is free at start.",
           "NodeMemories.bytes_that_dram_has_no_room_for_go_to_the_node", nullptr},
    Option{
        "pmem", devices, "off", 2 * kMiB, kTiB * 64, "off", "TIERMEM_PMEM",
        "Persistent memory behind DRAM and the NUMA nodes, each with its budget: a directory on a "
        "DAX file system, as in `/mnt/pm:32G`, or a DAX device such as `/dev/dax0.0`. The "
        "processor reads and writes it in place. It takes no bytes of mapped buffers. A directory "
        "needs a size; without one, a device is taken whole.",
        "PersistentMemories.bytes_that_dram_has_no_room_for_go_to_persistent_memory", nullptr},
    Option{
        "gpu", numbered, "off", 2 * kMiB, kTiB * 64, "off", "TIERMEM_GPU",
        "GPUs with memory that is a tier, by the driver's number, each with its budget: `0:16G`, "
        "or `0:16G,1`. Without a size: the memory free at start, less 5 % (at least 512 MiB).",
        "GpuContext.a_buffer_larger_than_the_budget_goes_through_the_device", nullptr},
    Option{"gpu_staging", size, "64M", 2 * kMiB, kTiB, "", "TIERMEM_GPU_STAGING",
           "Staging memory between GPUs and the block tier. It is a part of the DRAM budget, at "
           "most a quarter of it.",
           "GpuContext.staging_is_of_the_dram_budget", set<&Config::gpu_staging>},
    Option{"gpu_driver", path, "libcuda.so.1", 0, 0, "libcuda.so.1", "TIERMEM_GPU_DRIVER",
           "The CUDA driver's library, where the loader does not find it by this name.",
           "GpuContext.a_driver_that_is_absent_is_told_of", set<&Config::gpu_driver>},
    Option{"gpu_direct", choice, "auto", 0, 0, "auto|direct|staged", "TIERMEM_GPU_DIRECT",
           "The path of bytes between GPUs and the block tier. `direct`: past the host, by cuFile, "
           "for buffers without checksums; an error says why if there is no such path. `auto` and "
           "`staged`: through the host, without cuFile.",
           "DirectBytes.go_to_the_disk_and_come_back_and_receipts_say_so",
           set<&Config::gpu_direct>},
    Option{"gpu_cufile", path, "libcufile.so.0", 0, 0, "libcufile.so.0", "TIERMEM_GPU_CUFILE",
           "NVIDIA's cuFile, where the loader does not find it by this name. Opened in a child "
           "process first.",
           "DirectPath.is_refused_where_it_is_demanded_with_the_reason", set<&Config::gpu_cufile>},
    Option{"extent", power_of_two, "2M", kSmallestExtent, kLargestExtent, "", "TIERMEM_EXTENT",
           "Extent size of buffers that name none and are not small.",
           "OptionsTest.extent_is_the_size_of_large_buffers_extents", set<&Config::extent>},
    Option{"depth", count, "64", 1, 1024, "", "TIERMEM_DEPTH",
           "Transfers under way at once on each device of the block tier. Unless named, the choice "
           "of `tiermem tune`.",
           "BlockTier.pieces_keep_to_their_size_and_the_device_to_its_depth", set<&Config::depth>},
    Option{"piece", power_of_two, "2M", 4096, 64 * kMiB, "", "TIERMEM_PIECE",
           "Largest single read or write given to a device. Unless named, the choice of `tiermem "
           "tune`.",
           "BlockTier.pieces_keep_to_their_size_and_the_device_to_its_depth", set<&Config::piece>},
    Option{"tuned", choice, "on", 0, 0, "off|on", "TIERMEM_TUNED",
           "Whether the results of `tiermem tune` set `depth`, `piece` and `gather_gap`, if all "
           "devices have results.",
           "TunedConfigTest.a_tuned_device_has_its_own_defaults", set<&Config::tuned>},
    Option{"io_engine", choice, "auto", 0, 0, "auto|io_uring|threads", "TIERMEM_IO_ENGINE",
           "The interface of the block tier to the kernel. `auto`: io_uring, or threads if it is "
           "refused. A named engine that is refused is an error.",
           "OptionsTest.io_engine_threads_keeps_every_byte", set<&Config::io_engine>},
    Option{"direct", choice, "auto", 0, 0, "auto|require", "TIERMEM_DIRECT",
           "O_DIRECT. `auto`: if the file system supports it; `require`: an error if it does not.",
           "BlockFaults.direct_io_that_is_required_is_never_replaced", set<&Config::direct>},
    Option{
        "mechanism", choice, "auto", 0, 0, "auto|uffd_move|copy|remap|in_place",
        "TIERMEM_MECHANISM",
        "How a frame appears in a window. `auto`: the cheapest that works here. A named one that "
        "does not work is an error. Mapped buffers need `uffd_move` or, before Linux 6.8, `copy`.",
        "DramWindows.bytes_are_in_the_window_and_go_home_with_the_frame", set_mechanism},
    Option{"huge_pages", choice, "auto", 0, 0, "auto|require|off", "TIERMEM_HUGE_PAGES",
           "Transparent huge pages for frames. `require`: an error where the kernel has none.",
           "Dram.required_huge_pages_come_or_fail", set<&Config::huge_pages>},
    Option{"userfault", choice, "auto", 0, 0, "off|auto|user_mode|signal", "TIERMEM_USERFAULT",
           "userfaultfd. `off`: not used even if the kernel offers it. `user_mode`: only user-mode "
           "faults are served, so system calls on absent bytes of mapped buffers fail with EFAULT. "
           "`signal`: the same, and touches raise SIGBUS: the touching thread brings its page "
           "itself, which takes the least processor time for small touches at random.",
           "MappedUserMode.system_calls_on_absent_bytes_fail_and_touches_do_not",
           set<&Config::userfault>},
    Option{"checksum", choice, "on", 0, 0, "off|on", "TIERMEM_CHECKSUM",
           "Checksums of every slot, verified before its bytes are shown.",
           "OptionsTest.checksum_decides_whether_a_changed_slot_is_noticed",
           set<&Config::checksum>},
    Option{"fork", choice, "end", 0, 0, "end|follow", "TIERMEM_FORK",
           "State of a child of fork. `end`: readable views and a closed context. `follow`: the "
           "context, with the mapped buffers as of the fork, beside the parent's; handles of other "
           "buffers are stale there.",
           "Fork.a_child_sees_the_bytes_of_the_fork_while_the_parent_overwrites_them",
           set<&Config::fork>},
    Option{"workers", count, "0", 0, 256, "", "TIERMEM_WORKERS",
           "Worker threads. 0: one fewer than the processors allowed, at least 1 and at most 4; "
           "for each processor left, up to 4, another thread that only brings fresh pages. Four or "
           "more also move pages. The former names `hands` and `TIERMEM_HANDS` are accepted until "
           "0.3.",
           "ConfigTest.workers_follow_the_processors_unless_named", set<&Config::workers>},
    Option{"ahead", percent, "6", 0, 50, "", "TIERMEM_AHEAD",
           "Maximum part of the DRAM budget that is evicted in advance, in per cent; the actual "
           "part follows the need. 0: room is made only on request.",
           "OptionsTest.ahead_0_evicts_only_what_is_needed", set<&Config::ahead>},
    Option{
        "gather_gap", size, "16K", 0, kMiB, "", "TIERMEM_GATHER_GAP",
        "Maximum bytes between two blocks that a gather reads in one request: the bytes that a "
        "device reads in the time of another request. Unless named, the result of `tiermem tune`.",
        "Gather.neighbours_are_read_together_up_to_the_gap", set<&Config::gather_gap>},
    Option{"row_cache", size, "off", 0, kTiB, "off", "TIERMEM_ROW_CACHE",
           "Memory of the DRAM budget, at most half of it, for single rows of up to 4 KiB that "
           "gathers request repeatedly. The first gather takes it, and the context keeps it. Needs "
           "`checksum`.",
           "RowCaching.rows_that_come_again_are_not_read_again", set<&Config::row_cache>},
    Option{"busy_poll", count, "auto", 0, 1'000'000, "auto", "TIERMEM_BUSY_POLL",
           "Microseconds for which the mover's thread and the toucher's processor stay awake after "
           "a touch of a mapped buffer that had to wait, unless other threads want the processors. "
           "0: they sleep. `auto`: 200, or 0 if a cgroup limits processor time.",
           "BusyPoll.it_stays_awake_after_a_touch_and_sleeps_later", set<&Config::busy_poll>},
    Option{"endurance", size, "0", 0, kTiB * 65536, "", "TIERMEM_ENDURANCE",
           "Bytes that may be written to the block tier in a day, for devices that wear. The "
           "budget of a day may be spent at once, and refills evenly. Beyond it dirty bytes stay "
           "in memory. 0: no limit.",
           "OptionsTest.endurance_limits_what_is_written", set<&Config::endurance>},
    Option{"reserve_free", size, "auto", 0, kTiB * 65536, "auto", "TIERMEM_RESERVE_FREE",
           "Bytes of a file system that the block tier leaves free. `auto`: 5 %, at most 1G.",
           "BlockFile.the_reserve_of_the_file_system_stays_free", set<&Config::reserve_free>},
    Option{"log", choice, "off", 0, 0, "off|error|warn|info|debug", "TIERMEM_LOG",
           "Level of the log. Each level includes those before it.",
           "Log.only_messages_at_or_above_the_level_are_written", set<&Config::log>},
    Option{"log_file", path, "stderr", 0, 0, "stderr", "TIERMEM_LOG_FILE",
           "Destination of the log: a file, which is appended to, or `stderr`.",
           "Log.descriptors_1_and_2_stay_silent_unless_asked", set<&Config::log_file>},
    Option{"receipts", count, "4096", 0, 16384, "", "TIERMEM_RECEIPTS",
           "Number of receipts kept, the newest ones, for `Context::why()`. 0: only totals.",
           "Receipts.the_option_says_how_many_are_kept", set<&Config::receipts>},
    Option{"stats_file", path, "off", 0, 0, "off", "TIERMEM_STATS_FILE",
           "File into which counters and receipts are written as JSON when a context is closed. "
           "`%p` in it is the process's number.",
           "Receipts.a_closed_context_leaves_its_counters_in_a_file", set<&Config::stats_file>},
    Option{"inspect", path, "off", 0, 0, "off", "TIERMEM_INSPECT",
           "Directory for a socket at which each context answers `tiermem why`. Only the user of "
           "the process and root may ask.",
           "Inspect.what_a_context_says_of_its_buffers_is_right", set<&Config::inspect>},
};

std::vector<std::string_view> words_of(std::string_view choices) {
  std::vector<std::string_view> words;
  while (true) {
    const auto bar = choices.find('|');
    words.push_back(choices.substr(0, bar));
    if (bar == std::string_view::npos) {
      return words;
    }
    choices = choices.substr(bar + 1);
  }
}

/// The end of a text that is too long for a message. The end tells files apart.
std::string clipped(std::string_view text, std::size_t room) {
  return text.size() <= room ? std::string(text)
                             : "…" + std::string(text.substr(text.size() - room));
}

std::optional<std::uint64_t> parse_digits(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::optional<OptionValue> parse_value(const Option& option, std::string_view text) {
  std::optional<std::uint64_t> number;
  if (text == "auto" && text == option.choices) {
    return OptionValue{kAutomatic, std::string(text)};
  }
  if (text == "off" && text == option.choices && option.type == size) {
    return OptionValue{0, std::string(text)};
  }
  switch (option.type) {
    case size:
    case power_of_two: {
      const auto bytes = parse_size(text);
      if (bytes.ok() && (option.type == size || std::has_single_bit(*bytes))) {
        number = *bytes;
      }
      break;
    }
    case percent:
      if (text.ends_with('%')) {
        text = trim(text.substr(0, text.size() - 1));
      }
      [[fallthrough]];
    case count:
      number = parse_digits(text);
      break;
    case choice: {
      const auto words = words_of(option.choices);
      const auto found = std::find(words.begin(), words.end(), text);
      if (found == words.end()) {
        return std::nullopt;
      }
      return OptionValue{static_cast<std::uint64_t>(found - words.begin()), std::string(text)};
    }
    case path: {
      const bool clean = std::none_of(text.begin(), text.end(),
                                      [](unsigned char c) { return c < 0x20 || c == 0x7f; });
      if (text.empty() || text.size() > kLongestPath || !clean) {
        return std::nullopt;
      }
      return OptionValue{0, std::string(text)};
    }
    case budget:
    case devices:
    case numbered:
      break;  // load_config() reads it, because it knows the machine.
  }
  if (!number || *number < option.low || *number > option.high) {
    return std::nullopt;
  }
  return OptionValue{*number, std::string(text)};
}

}  // namespace

std::size_t most_devices(const Option& option) {
  constexpr std::size_t kMask = 64;  // SlotTier names devices in a 64-bit mask.
  const std::string_view name = option.name;
  return name == "slow"                     ? IoLanes::kMostTiers - 1
         : name == "numa" || name == "pmem" ? kMostMemories - 1
         : name == "gpu"                    ? kMaxSpaces - 1
                                            : kMask;
}

std::span<const Option> option_table() {
  return kOptions;
}

const Option* find_option(std::string_view name) {
  if (name == "block") {
    name = "nvme";
  } else if (name == "hands") {
    name = "workers";
  }
  const auto found = std::find_if(kOptions.begin(), kOptions.end(),
                                  [&](const Option& option) { return name == option.name; });
  return found == kOptions.end() ? nullptr : &*found;
}

const char* former_variable(const Option& option) {
  return std::string_view(option.name) == "workers" ? "TIERMEM_HANDS" : nullptr;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

const char* nearest_option(std::string_view name) {
  name = name.substr(0, 64);  // A typing error is never longer.
  return std::min_element(kOptions.begin(), kOptions.end(),
                          [&](const Option& a, const Option& b) {
                            return edit_distance(name, a.name) < edit_distance(name, b.name);
                          })
      ->name;
}

std::string accepted_values(const Option& option) {
  switch (option.type) {
    case budget:
      return fmt::format("a size of at least {}, such as 4G, or a percentage such as 50%",
                         format_size(option.low));
    case devices:
      return fmt::format(
          "/path:size with sizes of at least {}, up to {} separated by commas, or off",
          format_size(option.low), most_devices(option));
    case numbered:
      return fmt::format(
          "number:size with sizes of at least {}, or a number, up to {} separated "
          "by commas, or off",
          format_size(option.low), most_devices(option));
    case size:
      return fmt::format("a size from {} to {}{}{}", format_size(option.low),
                         format_size(option.high), *option.choices == '\0' ? "" : ", or ",
                         option.choices);
    case power_of_two:
      return fmt::format("a power of two from {} to {}", format_size(option.low),
                         format_size(option.high));
    case count:
      return fmt::format("a number from {} to {}{}{}", option.low, option.high,
                         *option.choices == '\0' ? "" : ", or ", option.choices);
    case percent:
      return fmt::format("a percentage from {} to {}", option.low, option.high);
    case choice:
      return fmt::format("{}", fmt::join(words_of(option.choices), ", "));
    case path:
      return fmt::format("a path, or {}", option.choices);
  }
  return {};
}

Status refuse_value(const Option& option, std::string_view value, std::string_view origin) {
  ErrorInfo info =
      error_info(Code::invalid_argument, "{}: '{}' ({}) is not accepted; accepted: {}", option.name,
                 clipped(value, 48), clipped(origin, 64), accepted_values(option));
  set_text(info.setting, option.name);
  return Status(info);
}

Status apply_option(Config& config, const Option& option, std::string_view value,
                    std::string_view origin) {
  const auto parsed = parse_value(option, trim(value));
  if (!parsed) {
    return refuse_value(option, value, origin);
  }
  option.apply(config, *parsed);
  return {};
}

std::string option_table_markdown() {
  std::string text =
      "| Option | Default | Accepted | Environment | Meaning | Observed by |\n"
      "|---|---|---|---|---|---|\n";
  for (const Option& option : kOptions) {
    const std::string observed = *option.observed_by == '\0'
                                     ? std::string("no test yet")
                                     : fmt::format("`{}`", option.observed_by);
    text += fmt::format("| `{}` | {} | {} | `{}` | {} | {} |\n", option.name, option.fallback,
                        accepted_values(option), option.env, option.meaning, observed);
  }
  return text;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// digits [ . digits ] [ K | M | G | T | P | E [ i B ] | B ], in either case. "4GB" is refused,
// because many people read it as 4 * 10^9. A fraction needs a unit, and is rounded down to whole
// bytes.
Result<std::uint64_t> parse_size(std::string_view text) {
  constexpr std::string_view kUnits = "KMGTPE";
  constexpr std::size_t kFractionDigits = 9;
  const std::string_view whole_text = trim(text);
  const auto refuse = [&](const char* why) {
    return fail(Code::invalid_argument,
                "'{}' is not a size: {}; accepted: 4096, 64K, 4G, 1.5G, 2MiB (powers of 1024)",
                clipped(whole_text, 48), why);
  };
  const auto after_digits = std::min(whole_text.find_first_not_of("0123456789"), whole_text.size());
  const auto whole = parse_digits(whole_text.substr(0, after_digits));
  if (!whole) {
    return refuse(after_digits == 0 ? "it does not begin with a digit" : "it is above 2^64-1");
  }
  std::string_view rest = whole_text.substr(after_digits);
  std::uint64_t fraction = 0;
  std::uint64_t scale = 1;
  const bool has_fraction = rest.starts_with('.');
  if (has_fraction) {
    rest.remove_prefix(1);
    const auto digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (digits == 0 || digits > kFractionDigits) {
      return refuse("after the point it needs 1 to 9 digits");
    }
    fraction = *parse_digits(rest.substr(0, digits));
    for (std::size_t i = 0; i < digits; ++i) {
      scale *= 10;
    }
    rest.remove_prefix(digits);
  }
  std::string unit(trim(rest));
  std::transform(unit.begin(), unit.end(), unit.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  const auto power = unit.empty() ? std::string_view::npos : kUnits.find(unit[0]);
  const bool known =
      power != std::string_view::npos && (unit.size() == 1 || unit.substr(1) == "IB");
  if (!known && !unit.empty() && unit != "B") {
    return refuse("its unit is unknown");
  }
  if (!known && has_fraction) {
    return refuse("a fraction needs a unit");
  }
  const unsigned shift = known ? 10 * (static_cast<unsigned>(power) + 1) : 0;
  // Below 2^124: 64 bits shifted by at most 60.
  using Wide = unsigned __int128;
  const Wide bytes = (Wide{*whole} << shift) + (Wide{fraction} << shift) / scale;
  if (bytes > std::numeric_limits<std::uint64_t>::max()) {
    return refuse("it is above 2^64-1");
  }
  return static_cast<std::uint64_t>(bytes);
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::string_view kUnits = "KMGTPE";
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? std::to_string(bytes) : fmt::format("{}{}", bytes, kUnits[unit - 1]);
}

}  // namespace tiermem
