// Opens the device, and makes one large copy.
#include "bench/gpu_device.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "bench/random_bytes.hpp"
#include "os/host_facts.hpp"
#include "runtime/config.hpp"

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kStep = 4 * kMiB;

/// The tests' driver (tests/support/fake_cuda) counts its calls, which identifies it.
using CountCalls = std::uint64_t (*)();

CountCalls call_counter(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) {
    return nullptr;
  }
  const auto counter = reinterpret_cast<CountCalls>(dlsym(handle, "tiermem_fake_cuda_calls"));
  dlclose(handle);  // The driver's first user keeps it loaded.
  return counter;
}

struct Found {
  CudaDriver driver;
  std::string library;
  CudaDeviceFacts facts;
};

Result<Found> find_device() {
  auto config =
      load_config("dram=64M; nvme=off", nullptr, process_environment(), probe_host_facts());
  if (!config.ok()) {
    return std::move(config).status();
  }
  auto driver = CudaDriver::load(config->gpu_driver.c_str());
  if (!driver.ok()) {
    return fail(driver.code(), "no GPU can be measured here: {}", driver.message());
  }
  const auto count = driver->start();
  if (!count.ok()) {
    return fail(count.code(), "no GPU can be measured here: {}", count.message());
  }
  auto facts = probe_device(*driver, 0);
  if (!facts.ok()) {
    return std::move(facts).status();
  }
  return Found{*driver, config->gpu_driver, std::move(*facts)};
}

}  // namespace

Result<std::string> describe_gpu() {
  const auto found = find_device();
  if (!found.ok()) {
    return found.status().clone();
  }
  const CudaVersion version = found->driver.version();
  return fmt::format("{}, {}, compute capability {}.{}, driver for CUDA {}.{}{}", found->facts.name,
                     human_bytes(found->facts.total), found->facts.capability_major,
                     found->facts.capability_minor, version.major(), version.minor(),
                     call_counter(found->library) == nullptr
                         ? ""
                         : "; the tests' driver, no GPU: its rates and ratios mean nothing");
}

Result<std::unique_ptr<GpuDevice>> GpuDevice::open() {
  auto found = find_device();
  if (!found.ok()) {
    return std::move(found).status();
  }
  std::unique_ptr<GpuDevice> gpu(
      new GpuDevice(found->driver, std::move(found->library), std::move(found->facts)));
  Status begun = gpu->begin();
  if (!begun.ok()) {
    return begun;
  }
  return gpu;
}

