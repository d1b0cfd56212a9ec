// The slot tiers under the contract suite: the block tier and adopted files, on a scripted port, on
// real files with each engine, and on the simulator's devices; and the simulator's adopted files.
#include <cerrno>
#include <fstream>

#include "contract/slot_contract.hpp"
#include "os/block_file.hpp"
#include "os/waitable_io_port.hpp"
#include "support/directory.hpp"
#include "tests/sim/fake_devices.hpp"
#include "tests/sim/fake_files.hpp"
#include "tier/block.hpp"
#include "tier/file.hpp"
#include "unit/scripted_io_port.hpp"

namespace tiermem::contract {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr unsigned kDevices = 2;

SlotFacts block_facts() {
  return {
      .budget = 128 * kMiB, .sizes = {4 * kKiB, 64 * kKiB, 512 * kKiB, kMiB}, .devices = kDevices};
}
BlockOptions block_options() {
  BlockOptions options;
  options.depth = 4;
  options.piece_bytes = 256 * kKiB;
  return options;
}

/// A port, and what makes it go on.
struct World {
  virtual ~World() = default;
  virtual IoPort& port() = 0;
  virtual void wait() {}
  virtual bool fail_transfers() { return false; }
  virtual void forgive() {}
};

struct ScriptedWorld final : World {
  ScriptedWorld(unsigned devices, std::uint32_t block) : scripted(devices, 64 * kMiB, block) {
    scripted.shuffle = &random;
    scripted.per_reap = 3;
  }
  IoPort& port() override { return scripted; }
  bool fail_transfers() override {
    scripted.script = [](std::size_t, const IoRequest&) { return ScriptedIoPort::Answer{EIO}; };
    return true;
  }
  void forgive() override { scripted.script = nullptr; }
  std::mt19937 random{1};
  ScriptedIoPort scripted;
};

/// Real files. The kernel refuses nothing.
struct RealWorld final : World {
  static std::unique_ptr<World> make(Engine engine, unsigned devices, std::string& why_not) {
    auto world = std::make_unique<RealWorld>();
    std::vector<std::unique_ptr<BlockFile>> files;
    for (unsigned i = 0; i < devices; ++i) {
      auto file = BlockFile::open({.path = world->directory.path(), .limit = 64 * kMiB});
      EXPECT_TRUE(file.ok()) << file.message();
      if (!file.ok()) {
        return nullptr;
      }
      files.push_back(std::move(*file));
    }
    PortOptions options;
    options.depth = 8;
    options.engine = engine;
    options.require = engine == Engine::io_uring;
    world->real = make_io_port(std::move(files), options, why_not);
    return world->real == nullptr ? nullptr : std::move(world);
  }
  IoPort& port() override { return *real; }
  void wait() override { real->wait(-1); }
  test::Directory directory;
  std::unique_ptr<WaitableIoPort> real;
};

/// The simulator's devices on virtual time.
struct SimulatedWorld final : World {
  explicit SimulatedWorld(unsigned devices) : fake(clock, rates, devices, 64 * kMiB) {
    rates.short_io = rates.again = 7;  // The tier goes on after these.
  }
  IoPort& port() override { return fake; }
  void wait() override { clock.now = std::min(fake.next_due(), clock.now + 1'000'000'000); }
  bool fail_transfers() override {
    rates.io_error = 1;
    return true;
  }
  void forgive() override { rates.io_error = 0; }
  sim::World clock{1};
  sim::FaultRates rates;
  sim::FakePort fake;
};

class Blocks final : public SlotSubject {
 public:
  explicit Blocks(std::unique_ptr<World> world)
      : SlotSubject(block_facts()),
        world_(std::move(world)),
        tier_(world_->port(), block_options()) {}
  SlotTier& tier() override { return tier_; }
  bool consistent() override {
    const Status status = tier_.check_invariants();
    EXPECT_TRUE(status.ok()) << status.message();
    return status.ok();
  }
  void wait() override { world_->wait(); }
  bool fail_transfers() override { return world_->fail_transfers(); }
  void forgive() override { world_->forgive(); }

 private:
  std::unique_ptr<World> world_;
  BlockTier tier_;
};

SlotFacts file_facts() {
  return {.sizes = {4 * kKiB, 64 * kKiB, kMiB}, .devices = 2};
}

/// Two adopted files: one ends inside of a block, one begins at an offset.
class Files final : public SlotSubject {
 public:
  explicit Files(std::unique_ptr<World> world)
      : SlotSubject(file_facts()), world_(std::move(world)), tier_(world_->port(), 8, 256 * kKiB) {
    add(kMiB + 1234, 0, 1);
    add(10 * 4 * kKiB, 3 * 4 * kKiB, 2);
    add(100, 0, 3);
  }
  ~Files() override {
    for (const Known& known : known_) {
      tier_.free(known.slot);
    }
  }
  SlotTier& tier() override { return tier_; }
  std::vector<Known> known() override { return known_; }
  void wait() override { world_->wait(); }
  bool fail_transfers() override { return world_->fail_transfers(); }
  void forgive() override { world_->forgive(); }

 private:
  void add(std::uint64_t size, std::uint64_t begin, std::uint64_t seed) {
    const std::string path = directory_.path() + "/" + std::to_string(seed);
    const Block all = pattern(size, seed);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(size));
    const auto adopted = tier_.adopt(path.c_str(), begin, 0);
    ASSERT_TRUE(adopted.ok()) << adopted.message();
    known_.push_back(
        {adopted->base, Block(all.begin() + static_cast<std::ptrdiff_t>(begin), all.end())});
  }
  const test::Directory directory_;
  std::unique_ptr<World> world_;
  FileTier tier_;
  std::vector<Known> known_;
};

class SimulatedFiles final : public SlotSubject {
 public:
  SimulatedFiles() : SlotSubject(file_facts()), tier_(clock_, rates_) {
    add(300 * kKiB + 1234, 0);
    add(10 * 4 * kKiB, 3 * 4 * kKiB);
    add(100, 0);
  }
  SlotTier& tier() override { return tier_; }
  std::vector<Known> known() override { return known_; }
  void wait() override { clock_.now = std::min(tier_.next_due(), clock_.now + 1'000'000'000); }
  bool fail_transfers() override {
    rates_.io_error = 1;
    return true;
  }
  void forgive() override { rates_.io_error = 0; }

 private:
  void add(std::uint64_t size, std::uint64_t begin) {
    const SlotId slot = tier_.adopt(size, begin);
    const std::vector<std::byte>& all = tier_.bytes(slot);
    known_.push_back({slot, Block(all.begin() + static_cast<std::ptrdiff_t>(begin), all.end())});
  }
  sim::World clock_{1};
  sim::FaultRates rates_;
  sim::FakeFiles tier_;
  std::vector<Known> known_;
};

template <typename Subject>
SlotCase scripted(const char* name, unsigned devices, std::uint32_t block) {
  return {name, [=](std::string&) {
            return std::make_unique<Subject>(std::make_unique<ScriptedWorld>(devices, block));
          }};
}
template <typename Subject>
SlotCase real(const char* name, unsigned devices, Engine engine) {
  return {name, [=](std::string& why_not) -> std::unique_ptr<SlotSubject> {
            auto world = RealWorld::make(engine, devices, why_not);
            return world == nullptr ? nullptr : std::make_unique<Subject>(std::move(world));
          }};
}
const SlotCase kSimulatedDisks{
    "simulated_disks", [](std::string&) {
      return std::make_unique<Blocks>(std::make_unique<SimulatedWorld>(kDevices));
    }};
const SlotCase kSimulatedFiles{"simulated",
                               [](std::string&) { return std::make_unique<SimulatedFiles>(); }};

const auto kBlocks =
    ::testing::Values(scripted<Blocks>("blocks_of_512", kDevices, 512),
                      scripted<Blocks>("blocks_of_4096", kDevices, 4096),
                      real<Blocks>("io_uring", kDevices, Engine::io_uring),
                      real<Blocks>("threads", kDevices, Engine::threads), kSimulatedDisks);
INSTANTIATE_TEST_SUITE_P(Block, SlotContract, kBlocks, slot_name);
INSTANTIATE_TEST_SUITE_P(Block, WritableSlots, kBlocks, slot_name);
const auto kFiles = ::testing::Values(scripted<Files>("scripted", 0, 512),
                                      real<Files>("io_uring", 0, Engine::io_uring),
                                      real<Files>("threads", 0, Engine::threads), kSimulatedFiles);
INSTANTIATE_TEST_SUITE_P(File, SlotContract, kFiles, slot_name);
INSTANTIATE_TEST_SUITE_P(File, ReadOnlySlots, kFiles, slot_name);

}  // namespace
}  // namespace tiermem::contract
