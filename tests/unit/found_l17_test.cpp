// At the start of a context, the names in its configuration are compared with the machine. The test
// defines the machine.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <string>

#include "runtime/fit.hpp"
#include "support/directory.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
using Kind = PathFacts::Kind;

/// A machine of 24 GiB with a disk, a file system in memory and a raw device; checks configurations
/// against it.
class Machine {
 public:
  Machine() {
    facts.memory_total = Fact::of(std::to_string(24 * kGiB));
    facts.memory_available = Fact::of(std::to_string(20 * kGiB));
    facts.cores = Fact::of("2");
    paths["/disk"] = Machine::disk(1, 80 * kGiB, 60 * kGiB);
    paths["/disk/other"] = paths["/disk"];
    paths["/shm"] = disk(2, 12 * kGiB, 12 * kGiB);
    paths["/shm"].in_memory = true;
    paths["/dev/nvme9n1"] = {.kind = Kind::raw, .group = 3, .total = 50 * kGiB};
  }

  static PathFacts disk(std::uint64_t group, std::uint64_t total, std::uint64_t free) {
    return {.kind = Kind::directory, .group = group, .total = total, .free = free};
  }
  /// Checks a spec string; records its warnings.
  Status judge(const std::string& spec) {
    auto config = load_config(
        spec, nullptr, [](const char*) -> const char* { return nullptr; }, facts);
    EXPECT_TRUE(config.ok()) << spec << ": " << config.message();
    if (!config.ok()) {
      return config.status().clone();
    }
    Status status = judge_fit(*config, facts, [this](const std::string& path) {
      const auto found = paths.find(path);
      return found != paths.end() ? found->second : PathFacts{.error = ENOENT};
    });
    warnings = config->warnings;
    return status;
  }
  /// Expects an error with operation, object, limit and remedy in one line.
  void expect_refused(const std::string& spec, std::initializer_list<const char*> words,
                      Code code = Code::invalid_argument) {
    const Status status = judge(spec);
    EXPECT_EQ(status.code(), code) << spec << ": " << status.message();
    expect_words(status.message(), words);
  }
  void expect_warned(const std::string& spec, std::initializer_list<const char*> words) {
    const Status status = judge(spec);
    EXPECT_TRUE(status.ok()) << spec << ": " << status.message();
    ASSERT_EQ(warnings.size(), 1U) << spec;
    expect_words(warnings[0], words);
  }
  static void expect_words(const std::string& sentence, std::initializer_list<const char*> words) {
    for (const char* word : words) {
      EXPECT_NE(sentence.find(word), std::string::npos) << word << " is not in: " << sentence;
    }
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
  }
  void expect_quiet(const std::string& spec) {
    const Status status = judge(spec);
    EXPECT_TRUE(status.ok()) << spec << ": " << status.message();
    EXPECT_TRUE(warnings.empty()) << spec << ": " << warnings[0];
  }

  HostFacts facts;
  std::map<std::string, PathFacts> paths;
  std::vector<std::string> warnings;
};

TEST(FaultsFound, L17_dram_beyond_the_machine_is_refused) {
  Machine machine;
  machine.expect_refused("dram=1T; nvme=off",
                         {"dram", "1.00 TiB", "this machine", "24.0 GiB", "80%"});
  machine.expect_refused("dram=25G; nvme=off", {"dram"});
  machine.expect_quiet("dram=20G; nvme=off");
  machine.expect_quiet("dram=50%; nvme=off");
  machine.expect_quiet("nvme=off");
}

TEST(FaultsFound, L17_dram_beyond_the_cgroup_is_refused_and_names_its_file) {
  Machine machine;
  for (const char* file : {"/g/memory.max", "/g/memory.high", "/g/memory.limit_in_bytes"}) {
    machine.facts.cgroup_limit = Fact::of(std::to_string(2 * kGiB));
    machine.facts.cgroup_usage = Fact::of("0");
    machine.facts.cgroup_file = Fact::of(file);
    machine.expect_refused("dram=3G; nvme=off", {"dram", "3.00 GiB", "2.00 GiB", file});
    machine.expect_quiet("dram=2G; nvme=off");
  }
}

TEST(FaultsFound, L17_dram_beyond_what_is_left_is_a_warning) {
  Machine machine;
  machine.expect_warned("dram=22G; nvme=off", {"dram", "22.0 GiB", "20.0 GiB", "left now"});
}

TEST(FaultsFound, L17_unknown_memory_is_not_judged) {
  Machine machine;
  machine.facts.memory_total = machine.facts.memory_available = Fact::missing("no procfs");
  machine.expect_quiet("dram=1T; nvme=off");
}

TEST(FaultsFound, L17_nvme_beyond_its_file_system_is_refused) {
  Machine machine;
  machine.expect_refused("dram=1G; nvme=/disk:100T",
                         {"nvme", "/disk", "100.0 TiB", "80.0 GiB", "name less"});
  machine.expect_refused("dram=1G; nvme=/disk:50G,/disk/other:50G", {"100.0 GiB", "80.0 GiB"});
  machine.expect_refused("dram=1G; nvme=/dev/nvme9n1:51G",
                         {"/dev/nvme9n1", "51.0 GiB", "50.0 GiB"});
  machine.expect_quiet("dram=1G; nvme=/disk:50G,/dev/nvme9n1:50G");
}