Status GpuDevice::begin() {
  cuda::Context context = nullptr;
  Status status = check(driver_.cuDevicePrimaryCtxRetain(&context, 0), "its context");
  retained_ = status.ok();
  if (status.ok()) {
    status = check(driver_.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  }
  for (cuda::Stream* stream : {&in_, &out_}) {
    if (status.ok()) {
      status = check(driver_.cuStreamCreate(stream, cuda::kStreamNonBlocking), "cuStreamCreate");
    }
  }
  return status;
}

GpuDevice::~GpuDevice() {
  for (const cuda::Stream stream : {in_, out_}) {
    if (stream != nullptr) {
      (void)driver_.cuStreamDestroy(stream);
    }
  }
  if (retained_) {
    (void)driver_.cuCtxSetCurrent(nullptr);
    (void)driver_.cuDevicePrimaryCtxRelease(0);
  }
}

Status GpuDevice::check(cuda::Result result, const char* doing) const {
  return driver_.check(result, doing);
}

Status GpuDevice::wait(cuda::Stream stream) const {
  return check(driver_.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

Result<std::uint64_t> GpuDevice::free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  Status asked = check(driver_.cuMemGetInfo(&free, &total), "cuMemGetInfo");
  if (!asked.ok()) {
    return asked;
  }
  return std::uint64_t{free};
}

std::optional<std::uint64_t> GpuDevice::calls() const {
  const CountCalls counter = call_counter(library_);
  return counter == nullptr ? std::nullopt : std::optional(counter());
}

Result<std::uint64_t> GpuDevice::choose_bytes(const Session& session, const Share& share) const {
  const auto free = free_bytes();
  if (!free.ok()) {
    return free.status().clone();
  }
  std::uint64_t bytes = session.settings().bytes;
  if (bytes == 0) {
    const std::uint64_t left = probe_host_facts().memory_left().value_or(2048 * kMiB);
    bytes = std::min({*free / share.of_device, left / share.of_host, share.most});
  }
  return std::max(bytes / kStep, std::uint64_t{1}) * kStep;
}

Result<std::unique_ptr<LinkPeer>> LinkPeer::create(GpuDevice& gpu, std::uint64_t bytes) {
  std::unique_ptr<LinkPeer> peer(new LinkPeer(gpu, bytes));
  Status status = peer->begin();
  if (status.ok()) {
    status = peer->copies_bytes_right();
  }
  if (!status.ok()) {
    return status;
  }
  return peer;
}

Status LinkPeer::begin() {
  auto range = host::reserve({.bytes = bytes_});
  if (!range.ok()) {
    return std::move(range).status();
  }
  host_ = std::move(*range);
  (void)host::advise(host_.data(), bytes_, host::Advise::huge);
  if (const int error = host::populate(host_.data(), bytes_); error != 0) {
    return fail_native(Code::no_capacity, error, "no memory for the peer: {}",
                       std::strerror(error));
  }
  const CudaDriver& driver = gpu_.driver();
  Status status =
      gpu_.check(driver.cuMemHostRegister(host_.data(), bytes_, cuda::kHostRegisterPortable),
                 "page-locking the peer's memory");
  locked_ = status.ok();
  cuda::AllocationProperties properties;
  const cuda::AccessDescription access{properties.location, cuda::kAccessReadWrite};
  if (status.ok()) {
    status = gpu_.check(driver.cuMemCreate(&memory_, bytes_, &properties, 0),
                        "device memory for the peer");
  }
  if (status.ok()) {
    status =
        gpu_.check(driver.cuMemAddressReserve(&device_, bytes_, 0, 0, 0), "cuMemAddressReserve");
  }
  if (status.ok()) {
    status = gpu_.check(driver.cuMemMap(device_, bytes_, 0, memory_, 0), "cuMemMap");
    mapped_ = status.ok();
  }
  return status.ok()
             ? gpu_.check(driver.cuMemSetAccess(device_, bytes_, &access, 1), "cuMemSetAccess")
             : std::move(status);
}

LinkPeer::~LinkPeer() {
  const CudaDriver& driver = gpu_.driver();
  (void)gpu_.wait(gpu_.in());
  (void)gpu_.wait(gpu_.out());
  if (mapped_) {
    (void)driver.cuMemUnmap(device_, bytes_);
  }
  if (device_ != 0) {
    (void)driver.cuMemAddressFree(device_, bytes_);
  }
  if (memory_ != 0) {
    (void)driver.cuMemRelease(memory_);
  }
  if (locked_) {
    (void)driver.cuMemHostUnregister(host_.data());
  }
}

Status LinkPeer::copies_bytes_right() {
  fill_random(host_.data(), bytes_, 11);
  const std::uint64_t hash = XXH3_64bits(host_.data(), bytes_);
  if (auto there = in(); !there.ok()) {
    return std::move(there).status();
  }
  std::memset(host_.data(), 0, bytes_);
  if (auto back = out(); !back.ok()) {
    return std::move(back).status();
  }
  return XXH3_64bits(host_.data(), bytes_) == hash
             ? Status()
             : fail(Code::internal, "the peer's copies do not give back what they were given");
}

Result<Sample> LinkPeer::run(bool in, bool out) {
  const CudaDriver& driver = gpu_.driver();
  const std::uint64_t half = in && out ? bytes_ / 2 : 0;  // Bytes going out end there.
  return timed(bytes_, [&] {
    Status status;
    if (out) {
      status = gpu_.check(
          driver.cuMemcpyDtoHAsync(host_.data(), device_, half != 0 ? half : bytes_, gpu_.out()),
          "the peer's copy from the device");
    }
    if (in && status.ok()) {
      status = gpu_.check(
          driver.cuMemcpyHtoDAsync(device_ + half, host_.data() + half, bytes_ - half, gpu_.in()),
          "the peer's copy to the device");
    }
    Status came = gpu_.wait(gpu_.in());
    Status went = gpu_.wait(gpu_.out());
    return !status.ok() ? std::move(status) : !came.ok() ? std::move(came) : std::move(went);
  });
}

Result<Sample> LinkPeer::out_and_in() {
  return timed(2 * bytes_, [&] {
    auto went = out();
    if (!went.ok()) {
      return std::move(went).status();
    }
    return in().status();
  });
}

Result<double> LinkPeer::seconds(std::uint64_t in, std::uint64_t out) {
  const CudaDriver& driver = gpu_.driver();
  const std::uint64_t half = bytes_ / 2;  // Bytes going out end there.
  const double start = now_seconds();
  Status status;
  while (in + out != 0 && status.ok()) {
    const std::uint64_t goes = std::min(out, half);
    const std::uint64_t comes = std::min(in, half);
    if (goes != 0) {
      status = gpu_.check(driver.cuMemcpyDtoHAsync(host_.data(), device_, goes, gpu_.out()),
                          "the peer's copy from the device");
    }
    if (comes != 0 && status.ok()) {
      status = gpu_.check(
          driver.cuMemcpyHtoDAsync(device_ + half, host_.data() + half, comes, gpu_.in()),
          "the peer's copy to the device");
    }
    out -= goes;
    in -= comes;
  }
  for (const cuda::Stream stream : {gpu_.in(), gpu_.out()}) {
    Status done = gpu_.wait(stream);
    status = status.ok() ? std::move(done) : std::move(status);
  }
  if (!status.ok()) {
    return status;
  }
  return now_seconds() - start;
}

Peer LinkPeer::in_peer() {
  return {"one copy", fmt::format("one cuMemcpyHtoDAsync of {}, page-locked", human_bytes(bytes_)),
          [this] { return in(); }};
}

Peer LinkPeer::out_peer() {
  return {"one copy", fmt::format("one cuMemcpyDtoHAsync of {}, page-locked", human_bytes(bytes_)),
          [this] { return out(); }};
}

Peer LinkPeer::both_peer() {
  return {"a copy each way",
          fmt::format("one cuMemcpyHtoDAsync and one cuMemcpyDtoHAsync of {} each, page-locked, on "
                      "two streams",
                      human_bytes(bytes_ / 2)),
          [this] { return both(); }};
}

}  // namespace tiermem::bench
