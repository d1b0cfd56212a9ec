// Configuration from a spec string, TOML, the environment and the machine: accepted values, refused
// values with their errors, and which source takes precedence. The test defines environment and
// machine.
#include "runtime/config.hpp"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/settings.hpp"
#include "support/directory.hpp"
#include "tier/page_codec.hpp"

namespace tiermem {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    facts_.memory_available = Fact::of(std::to_string(10 * kGiB));
    facts_.cores = Fact::of("3");
    env_["TIERMEM_NVME"] = "off";  // Except in tests of the block tier.
  }

  Result<Config> load(std::string_view spec = {}, const char* toml = nullptr) {
    return load_config(
        spec, toml,
        [this](const char* name) -> const char* {
          const auto found = env_.find(name);
          return found == env_.end() ? nullptr : found->second.c_str();
        },
        facts_);
  }
  Config good(std::string_view spec = {}, const char* toml = nullptr) {
    auto config = load(spec, toml);
    EXPECT_TRUE(config.ok()) << spec << ": " << config.message();
    return config.ok() ? *config : Config();
  }
  /// Returns the message of the refusal, which must have `code`.
  std::string refusal(std::string_view spec, Code code = Code::invalid_argument,
                      const char* toml = nullptr) {
    const auto config = load(spec, toml);
    EXPECT_EQ(config.code(), code) << spec << ": " << config.message();
    return config.ok() ? "" : config.message();
  }
  std::string file(const std::string& name, const std::string& text) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  const test::Directory own_;
  const std::string& directory_ = own_.path();
  HostFacts facts_;
  std::map<std::string, std::string> env_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(ConfigTest, a_named_dram_budget_is_hard) {
  const Config named = good("dram=4G");
  EXPECT_EQ(named.dram.budget, 4 * kGiB);
  EXPECT_TRUE(named.dram.hard);
  const Config guessed = good();
  EXPECT_EQ(guessed.dram.budget, 8 * kGiB);
  EXPECT_FALSE(guessed.dram.hard);
  EXPECT_FALSE(guessed.notes.empty());
}

TEST_F(ConfigTest, a_percentage_of_dram_is_of_what_the_cgroup_leaves) {
  EXPECT_EQ(good("dram=50%").dram.budget, 5 * kGiB);
  EXPECT_TRUE(good("dram=50%").dram.hard);
  facts_.cgroup_limit = Fact::of(std::to_string(4 * kGiB));
  facts_.cgroup_usage = Fact::of(std::to_string(2 * kGiB));
  facts_.cgroup_reclaimable = Fact::of(std::to_string(kGiB));
  EXPECT_EQ(good("dram=50 %").dram.budget, kGiB + kGiB / 2);
  EXPECT_EQ(good("dram=12.5%").dram.budget, 3 * kGiB / 8);
  EXPECT_EQ(good("dram=100%").dram.budget, 3 * kGiB);
  EXPECT_EQ(good().dram.budget, 3 * kGiB * 4 / 5 / kMiB * kMiB);
}

TEST_F(ConfigTest, memory_that_is_unknown_needs_a_named_budget) {
  facts_.memory_available = Fact::missing("/proc/meminfo: Permission denied");
  EXPECT_TRUE(contains(refusal("", Code::unavailable), "/proc/meminfo: Permission denied"));
  EXPECT_TRUE(contains(refusal("dram=50%", Code::unavailable), "dram=4G"));
  EXPECT_EQ(good("dram=1G").dram.budget, kGiB);
}

TEST_F(ConfigTest, a_full_cgroup_still_gives_a_small_advisory_budget) {
  facts_.cgroup_limit = facts_.cgroup_usage = Fact::of(std::to_string(kGiB));
  EXPECT_EQ(good().dram.budget, 16 * kMiB);
  EXPECT_FALSE(good().dram.hard);
  refusal("dram=50%");
}

TEST_F(ConfigTest, devices_with_sizes_make_a_hard_cap) {
  const Config config = good("dram=1G; nvme=/data/a:100G,/data/b:50G");
  const std::vector<BlockDevice> expected = {{"/data/a", 100 * kGiB}, {"/data/b", 50 * kGiB}};
  EXPECT_EQ(config.block, expected);
  EXPECT_EQ(config.block_budget, 150 * kGiB);
  EXPECT_TRUE(config.block_hard);
  EXPECT_EQ(good("dram=1G; block=/data/a:100G").block.size(), 1U);
}

TEST_F(ConfigTest, parts_of_dram_are_switched_off_by_word_or_number) {
  for (const std::string off : {"off", "0"}) {
    EXPECT_EQ(good("dram=1G; row_cache=" + off + "; compressed=" + off).row_cache, 0U);
    EXPECT_EQ(good("dram=1G; compressed=" + off).compressed, 0U);
  }
  EXPECT_EQ(good("dram=1G; row_cache=1M").row_cache, kMiB);
  EXPECT_TRUE(contains(refusal("row_cache=none"), "or off"));
}