TEST(FaultsFound, L17_nvme_beyond_what_is_free_is_a_warning) {
  Machine machine;
  machine.expect_warned("dram=1G; nvme=/disk:70G", {"nvme", "/disk", "70.0 GiB", "59.0 GiB"});
  machine.expect_warned("dram=1G; nvme=/disk:30G,/disk/other:30G", {"60.0 GiB"});
  machine.expect_quiet("dram=1G; nvme=/disk:60G; reserve_free=0");
  machine.expect_warned("dram=1G; nvme=/disk:1G; reserve_free=60G", {"reserve_free"});
}

TEST(FaultsFound, L17_a_disk_that_is_memory_is_a_warning_and_counts_as_memory) {
  Machine machine;
  machine.expect_warned("dram=1G; nvme=/shm:1G", {"/shm", "in memory", "directory on a disk"});
  machine.expect_refused("dram=18G; nvme=/shm:10G",
                         {"/shm", "in memory", "10.0 GiB", "18.0 GiB", "24.0 GiB", "on a disk"});
}

TEST(FaultsFound, L17_places_that_cannot_be_used_are_refused) {
  Machine machine;
  machine.expect_refused("dram=1G; nvme=/typo:1G", {"nvme=/typo", "No such file", "may write to"});
  machine.paths["/plain"] = {.kind = Kind::other, .group = 1};
  machine.expect_refused("dram=1G; nvme=/plain:1G", {"/plain", "Not a directory"});
  machine.paths["/root-only"] = Machine::disk(1, 80 * kGiB, 60 * kGiB);
  machine.paths["/root-only"].error = EACCES;
  machine.expect_refused("dram=1G; nvme=/root-only:1G", {"/root-only", "Permission denied"},
                         Code::unavailable);
}

TEST(FaultsFound, L17_a_stats_file_that_cannot_be_written_is_refused) {
  Machine machine;
  machine.expect_quiet("dram=1G; nvme=off; stats_file=/disk/new-%p.json");
  machine.expect_refused("dram=1G; nvme=off; stats_file=/typo/new.json",
                         {"stats_file", "/typo/new.json", "No such file", "directory that exists"},
                         Code::io_error);
  machine.expect_refused("dram=1G; nvme=off; stats_file=/disk", {"Is a directory"}, Code::io_error);
  machine.paths["/locked"] = Machine::disk(1, kGiB, kGiB);
  machine.paths["/locked"].error = EACCES;
  machine.expect_refused("dram=1G; nvme=off; stats_file=/locked/a.json", {"Permission denied"},
                         Code::io_error);
}

TEST(FaultsFound, L17_a_log_file_that_cannot_be_written_is_refused) {
  Machine machine;
  machine.expect_quiet("dram=1G; nvme=off; log=warn; log_file=/disk/new.log");
  machine.expect_refused("dram=1G; nvme=off; log=warn; log_file=/typo/new.log",
                         {"log_file", "/typo/new.log", "No such file", "directory that exists"},
                         Code::io_error);
  machine.expect_warned("dram=1G; nvme=off; log_file=/disk/new.log", {"log_file", "log is off"});
}

TEST(FaultsFound, L17_an_extent_beyond_dram_is_a_warning) {
  Machine machine;
  machine.expect_warned("dram=16M; nvme=off; extent=64M", {"extent", "64.0 MiB", "16.0 MiB"});
}

TEST(FaultsFound, L17_a_configuration_creates_nothing_and_a_mistyped_directory_is_an_error) {
  Machine machine;
  const test::Directory own;
  std::map<std::string, std::string> variables;
  const Environment environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  variables["TIERMEM_DIR"] = own.path() + "/typo";
  const auto refused = load_config("dram=32M", nullptr, environment, machine.facts);
  EXPECT_EQ(refused.code(), Code::io_error);
  machine.expect_words(refused.message(), {"TIERMEM_DIR", "/typo", "No such file", "exists"});
  variables.erase("TIERMEM_DIR");
  variables["XDG_CACHE_HOME"] = own.path() + "/cache";
  const auto config = load_config("dram=32M", nullptr, environment, machine.facts);
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_TRUE(std::filesystem::is_empty(own.path()));
  if (!config->block.empty() && config->block[0].path.starts_with(own.path())) {
    EXPECT_TRUE(make_default_block(*config).ok());
    struct stat status {};
    ASSERT_EQ(stat((own.path() + "/cache/tiermem").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700U);
  }
}

TEST(FaultsFound, L17_this_machine_refuses_what_it_does_not_have) {
  const HostFacts facts = probe_host_facts();
  if (!facts.memory_total.available) {
    GTEST_SKIP() << facts.memory_total.reason;
  }
  EXPECT_EQ(load_fitting_config("dram=60000T; nvme=off", nullptr, facts).code(),
            Code::invalid_argument);
  const test::Directory own;
  EXPECT_EQ(load_fitting_config("dram=16M; nvme=" + own.path() + ":60000T", nullptr, facts).code(),
            Code::invalid_argument);
  EXPECT_TRUE(load_fitting_config("dram=16M; nvme=" + own.path() + ":64M", nullptr, facts).ok());
}

}  // namespace
}  // namespace tiermem
