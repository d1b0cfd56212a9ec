// The GPU tier under the contract suite, on the fake driver.
#include "contract/memory_contract.hpp"
#include "gpu/program.hpp"
#include "os/cuda_lane.hpp"
#include "tier/gpu.hpp"

namespace tiermem::contract {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

/// Two devices that reach each other; the first one is tested. At its end the fake driver must have
/// no object left.
class Gpu final : public MemorySubject {
 public:
  static std::unique_ptr<MemorySubject> make(std::string& why_not) {
    test::FakeCuda* const fake = test::find_fake_cuda();
    if (fake == nullptr) {
      why_not = "needs the fake driver";
      return nullptr;
    }
    fake->reset();
    fake->set_devices(2);
    auto gpu = std::make_unique<Gpu>(*fake);
    if (gpu->tiers_[1] == nullptr) {
      why_not = "no tier";
      ADD_FAILURE() << why_not;
      return nullptr;
    }
    return gpu;
  }
  explicit Gpu(test::FakeCuda& fake)
      : MemorySubject(known_facts()), fake_(fake), program_(std::make_unique<test::Program>()) {
    for (unsigned i = 0; i < 2; ++i) {
      auto lane = CudaLane::open(program_->driver(), i);
      EXPECT_TRUE(lane.ok()) << lane.message();
      if (!lane.ok()) {
        return;
      }
      auto tier = GpuTier::create(std::move(lane).value(), known_facts().budget);
      EXPECT_TRUE(tier.ok()) << tier.message();
      if (!tier.ok()) {
        return;
      }
      tiers_[i] = std::move(tier).value();
    }
    tiers_[0]->befriend(*tiers_[1]);
    tiers_[1]->befriend(*tiers_[0]);
  }
  ~Gpu() override {
    for (auto& tier : tiers_) {
      tier.reset();
    }
    program_.reset();
    if (!lost_) {
      EXPECT_EQ(fake_.live(), test::FakeCudaLive{}) << "an object of the driver is left";
    }
  }

  Memory& memory() override { return *tiers_[0]; }
  Memory* neighbour() override { return tiers_[1].get(); }
  void write(std::byte* at, const std::byte* from, std::uint64_t bytes) override {
    EXPECT_EQ(program_->driver().cuMemcpyHtoDAsync(address(at), from, bytes, program_->stream()),
              cuda::kSuccess);
    EXPECT_EQ(program_->driver().cuStreamSynchronize(program_->stream()), cuda::kSuccess);
  }
  void read(std::byte* to, const std::byte* at, std::uint64_t bytes) override {
    EXPECT_EQ(program_->driver().cuMemcpyDtoHAsync(to, address(at), bytes, program_->stream()),
              cuda::kSuccess);
    EXPECT_EQ(program_->driver().cuStreamSynchronize(program_->stream()), cuda::kSuccess);
  }
  bool refuse(const char* call, std::byte*) override {
    const std::string_view name = call;
    const char* const driver_call = name == "populate"   ? "cuMemCreate"
                                    : name == "show"     ? "cuMemMap"
                                    : name == "copy_in"  ? "cuMemcpyHtoDAsync"
                                    : name == "copy_out" ? "cuMemcpyDtoHAsync"
                                                         : nullptr;
    if (driver_call == nullptr) {
      return false;
    }
    fake_.fail_nth(driver_call, 1, cuda::kOutOfMemory, test::FakeCuda::kForever);
    return true;
  }
  void forgive() override { fake_.forgive(); }
  bool lose() override {
    fake_.lose_device(0);
    lost_ = true;
    return true;
  }

 private:
  static MemoryFacts known_facts() {
    MemoryFacts facts;
    facts.budget = 32 * kMiB;
    facts.extents = {4 * kKiB, 64 * kKiB, 2 * kMiB, 4 * kMiB};
    facts.window_extents = {2 * kMiB, 4 * kMiB};
    facts.chunk_bytes = 2 * kMiB;
    return facts;
  }
  static cuda::DevicePointer address(const std::byte* at) {
    return reinterpret_cast<cuda::DevicePointer>(at);
  }

  test::FakeCuda& fake_;
  std::unique_ptr<test::Program> program_;
  std::unique_ptr<GpuTier> tiers_[2];
  bool lost_ = false;
};

const auto kSubjects = ::testing::Values(MemoryCase{"fake_driver", Gpu::make});
INSTANTIATE_TEST_SUITE_P(Gpu, MemoryContract, kSubjects, memory_name);
INSTANTIATE_TEST_SUITE_P(Gpu, OpaqueMemoryContract, kSubjects, memory_name);

}  // namespace
}  // namespace tiermem::contract