TEST_F(ConfigTest, gpus_are_read_in_every_accepted_spelling) {
  const struct {
    const char* value;
    std::vector<GpuDevice> gpus;
  } cases[] = {{"0:16G", {{0, 16 * kGiB}}},
               {"0", {{0, 0}}},
               {"1 : 2M, 0", {{1, 2 * kMiB}, {0, 0}}},
               {"off", {}}};
  for (const auto& each : cases) {
    EXPECT_EQ(good(std::string("dram=1G; gpu=") + each.value).gpus, each.gpus) << each.value;
  }
  const std::string path = file("g.toml", "[tiers]\ndram = \"1G\"\ngpu = [\"0:1G\", \"1\"]\n");
  EXPECT_EQ(good("", path.c_str()).gpus.size(), 2U);
  EXPECT_TRUE(good("dram=1G").gpus.empty());
}

TEST_F(ConfigTest, node_memories_are_read_in_the_order_of_naming) {
  const std::vector<NodeMemory> expected = {{2, 64 * kGiB}, {1, 0}};
  EXPECT_EQ(good("dram=1G; numa=2:64G,1").numa, expected);
  EXPECT_TRUE(good("dram=1G; numa=off").numa.empty());
  for (const char* value : {"1:1M", "x", "1,1", "1024", "1,2,3,4,5,6,7,8", "-1"}) {
    EXPECT_TRUE(contains(refusal(std::string("dram=1G; numa=") + value), "numa")) << value;
  }
}

TEST_F(ConfigTest, persistent_memories_are_read_in_the_order_of_naming) {
  const std::vector<BlockDevice> expected = {{"/mnt/pm", 32 * kGiB}, {"/dev/dax0.0", 0}};
  EXPECT_EQ(good("dram=1G; pmem=/mnt/pm/:32G,/dev/dax0.0").pmem, expected);
  EXPECT_TRUE(good("dram=1G; pmem=off").pmem.empty());
  const std::string path = file("p.toml", "[tiers]\ndram = \"1G\"\npmem = [\"/mnt/pm:16G\"]\n");
  EXPECT_EQ(good("", path.c_str()).pmem.size(), 1U);
  for (const char* value : {"/a:1M", "mnt/pm:1G", "/a:1G,/a:1G", ""}) {
    EXPECT_TRUE(contains(refusal(std::string("dram=1G; pmem=") + value), "pmem")) << value;
  }
  EXPECT_TRUE(
      contains(refusal("dram=1G; pmem=/a:1G; fork=follow", Code::unsupported), "fork=follow"));
  EXPECT_TRUE(contains(refusal("dram=1G; numa=1,2,3,4; pmem=/a:1G,/b:1G,/c:1G,/d:1G"),
                       "at most 7 behind DRAM"));
}

TEST_F(ConfigTest, compressed_memory_is_a_part_of_dram_before_a_drive) {
  const std::string drive = "dram=1G; nvme=/data/a:1G; ";
  if (!PageCodec::available()) {
    EXPECT_TRUE(contains(refusal(drive + "compressed=1M", Code::unsupported), "no LZ4"));
    return;
  }
  EXPECT_EQ(good(drive).compressed, 0U);
  EXPECT_EQ(good(drive + "compressed=256M").compressed, 256 * kMiB);
  EXPECT_TRUE(good(drive + "compressed=512M").warnings.empty());
  const Config clamped = good(drive + "compressed=600M");
  EXPECT_EQ(clamped.compressed, 512 * kMiB);
  ASSERT_EQ(clamped.warnings.size(), 1U);
  EXPECT_TRUE(contains(clamped.warnings[0], "half of dram"));
  EXPECT_TRUE(contains(refusal(drive + "compressed=63K"), "accepted are 0, and 64.0 KiB"));
  EXPECT_TRUE(contains(refusal("dram=100K; nvme=/data/a:1G; compressed=64K"), "half of dram"));
  EXPECT_TRUE(contains(refusal("dram=1G; compressed=1M"), "nvme="));
  EXPECT_TRUE(contains(refusal(drive + "compressed=1M; checksum=off"), "checksum=on"));
  EXPECT_TRUE(contains(refusal(drive + "compressed=1M; gpu=0", Code::unsupported), "gpu"));
  std::string slow = drive + "slow=/s0:1G";
  for (int i = 1; i < 6; ++i) {
    slow += ",/s" + std::to_string(i) + ":1G";
  }
  good(slow);
  EXPECT_TRUE(contains(refusal(slow + "; compressed=1M"), "8 tiers"));
}

TEST_F(ConfigTest, gpus_that_cannot_be_are_refused) {
  for (const char* value :
       {"0:1M", "0:", ":1G", "x", "-1", "1024", "0,0", "0,1,2", "0:1G,off", ""}) {
    EXPECT_TRUE(contains(refusal(std::string("dram=1G; gpu=") + value), "gpu")) << value;
  }
  EXPECT_TRUE(contains(refusal("dram=1G; gpu=0,1,0"), "gpu"));
  EXPECT_TRUE(contains(refusal("dram=1G; gpu=0; fork=follow", Code::unsupported), "fork=follow"));
}

