// The configuration of one context: its tiers, their sizes, and every option as a typed field.
// load_config() is the only way from text to it. Each option takes its value from the first of
// these sources that has one: the spec string, the caller's TOML file, TIERMEM_<OPTION>,
// TIERMEM_TIERS, the TOML file named by TIERMEM_CONFIG, the machine.
//
// Threads: plain values; load_config() may block on files, and creates nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "os/block_file.hpp"
#include "os/cuda_driver.hpp"
#include "os/cufile.hpp"
#include "os/host_facts.hpp"
#include "os/waitable_io_port.hpp"
#include "runtime/tuning.hpp"
#include "tier/host_space.hpp"
#include "tiermem/status.hpp"

namespace tiermem {

/// How a child of fork continues with the context.
enum class Fork : std::uint8_t { end, follow };
enum class DirectIo : std::uint8_t { automatic, require };
/// The path of bytes between GPUs and disks.
enum class GpuDirect : std::uint8_t { automatic, direct, staged };

/// One directory or raw device of the block tier. `bytes` 0: it shares the rest of the tier's cap
/// with the other devices without a size.
struct BlockDevice {
  std::string path;
  std::uint64_t bytes = 0;
  friend bool operator==(const BlockDevice&, const BlockDevice&) = default;
};

/// A tier that is named by a number, with its budget. `bytes` 0: a part of its free memory.
struct NumberedTier {
  unsigned index = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const NumberedTier&, const NumberedTier&) = default;
};
using GpuDevice = NumberedTier;   ///< A GPU's memory, by the driver's number.
using NodeMemory = NumberedTier;  ///< The memory of a NUMA node, by the kernel's number.

/// Fields have the defaults of the option table; load_config() sets the budgets.
struct Config {
  static constexpr unsigned kAutoPoll = ~0U;

  std::string name;  ///< The context's name, for messages; its creator sets it.

  /// `hard`: the user named the budget, so it is never exceeded. Otherwise it is a guess.
  struct Dram {
    std::uint64_t budget = 0;
    bool hard = false;
    friend bool operator==(const Dram&, const Dram&) = default;
  } dram;
  /// Memories of NUMA nodes behind DRAM, in the order of demotion.
  std::vector<NodeMemory> numa;
  /// The bandwidths of DRAM and of these memories, in one unit; 0: not known. For interleaved
  /// buffers. judge_numa() sets it.
  std::vector<std::uint64_t> bandwidths;
  /// Memories in persistent memory behind these, in the order of demotion: directories, and DAX
  /// devices. `bytes` 0: the whole device.
  std::vector<BlockDevice> pmem;
  std::uint64_t compressed = 0;    ///< Bytes of the DRAM budget for compressed memory; 0: none.
  std::vector<BlockDevice> block;  ///< Empty: DRAM only.
  std::uint64_t block_budget = 0;  ///< Cap over all devices, bytes.
  bool block_hard = false;
  /// Further slot tiers in the order of demotion, one device each. All have sizes.
  std::vector<BlockDevice> slow;
  bool block_is_made =
      false;  ///< The directory is tiermem's default; make_default_block() creates it.

  std::vector<GpuDevice> gpus;  ///< In the order they were named; empty: none.
  std::uint64_t gpu_staging = std::uint64_t{64} << 20;
  std::string gpu_driver = CudaDriver::kUsualLibrary;
  GpuDirect gpu_direct = GpuDirect::automatic;
  std::string gpu_cufile = CuFileProbe::kUsualLibrary;

  std::uint64_t extent = std::uint64_t{2} << 20;
  unsigned depth = 64;
  std::uint64_t piece = std::uint64_t{2} << 20;
  Engine io_engine = Engine::automatic;
  DirectIo direct = DirectIo::automatic;
  std::optional<Mechanism> mechanism{};  ///< Empty: chosen by probing.
  HugePages huge_pages = HugePages::automatic;
  UserfaultUse userfault = UserfaultUse::automatic;
  bool checksum = true;
  Fork fork = Fork::end;
  std::uint64_t gather_gap = std::uint64_t{16} << 10;
  std::uint64_t row_cache = 0;  ///< Bytes of the DRAM budget for rows of gathers; 0: none.
  unsigned workers = 0;         ///< load_config() never leaves 0.
  /// In addition to workers, for fresh pages only; 0 if workers are named.
  unsigned populate_workers = 0;
  unsigned ahead = 6;              ///< Percent of the DRAM budget that may be evicted in advance.
  unsigned busy_poll = kAutoPoll;  ///< Microseconds; load_config() never leaves kAutoPoll.
  std::uint64_t endurance = 0;  ///< Bytes a day that may be written to the block tier; 0: no limit.
  std::uint64_t reserve_free = BlockFileOptions::kDefaultReserve;
  LogLevel log = LogLevel::off;
  std::string log_file = "stderr";
  unsigned receipts = 4096;  ///< Number of receipts kept, the newest.
  std::string stats_file = "off";
  std::string inspect = "off";
  bool tuned = true;  ///< `depth` and `piece` default to the values that `tiermem tune` found.

  std::vector<FoundTuning> tuning;  ///< One for each device of `block`; load_config() fills it.

  /// Choices that tiermem made by itself, one sentence each, for `topo` and the log.
  std::vector<std::string> notes;
  /// Settings that work but are unwise or have no effect, one sentence each (fit.hpp).
  std::vector<std::string> warnings;

  friend bool operator==(const Config&, const Config&) = default;
};

/// getenv, or a test's replacement. nullptr: not set.
using Environment = std::function<const char*(const char* name)>;
/// The process's own; returns nothing in a set-user-id program.
Environment process_environment();

/// tiermem's directory in the user's cache: "$XDG_CACHE_HOME/tiermem", or "$HOME/.cache/tiermem".
/// Empty if neither is set; the directory need not exist.
std::string cache_directory(const Environment& env);
/// Creates the missing part of `directory`, each with mode 0700. Returns 0 or errno.
int make_directories(const std::string& directory);
/// The longest part of the absolute path `directory` that exists.
std::string existing_part(const std::string& directory);
/// Creates the default directory of the block tier if `config` uses it. For commands and contexts
/// that write there. Errors: io_error with errno.
Status make_default_block(const Config& config);
/// A spec string and its source.
struct Spec {
  std::string text;
  std::string origin;  ///< "--dram", "TIERMEM_TIERS".
};

/// The log's level and file according to the same sources, for a log that opens before the
/// configuration is accepted. Sources and values with mistakes are ignored.
struct LogWish {
  LogLevel level = LogLevel::off;
  std::string file = "stderr";
};
LogWish log_wish(std::string_view tiers, const char* toml_path, const Environment& env);

/// `tiers` may be empty, `toml_path` nullptr. Errors: invalid_argument naming option, value, origin
/// and the accepted values; unsupported for a kind of tier that this build lacks; io_error for a
/// named file or directory that cannot be used; unavailable if the machine's memory is unknown and
/// no budget is named.
Result<Config> load_config(std::string_view tiers, const char* toml_path, const Environment& env,
                           const HostFacts& facts);
/// The same with several spec strings, which together name no option twice. For a command line: its
/// errors name the option that was typed.
Result<Config> load_config(std::span<const Spec> tiers, const char* toml_path,
                           const Environment& env, const HostFacts& facts);

}  // namespace tiermem