TEST_F(ConfigTest, directories_without_sizes_share_an_advisory_cap) {
  const std::string a = directory_ + "/a";
  const std::string b = directory_ + "/b";
  std::filesystem::create_directories(a);
  std::filesystem::create_directories(b);
  const std::uint64_t free = file_system_room(a)->free;
  if (free < 2 * kGiB) {
    GTEST_SKIP() << "only " << free << " bytes are free in " << a;
  }
  const Config config = good("dram=32M; reserve_free=0; nvme=" + a + "," + b + "/,/data/c:1G");
  const std::vector<BlockDevice> expected = {{a, 0}, {b, 0}, {"/data/c", kGiB}};
  EXPECT_EQ(config.block, expected);
  // Both are on one file system, so its free space counts once: 16 * 32M is the smaller bound.
  EXPECT_EQ(config.block_budget, kGiB + 512 * kMiB);
  EXPECT_FALSE(config.block_hard);
  EXPECT_TRUE(contains(refusal("nvme=" + a + "/none", Code::io_error), "a/none: No such file"));
  const std::string plain = file("plain", "x");
  EXPECT_TRUE(contains(refusal("nvme=" + plain), "needs a size"));
}

TEST_F(ConfigTest, devices_are_read_in_every_accepted_spelling) {
  const struct {
    const char* text;
    const char* path;
    std::uint64_t bytes;
  } cases[] = {{"/data:2M", "/data", 2 * kMiB},
               {" /data : 1.5 GiB ", "/data", 3 * kGiB / 2},
               {"/da:ta/x:1G", "/da:ta/x", kGiB},
               {"/data//:1G", "/data", kGiB},
               {"/:1G", "/", kGiB},
               {"/dev/nvme0n1:1T", "/dev/nvme0n1", 1024 * kGiB}};
  for (const auto& one : cases) {
    const Config config = good(std::string("nvme=") + one.text);
    ASSERT_EQ(config.block.size(), 1U) << one.text;
    EXPECT_EQ(config.block[0].path, one.path) << one.text;
    EXPECT_EQ(config.block[0].bytes, one.bytes) << one.text;
  }
}

TEST_F(ConfigTest, devices_that_are_none_are_refused) {
  for (const char* text :
       {"data:1G", "4G", "/data:", "/data:x", "/data:0", "/data:1M", "/data:50%", "/data:-1",
        "/data:1G,", ",/data:1G", "/a:1G,,/b:1G", "off,/a:1G", "/a:1G:2G:", "~/data:1G"}) {
    EXPECT_TRUE(contains(refusal(std::string("nvme=") + text), "/path:size")) << text;
  }
  EXPECT_TRUE(contains(refusal("nvme=/a:1G,/b:1G,/a/:2G"), "/a is named twice"));
  refusal("nvme=/a:64P,/b:64P,/c:99999999E");
  std::string many = "nvme=/d0:2M";
  for (int i = 1; i < 64; ++i) {
    many += fmt::format(",/d{}:2M", i);
  }
  EXPECT_EQ(good(many).block.size(), 64U);
  EXPECT_TRUE(contains(refusal(many + ",/d64:2M"), "65 devices"));
}

TEST_F(ConfigTest, off_means_dram_only) {
  env_.erase("TIERMEM_NVME");
  const Config config = good("nvme=off");
  EXPECT_TRUE(config.block.empty());
  EXPECT_EQ(config.block_budget, 0U);
}

TEST_F(ConfigTest, refused_budgets_name_value_origin_and_what_is_accepted) {
  for (const char* text : {"0", "4095", "-4G", "4GB", "0%", "101%", "-5%", "nan%", "inf%", "%",
                           "1e1%", "five", "16E", "50%%"}) {
    const std::string message = refusal(std::string("dram=") + text);
    EXPECT_TRUE(contains(message, std::string("dram: '") + text + "' (the spec string)"))
        << message;
    EXPECT_TRUE(contains(message, "such as 4G, or a percentage such as 50%")) << message;
  }
  EXPECT_TRUE(contains(refusal("dram="), "dram: ''"));
  EXPECT_EQ(good("dram=4K").dram.budget, 4096U);
}

TEST_F(ConfigTest, errors_of_several_spec_strings_name_the_one_they_are_in) {
  const auto load_both = [&](const Spec& first, const Spec& second) {
    const std::vector<Spec> specs = {first, second};
    return load_config(specs, nullptr, nullptr, facts_);
  };
  const auto both = load_both({"depth=8; nvme=off", "--tiers"}, {"dram=1G", "--dram"});
  ASSERT_TRUE(both.ok()) << both.message();
  EXPECT_EQ(both->depth, 8U);
  EXPECT_EQ(both->dram.budget, kGiB);
  const auto bad = load_both({"nvme=off", "--tiers"}, {"dram=lots", "--dram"});
  EXPECT_TRUE(contains(bad.message(), "dram: 'lots' (--dram)")) << bad.message();
  const auto twice = load_both({"dram=1G; nvme=off", "--tiers"}, {"dram=2G", "--dram"});
  EXPECT_EQ(twice.code(), Code::invalid_argument);
  EXPECT_TRUE(contains(twice.message(), "(--dram)")) << twice.message();
  EXPECT_TRUE(contains(twice.message(), "--tiers")) << twice.message();
}

TEST_F(ConfigTest, blanks_empty_parts_and_line_ends_do_not_matter) {
  const Config config = good(" ;; dram = 1G ;\n\tdepth=\t8 ; ");
  EXPECT_EQ(config.dram.budget, kGiB);
  EXPECT_EQ(config.depth, 8U);
  EXPECT_EQ(good("dram=1G"), good(";dram=1G;"));
}

TEST_F(ConfigTest, unknown_options_are_named_with_the_nearest_and_the_list) {
  const std::string message = refusal("depht=8");
  EXPECT_TRUE(contains(message, "'depht'")) << message;
  EXPECT_TRUE(contains(message, "'depth'")) << message;
  EXPECT_TRUE(contains(message, "docs/configuration.md")) << message;
  refusal("=4G");
  refusal("DRAM=4G");
  EXPECT_TRUE(contains(refusal("4G"), "option=value"));
  EXPECT_TRUE(contains(refusal(std::string(1000, 'x') + "=1"), "docs/configuration.md"));
}

TEST_F(ConfigTest, kinds_of_tiers_that_this_build_lacks_are_unsupported) {
  EXPECT_TRUE(contains(refusal("s3=bucket/prefix", Code::unsupported),
                       "accepted are dram, numa, pmem, gpu"));
  const std::string path = file("t.toml", "[tiers]\ndram = \"1G\"\ns3 = \"bucket\"\n");
  EXPECT_TRUE(contains(refusal("", Code::unsupported, path.c_str()), "t.toml, line 3"));
}

TEST_F(ConfigTest, an_option_given_twice_is_refused) {
  EXPECT_TRUE(contains(refusal("depth=8; depth=8"), "given twice"));
  EXPECT_TRUE(contains(refusal("nvme=/a:1G; block=/b:1G"), "given twice"));
}

TEST_F(ConfigTest, toml_gives_the_same_as_the_spec_string) {
  const std::string path = file("full.toml",
                                "# A comment.\n"
                                "[tiers]\n"
                                "dram = \"4G\"\n"
                                "nvme = [\"/data/a:100G\", \"/data/b,c;d:1G\"]\n"
                                "[options]\n"
                                "depth = 8\n"
                                "checksum = false\n"
                                "ahead = \"5%\"\n"
                                "log_file = \"/some/where\"\n");
  const Config config = good("", path.c_str());
  EXPECT_EQ(config.dram.budget, 4 * kGiB);
  const std::vector<BlockDevice> expected = {{"/data/a", 100 * kGiB}, {"/data/b,c;d", kGiB}};
  EXPECT_EQ(config.block, expected);
  EXPECT_EQ(config.depth, 8U);
  EXPECT_FALSE(config.checksum);
  EXPECT_EQ(config.ahead, 5U);
  EXPECT_EQ(config.log_file, "/some/where");
  const std::string list = file("list.toml", "[tiers]\nnvme = \"/a:1G, /b:2G\"\ndram = 4096\n");
  EXPECT_EQ(good("", list.c_str()).block_budget, 3 * kGiB);
  EXPECT_EQ(good("", list.c_str()).dram.budget, 4096U);
  const std::string empty = file("empty.toml", "");
  EXPECT_EQ(good("", empty.c_str()), good());
}

TEST_F(ConfigTest, mistakes_in_toml_are_named_with_file_and_line) {
  const struct {
    const char* text;
    const char* part;
    const char* line;
  } cases[] = {
      {"[options]\ndepth = 0\n", "depth: '0'", "line 2"},
      {"[options]\n\n\ndepht = 1\n", "'depth'", "line 4"},
      {"[options]\ndepth = 1\ndepth = 2\n", "", "line"},
      {"[tiers]\ndram = \n", "", "line 2"},
      {"[tiers\n", "", "line 1"},
      {"\n\ntext\n", "", "line 3"},
      {"[tiers]\ndram = 1.5\n", "whole numbers", "line 2"},
      {"[tiers]\ndram = 1979-05-27\n", "whole numbers", "line 2"},
      {"[tiers]\ndram = [\"4G\"]\n", "arrays of strings", "line 2"},
      {"[tiers]\ndram = -1\n", "dram: '-1'", "line 2"},
      {"[tiers]\nnvme = []\n", "0 devices", "line 2"},
      {"[tiers]\nnvme = [\"/a:1G\", 5]\n", "nvme: '5'", "line 2"},
      {"[tiers]\nnvme = [[\"/a:1G\"]]\n", "arrays of strings", "line 2"},
      {"[tiers]\ndepth = 8\n", "belongs in [options]", "line 2"},
      {"[options]\ndram = \"4G\"\n", "belongs in [tiers]", "line 2"},
      {"[tiers]\nnvme = \"/a:1G\"\nblock = \"/b:1G\"\n", "given twice", "line 3"},
      {"dram = \"4G\"\n", "[tiers] and [options]", "line 1"},
      {"\n[tier]\ndram = \"4G\"\n", "[tiers] and [options]", "line 2"},
      {"[options]\nlog_file = \"/a\\u0000b\"\n", "log_file", "line 2"},
      {"[options]\ndepth = 99999999999999999999\n", "", "line 2"},
  };
  for (const auto& one : cases) {
    const std::string path = file("bad.toml", one.text);
    const std::string message = refusal("", Code::invalid_argument, path.c_str());
    EXPECT_TRUE(contains(message, "bad.toml")) << message;
    EXPECT_TRUE(contains(message, one.line)) << one.text << message;
    EXPECT_TRUE(contains(message, one.part)) << one.text << message;
    EXPECT_FALSE(contains(message, "\n")) << message;
  }
}

TEST_F(ConfigTest, toml_that_is_too_deep_or_too_long_is_refused_before_it_is_parsed) {
  std::string path = file("deep.toml", "a = " + std::string(30000, '['));
  EXPECT_TRUE(contains(refusal("", Code::invalid_argument, path.c_str()), "brackets"));
  std::string dots = "a";
  for (int i = 0; i < 20000; ++i) {
    dots += ".a";
  }
  path = file("dots.toml", dots + " = 1\n");
  EXPECT_TRUE(contains(refusal("", Code::invalid_argument, path.c_str()), "dots"));
  path = file("long.toml", std::string(100000, '#'));
  EXPECT_TRUE(contains(refusal("", Code::invalid_argument, path.c_str()), "65536"));
  EXPECT_TRUE(contains(refusal(std::string(100000, ';')), "65536"));
}

TEST_F(ConfigTest, toml_is_as_deep_as_is_accepted_then_it_is_parsed) {
  const auto message = [&](const std::string& text) {
    const std::string path = file("limits.toml", text);
    return refusal("", Code::invalid_argument, path.c_str());
  };
  const auto repeated = [](int count, const std::string& part) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += part;
    }
    return text;
  };
  EXPECT_FALSE(contains(message("a = " + repeated(128, "[")), "dots in a line"));
  EXPECT_TRUE(contains(message("a = " + repeated(129, "[")), "dots in a line"));
  EXPECT_FALSE(contains(message("a = " + repeated(128, "{")), "dots in a line"));
  EXPECT_TRUE(contains(message("a = " + repeated(129, "{")), "dots in a line"));
  EXPECT_FALSE(contains(message("a" + repeated(64, ".a") + " = 1\n"), "dots in a line"));
  EXPECT_TRUE(contains(message("a" + repeated(65, ".a") + " = 1\n"), "dots in a line"));
  EXPECT_TRUE(contains(message("a" + repeated(65, ".")), "dots in a line")) << "at the end";
  const std::string line = "a" + repeated(40, ".a") + " = 1\n";
  EXPECT_FALSE(contains(message(line + line), "dots in a line")) << "counted by line";
}

TEST_F(ConfigTest, toml_that_is_no_utf8_is_refused_with_its_line) {
  const char* wrong[] = {"\xff",
                         "\x80",
                         "\xc3",
                         "\xc0\xaf",
                         "\xe0\x80\xaf",
                         "\xed\xa0\x80",
                         "\xf4\x90\x80\x80",
                         "\xe2\x82",
                         "\xf0\x80\x80\x80"};
  for (const char* bytes : wrong) {
    const std::string path =
        file("utf.toml", std::string("[options]\nlog_file = '/a") + bytes + "'\n");
    const std::string message = refusal("", Code::invalid_argument, path.c_str());
    EXPECT_TRUE(contains(message, "utf.toml, line 2: the text is not UTF-8")) << message;
  }
  const char* right[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"};
  for (const char* bytes : right) {
    const std::string path =
        file("utf.toml", std::string("[options]\nlog_file = '/a") + bytes + "'\n");
    EXPECT_EQ(good("", path.c_str()).log_file, std::string("/a") + bytes);
  }
}

TEST_F(ConfigTest, files_that_cannot_be_read_are_io_errors_with_errno) {
  const std::string missing = directory_ + "/missing.toml";
  const auto absent = load("", missing.c_str());
  EXPECT_EQ(absent.code(), Code::io_error);
  EXPECT_EQ(absent.status().info()->native, ENOENT);
  EXPECT_EQ(load("", directory_.c_str()).status().info()->native, EISDIR);
  env_["TIERMEM_CONFIG"] = missing;
  EXPECT_TRUE(contains(refusal("", Code::io_error), "missing.toml"));
}

TEST_F(ConfigTest, stronger_sources_win_option_by_option) {
  // Each source names its own option and those of all weaker sources.
  const std::string weakest = file("weak.toml",
                                   "[options]\ndepth = 1\nhands = 1\npiece = \"4K\"\n"
                                   "ahead = 1\nextent = \"4K\"\n");
  env_["TIERMEM_CONFIG"] = weakest;
  env_["TIERMEM_TIERS"] = "depth=2; workers=2; piece=8K; ahead=2";
  env_["TIERMEM_DEPTH"] = "3";
  env_["TIERMEM_WORKERS"] = "3";
  env_["TIERMEM_PIECE"] = "16K";
  const std::string given = file("given.toml", "[options]\ndepth = 4\nhands = 4\n");
  const Config config = good("depth=5", given.c_str());
  EXPECT_EQ(config.depth, 5U);
  EXPECT_EQ(config.workers, 4U);
  EXPECT_EQ(config.piece, 16384U);
  EXPECT_EQ(config.ahead, 2U);
  EXPECT_EQ(config.extent, 4096U);
  EXPECT_EQ(good("", given.c_str()).depth, 4U);
  EXPECT_EQ(good().depth, 3U);
}

TEST_F(ConfigTest, tiers_of_stronger_sources_replace_those_of_weaker_ones) {
  env_.erase("TIERMEM_NVME");
  env_["TIERMEM_TIERS"] = "dram=50%; nvme=/weak:1G,/weaker:1G";
  EXPECT_EQ(good().block.size(), 2U);
  const Config config = good("dram=1G; nvme=/strong:2G");
  EXPECT_EQ(config.dram.budget, kGiB);
  ASSERT_EQ(config.block.size(), 1U);
  EXPECT_EQ(config.block[0].path, "/strong");
  EXPECT_TRUE(good("nvme=off").block.empty());
  EXPECT_EQ(good("nvme=off").dram.budget, 5 * kGiB);
  env_["TIERMEM_NVME"] = "/own:1G, /other:2G";
  EXPECT_EQ(good().block_budget, 3 * kGiB);
}

TEST_F(ConfigTest, a_mistake_in_a_weaker_source_is_still_an_error) {
  env_["TIERMEM_TIERS"] = "depth=zero";
  EXPECT_TRUE(contains(refusal("depth=5"), "TIERMEM_TIERS"));
  env_["TIERMEM_TIERS"] = "  ";
  env_["TIERMEM_DEPTH"] = "";
  EXPECT_EQ(good().depth, 64U);
  env_["TIERMEM_DEPTH"] = "-1";
  EXPECT_TRUE(contains(refusal("depth=5"), "TIERMEM_DEPTH"));
}

TEST_F(ConfigTest, workers_follow_the_processors_unless_named) {
  const struct {
    const char* cores;
    unsigned workers, populate_workers;
  } cases[] = {{"1", 1, 0}, {"2", 1, 1}, {"3", 2, 1}, {"5", 4, 1}, {"6", 4, 2}, {"64", 4, 4}};
  for (const auto& one : cases) {
    facts_.cores = Fact::of(one.cores);
    EXPECT_EQ(good().workers, one.workers) << one.cores;
    EXPECT_EQ(good("workers=0").workers, one.workers) << one.cores;
    EXPECT_EQ(good().populate_workers, one.populate_workers) << one.cores;
    EXPECT_EQ(good("workers=7").workers, 7U);
    EXPECT_EQ(good("workers=7").populate_workers, 0U);
  }
  facts_.cores = Fact::missing("unknown");
  EXPECT_EQ(good().workers, 1U);
}

TEST_F(ConfigTest, the_former_names_of_workers_are_accepted) {
  EXPECT_EQ(good("hands=3").workers, 3U);
  env_["TIERMEM_HANDS"] = "2";
  EXPECT_EQ(good().workers, 2U);
  env_["TIERMEM_WORKERS"] = "5";
  EXPECT_EQ(good().workers, 5U);
}

TEST_F(ConfigTest, nobody_stays_awake_where_processor_time_is_limited_unless_told) {
  EXPECT_EQ(good().busy_poll, 200U);
  facts_.cpu_limit = Fact::of("300");  // The capacity of its three processors.
  EXPECT_EQ(good().busy_poll, 200U);
  facts_.cpu_limit = Fact::of("299");
  EXPECT_EQ(good().busy_poll, 0U);
  EXPECT_EQ(good("busy_poll=auto").busy_poll, 0U);
  EXPECT_EQ(good("busy_poll=50").busy_poll, 50U);
  ASSERT_FALSE(good().notes.empty());
  EXPECT_TRUE(contains(good().notes.front(), "busy_poll: 0, a cgroup limits processor time"));
}

TEST_F(ConfigTest, the_first_usable_default_directory_is_used_and_made_later) {
  env_.erase("TIERMEM_NVME");
  struct statfs kind {};
  ASSERT_EQ(statfs(directory_.c_str(), &kind), 0);
  const std::uint64_t free = file_system_room(directory_)->free;
  if (kind.f_type == TMPFS_MAGIC || kind.f_type == RAMFS_MAGIC || free < 2 * kGiB) {
    GTEST_SKIP() << directory_ << " lies in memory or has only " << free << " bytes free";
  }
  const std::string named = directory_ + "/named";
  env_["HOME"] = directory_;
  Config config = good("dram=32M");
  EXPECT_EQ(config.block.at(0).path, directory_ + "/.cache/tiermem");
  env_["XDG_CACHE_HOME"] = directory_ + "/xdg";
  EXPECT_EQ(good("dram=32M").block.at(0).path, directory_ + "/xdg/tiermem");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/.cache")) << "nothing is created";
  config = good("dram=32M");
  EXPECT_TRUE(config.block_is_made);
  ASSERT_TRUE(make_default_block(config).ok());
  struct stat status {};
  ASSERT_EQ(stat((directory_ + "/xdg/tiermem").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700U);
  std::filesystem::create_directory(named);
  env_["TIERMEM_DIR"] = named;
  config = good("dram=32M");
  EXPECT_FALSE(config.block_is_made);
  EXPECT_EQ(config.block.at(0).path, named);
  EXPECT_EQ(config.block.at(0).bytes, 0U);
  EXPECT_EQ(config.block_budget, 512 * kMiB);
  EXPECT_FALSE(config.block_hard);
}

TEST_F(ConfigTest, reserve_free_limits_the_default_cap) {
  env_.erase("TIERMEM_NVME");
  env_["TIERMEM_DIR"] = directory_;
  const std::uint64_t free = file_system_room(directory_)->free;
  if (free < kGiB) {
    GTEST_SKIP() << "only " << free << " bytes are free in " << directory_;
  }
  // Other processes write to this file system too, so the bounds have a margin of an eighth of the
  // free space.
  const std::uint64_t half = good("dram=16P; reserve_free=0").block_budget;
  EXPECT_LE(half, free / 2 + free / 8);
  EXPECT_GE(half, free / 2 - free / 8);
  const std::string reserve = std::to_string(free / 4 * 3);
  const std::uint64_t quarter = good("dram=16P; reserve_free=" + reserve).block_budget;
  EXPECT_LE(quarter, free / 4 + free / 8);
  EXPECT_LT(quarter, half);
  const Config none = good("dram=16P; reserve_free=" + std::to_string(free * 2));
  EXPECT_TRUE(none.block.empty());
  EXPECT_EQ(none.notes.back(), "nvme: none; DRAM only");
  refusal("reserve_free=64P; nvme=" + directory_, Code::no_capacity);
}

TEST_F(ConfigTest, a_named_directory_that_cannot_be_used_is_an_error) {
  env_.erase("TIERMEM_NVME");
  env_["TIERMEM_DIR"] = file("plain", "x") + "/below";
  const auto config = load("dram=1G");
  EXPECT_EQ(config.code(), Code::io_error) << config.message();
  EXPECT_EQ(config.status().info()->native, ENOTDIR);
  env_["TIERMEM_DIR"] = "relative";
  EXPECT_TRUE(contains(refusal("dram=1G"), "begins with /"));
}

TEST_F(ConfigTest, a_default_directory_that_cannot_be_used_is_passed_over_with_a_note) {
  env_.erase("TIERMEM_NVME");
  env_["XDG_CACHE_HOME"] = file("plain", "x");
  const Config config = good("dram=32M");
  ASSERT_FALSE(config.notes.empty());
  EXPECT_EQ(config.notes[0], "nvme: not in " + directory_ + "/plain/tiermem: Not a directory");
  EXPECT_TRUE(config.block.empty() || config.block[0].path == "/var/tmp");
}

TEST_F(ConfigTest, default_directory_is_a_file_then_it_is_passed_over_with_a_note) {
  env_.erase("TIERMEM_NVME");
  env_["XDG_CACHE_HOME"] = directory_;
  std::filesystem::permissions(file("tiermem", "x"), std::filesystem::perms::all);
  const Config config = good("dram=32M");
  ASSERT_FALSE(config.notes.empty());
  EXPECT_EQ(config.notes[0], "nvme: not in " + directory_ + "/tiermem: Not a directory");
}

TEST_F(ConfigTest, a_directory_in_memory_is_no_default) {
  struct statfs kind {};
  if (statfs("/dev/shm", &kind) != 0 || kind.f_type != TMPFS_MAGIC ||
      access("/dev/shm", W_OK) != 0) {
    GTEST_SKIP() << "/dev/shm is not a writable tmpfs";
  }
  const test::Directory shm("/dev/shm");
  env_.erase("TIERMEM_NVME");
  env_["XDG_CACHE_HOME"] = shm.path();
  const Config config = good("dram=32M");
  EXPECT_TRUE(contains(config.notes.at(0), "it is memory itself"));
}

TEST_F(ConfigTest, nothing_is_created_for_a_configuration_that_is_refused) {
  env_.erase("TIERMEM_NVME");
  env_["TIERMEM_DIR"] = directory_ + "/never";
  refusal("depth=0");
  refusal("dram=16M; depth=0");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/never"));
}

TEST_F(ConfigTest, the_environment_of_the_process_is_read) {
  ASSERT_EQ(setenv("TIERMEM_DEPTH", "9", 1), 0);
  const auto config = load_config("dram=1G; nvme=off", nullptr, process_environment(), facts_);
  unsetenv("TIERMEM_DEPTH");
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_EQ(config->depth, 9U);
  EXPECT_TRUE(load_config("dram=1G; nvme=off", nullptr, nullptr, facts_).ok());
}

TEST_F(ConfigTest, this_machine_can_be_used_without_any_configuration) {
  facts_ = probe_host_facts();
  if (!facts_.memory_available.available) {
    GTEST_SKIP() << facts_.memory_available.reason;
  }
  env_ = {{"HOME", directory_}};
  const Config config = good();
  EXPECT_GE(config.dram.budget, 16 * kMiB);
  EXPECT_LE(config.dram.budget, *facts_.memory_total.number());
  EXPECT_FALSE(config.notes.empty());
}

// ---- Results of `tiermem tune` -----------------------------------------------------------------

class TunedConfigTest : public ConfigTest {
 protected:
  void SetUp() override {
    ConfigTest::SetUp();
    env_.erase("TIERMEM_NVME");
    env_["XDG_CACHE_HOME"] = directory_;
    facts_.kernel = Fact::of("6.8.0");
    std::filesystem::create_directory(device_);
    const auto id = identify_device(device_);
    ASSERT_TRUE(id.ok()) << id.message();
    tuning_ = {id->key, "6.8.0", std::time(nullptr) - 3600, 24, 1 * kMiB, 65536, 1, 1};
  }
  void keep() {
    const Status kept = keep_tuning(directory_ + "/tiermem", tuning_);
    ASSERT_TRUE(kept.ok()) << kept.message();
  }
  std::string spec(const std::string& more = "") {
    return "dram=64M; nvme=" + device_ + ":64M" + more;
  }

  const std::string device_ = own_.path() + "/device";
  Tuning tuning_;
};

TEST_F(TunedConfigTest, a_tuned_device_has_its_own_defaults) {
  EXPECT_EQ(good(spec()).depth, Config().depth);
  keep();
  const Config config = good(spec());
  EXPECT_EQ(config.depth, 24U);
  EXPECT_EQ(config.piece, 1 * kMiB);
  ASSERT_EQ(config.tuning.size(), 1U);
  EXPECT_EQ(config.gather_gap, 65536U);
  ASSERT_FALSE(config.notes.empty());
  EXPECT_TRUE(contains(config.notes.back(), "depth: 24, piece: 1M")) << config.notes.back();
  EXPECT_EQ(good(spec("; tuned=off")).depth, Config().depth);
}

TEST_F(TunedConfigTest, what_is_named_wins_over_what_was_measured) {
  keep();
  const Config config = good(spec("; depth=3"));
  EXPECT_EQ(config.depth, 3U);
  EXPECT_EQ(config.piece, 1 * kMiB);
  env_["TIERMEM_PIECE"] = "4M";
  EXPECT_EQ(good(spec()).piece, 4 * kMiB);
  EXPECT_EQ(good(spec()).depth, 24U);
  EXPECT_TRUE(good(spec("; depth=3")).notes.empty());
  EXPECT_EQ(good(spec("; gather_gap=4K")).gather_gap, 4096U);
}

TEST_F(TunedConfigTest, what_cannot_be_used_is_no_error) {
  keep();
  facts_.kernel = Fact::of("6.9.0");
  const Config other_kernel = good(spec());
  EXPECT_EQ(other_kernel.depth, Config().depth);
  EXPECT_TRUE(contains(other_kernel.tuning[0].reason, "6.8.0")) << other_kernel.tuning[0].reason;
  facts_.kernel = Fact::of("6.8.0");
  std::ofstream(tuning_file(directory_ + "/tiermem", {tuning_.device, {}})) << "tiermem tuning 1\n";
  const Config damaged = good(spec());
  EXPECT_EQ(damaged.depth, Config().depth);
  EXPECT_TRUE(contains(damaged.tuning[0].reason, "cut off")) << damaged.tuning[0].reason;
}

TEST_F(TunedConfigTest, a_tier_of_which_one_device_is_unknown_stays_as_it_is) {
  keep();
  // A file system in memory is another device.
  const test::Directory other("/dev/shm");
  const Config config = good(spec("," + other.path() + ":64M"));
  ASSERT_EQ(config.tuning.size(), 2U);
  EXPECT_TRUE(config.tuning[0].tuning.has_value());
  EXPECT_FALSE(config.tuning[1].tuning.has_value());
  EXPECT_EQ(config.depth, Config().depth);
}

}  // namespace
}  // namespace tiermem
