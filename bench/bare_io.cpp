// The loop, and fio's command line.
#include "bench/bare_io.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "bench/process.hpp"
#include "bench/random_bytes.hpp"

#ifdef TIERMEM_HAVE_URING
#include <liburing.h>
#endif

namespace tiermem::bench {
namespace {

constexpr std::uint64_t kBlock = std::uint64_t{2} << 20;
// The buffers for reads and writes: larger than the caches, as tiermem's frames are.
constexpr std::uint64_t kMemory = std::uint64_t{256} << 20;
constexpr double kGiB = 1024.0 * 1024 * 1024;

Result<host::AddressRange> buffers(bool huge) {
  auto range = host::reserve({.bytes = kMemory});
  if (range.ok()) {
    (void)host::advise(range->data(), kMemory, huge ? host::Advise::huge : host::Advise::no_huge);
    if (const int error = host::populate(range->data(), kMemory); error != 0) {
      return fail_native(Code::no_capacity, error, "no memory for the peer: {}",
                         std::strerror(error));
    }
    fill_random(range->data(), kMemory, huge ? 1 : 2);
  }
  return range;
}

const char* fio_word(Traffic traffic) {
  return traffic == Traffic::read ? "read" : traffic == Traffic::write ? "write" : "rw";
}

}  // namespace

std::string BareIo::Setting::text() const {
  return fmt::format("io_uring {} {} depth {}", fixed ? "fixed" : "plain", huge ? "huge" : "4K",
                     depth);
}

#ifdef TIERMEM_HAVE_URING

/// One ring with its registrations, and the loop over it.
class BareIo::Ring {
 public:
  ~Ring() {
    if (open_) {
      io_uring_queue_exit(&ring_);
    }
  }

  Status open(const Setting& setting, int fd, std::byte* memory) {
    fixed_ = setting.fixed;
    fd_ = fd;
    memory_ = memory;
    io_uring_params params{};
    params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    int error = io_uring_queue_init_params(setting.depth, &ring_, &params);
    if (error == -EINVAL) {  // An older kernel.
      params = {};
      error = io_uring_queue_init_params(setting.depth, &ring_, &params);
    }
    open_ = error == 0;
    if (open_ && fixed_) {
      // Registered in blocks: one buffer is at most 1 GiB.
      std::vector<iovec> blocks;
      for (std::uint64_t at = 0; at < kMemory; at += kBlock) {
        blocks.push_back({memory + at, kBlock});
      }
      error =
          io_uring_register_buffers(&ring_, blocks.data(), static_cast<unsigned>(blocks.size()));
      if (error == 0) {
        error = io_uring_register_files(&ring_, &fd, 1);
      }
    }
    return error == 0
               ? Status()
               : fail_native(Code::unavailable, -error, "io_uring: {}", std::strerror(-error));
  }

  /// `place`: a block of memory; its index identifies the transfer.
  void submit(bool write, std::uint64_t place, std::uint64_t offset) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    std::byte* data = memory_ + place * kBlock;
    const int fd = fixed_ ? 0 : fd_;
    const auto index = static_cast<int>(place);
    if (write) {
      fixed_ ? io_uring_prep_write_fixed(entry, fd, data, kBlock, offset, index)
             : io_uring_prep_write(entry, fd, data, kBlock, offset);
    } else {
      fixed_ ? io_uring_prep_read_fixed(entry, fd, data, kBlock, offset, index)
             : io_uring_prep_read(entry, fd, data, kBlock, offset);
    }
    if (fixed_) {
      io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    }
    io_uring_sqe_set_data64(entry, place * 2 + (write ? 1 : 0));
  }

  /// Waits for at least one completion; calls done(wrote, place) for each.
  template <typename Done>
  Status wait(Done done) {
    const int submitted = io_uring_submit_and_wait(&ring_, 1);
    if (submitted < 0 && submitted != -EINTR) {
      return fail_native(Code::io_error, -submitted, "io_uring: {}", std::strerror(-submitted));
    }
    unsigned head = 0;
    unsigned count = 0;
    io_uring_cqe* entry = nullptr;
    Status status;
    io_uring_for_each_cqe(&ring_, head, entry) {
      ++count;
      if (entry->res != static_cast<int>(kBlock)) {
        status = fail_native(Code::io_error, entry->res < 0 ? -entry->res : 0,
                             "a transfer of the bare loop gave {}", entry->res);
        continue;
      }
      done((entry->user_data & 1) != 0, entry->user_data / 2);
    }
    io_uring_cq_advance(&ring_, count);
    return status;
  }

 private:
  io_uring ring_{};
  bool open_ = false;
  bool fixed_ = false;
  int fd_ = -1;
  std::byte* memory_ = nullptr;
};

Result<Sample> BareIo::run(Traffic traffic, const Setting& setting, std::uint64_t bytes) {
  Ring ring;
  const host::AddressRange& memory = setting.huge ? huge_ : small_;
  Status status = ring.open(setting, file_->fd(false), memory.data());
  if (!status.ok()) {
    return status;
  }
  const std::uint64_t total = bytes / kBlock;
  const std::uint64_t file_blocks = bytes_ / kBlock;
  std::uint64_t place = 0;
  std::uint64_t started = 0;
  std::uint64_t done = 0;
  const auto start_one = [&](bool write, std::uint64_t at) {
    ring.submit(write, at, next_block_++ % file_blocks * kBlock);
    ++started;
  };
  const double cpu = cpu_seconds();
  const double start = now_seconds();
  // At most `depth` distinct blocks of memory are in flight: there are more blocks than that, and
  // they rotate.
  while (status.ok() && done < total) {
    while (started < total && started - done < setting.depth) {
      start_one(traffic != Traffic::read, place++ % (kMemory / kBlock));
    }
    status = ring.wait([&](bool wrote, std::uint64_t at) {
      ++done;
      if (traffic == Traffic::mixed && wrote && started < total) {
        start_one(false, at);  // Each write makes room for a read.
      }
    });
  }
  const double took = now_seconds() - start;
  if (!status.ok()) {
    return status;
  }
  const double moved = static_cast<double>(total * kBlock);
  return Sample{moved / took / 1e9, (cpu_seconds() - cpu) / (moved / kGiB)};
}

Result<Sample> BareIo::read_beside_writes(const Setting& setting, unsigned reads,
                                          std::vector<double>& rates,
                                          double (*figure)(std::vector<double> seconds)) {
  Ring ring;
  Setting and_one = setting;
  and_one.depth += 1;
  Status status = ring.open(and_one, file_->fd(false), (setting.huge ? huge_ : small_).data());
  const std::uint64_t file_blocks = bytes_ / kBlock;
  constexpr std::uint64_t kPlaces = kMemory / kBlock;
  std::vector<double> waits;
  std::uint64_t written = 0;
  double begun = 0;
  // Writes use the first half of the file, reads the second.
  std::uint64_t next_write = 0;
  std::uint64_t next_read = 0;
  const auto write = [&](std::uint64_t place) {
    ring.submit(true, place, next_write++ % (file_blocks / 2) * kBlock);
  };
  const auto read = [&] {
    begun = now_seconds();
    ring.submit(false, kPlaces - 1, (file_blocks / 2 + next_read++ % (file_blocks / 2)) * kBlock);
  };
  const double start = now_seconds();
  for (unsigned i = 0; status.ok() && i < setting.depth; ++i) {
    write(i);
  }
  read();
  while (status.ok() && waits.size() < reads) {
    status = ring.wait([&](bool wrote, std::uint64_t place) {
      if (wrote) {
        written += kBlock;
        write(place);
        return;
      }
      waits.push_back(now_seconds() - begun);
      read();
    });
  }
  if (!status.ok()) {
    return status;
  }
  rates.push_back(static_cast<double>(written) / (now_seconds() - start) / 1e9);
  return Sample{figure(std::move(waits)) * 1e3};
}

#else

Result<Sample> BareIo::run(Traffic, const Setting&, std::uint64_t) {
  return fail(Code::unavailable, "built without liburing");
}

Result<Sample> BareIo::read_beside_writes(const Setting&, unsigned, std::vector<double>&,
                                          double (*)(std::vector<double>)) {
  return fail(Code::unavailable, "built without liburing");
}

#endif

Result<std::unique_ptr<BareIo>> BareIo::create(const std::string& directory, std::uint64_t bytes) {
  std::unique_ptr<BareIo> peer(new BareIo);
  peer->bytes_ = bytes / kBlock * kBlock;
  auto file = BlockFile::open({.path = directory, .limit = peer->bytes_});
  if (!file.ok()) {
    return std::move(file).status();
  }
  peer->file_ = std::move(*file);
  Status grown = peer->file_->grow(peer->bytes_);
  if (!grown.ok()) {
    return grown;
  }
  for (const bool huge : {true, false}) {
    auto range = buffers(huge);
    if (!range.ok()) {
      return std::move(range).status();
    }
    (huge ? peer->huge_ : peer->small_) = std::move(*range);
  }
  // Preallocated blocks read as zeros, without access to the disk, until they are written.
  auto written = peer->run(Traffic::write, {.huge = true}, peer->bytes_);
  if (!written.ok()) {
    return std::move(written).status();
  }
  return peer;
}

std::vector<std::string> BareIo::fio_command(Traffic traffic, unsigned depth,
                                             std::uint64_t bytes) const {
  return {"fio",
          "--name=peer",
          fmt::format("--filename=/proc/{}/fd/{}", getpid(), file_->fd(true)),
          fmt::format("--rw={}", fio_word(traffic)),
          "--bs=2M",
          fmt::format("--iodepth={}", depth),
          "--ioengine=io_uring",
          "--direct=1",
          "--fixedbufs=1",
          "--registerfiles=1",
          "--mem=mmap",
          "--fallocate=none",
          "--overwrite=1",
          fmt::format("--size={}", bytes_),
          fmt::format("--io_size={}", bytes),
          "--output-format=json"};
}

std::vector<std::string> BareIo::fio_random_command(unsigned depth, bool fixed,
                                                    unsigned jobs) const {
  std::vector<std::string> words = {
      "fio",
      "--name=peer",
      fmt::format("--filename=/proc/{}/fd/{}", getpid(), file_->fd(true)),
      "--rw=randread",
      "--bs=4k",
      fmt::format("--iodepth={}", depth / jobs),
      fmt::format("--numjobs={}", jobs),
      "--group_reporting",
      "--ioengine=io_uring",
      "--direct=1",
      "--norandommap",
      "--randrepeat=0",
      "--gtod_reduce=1",
      "--fallocate=none",
      fmt::format("--size={}", bytes_),
      "--runtime=1",
      "--time_based"};
  if (fixed) {
    words.insert(words.end(), {"--fixedbufs=1", "--registerfiles=1"});
  }
  words.emplace_back("--output-format=json");
  return words;
}

namespace {

/// The sample that `figures` computes from the report of a run; unavailable without a report.
template <typename Figures>
Result<Sample> fio_sample(const std::vector<std::string>& command, Figures&& figures) {
  const Output output = run_program(command);
  if (output.exit_code != 0) {
    return fail(
        Code::unavailable, "{}",
        output.exit_code == 127 ? "not installed" : fmt::format("exit code {}", output.exit_code));
  }
  // fio may print warnings before the JSON.
  const auto begin = output.text.find('{');
  const auto json = nlohmann::json::parse(
      begin == std::string::npos ? "" : output.text.substr(begin), nullptr, false);
  try {
    return figures(json.at("jobs").at(0));
  } catch (const nlohmann::json::exception& error) {
    return fail(Code::unavailable, "its report cannot be read: {:.100}", error.what());
  }
}

double cpu_of(const nlohmann::json& job) {
  const double seconds = job.at("job_runtime").get<double>() / 1000;
  return (job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>()) / 100 * seconds;
}

}  // namespace

Result<Sample> BareIo::run_fio_random(unsigned depth, bool fixed, unsigned jobs) {
  return fio_sample(fio_random_command(depth, fixed, jobs), [](const nlohmann::json& job) {
    const auto& read = job.at("read");
    return Sample{read.at("iops").get<double>() / 1e3,
                  cpu_of(job) / (read.at("io_bytes").get<double>() / kGiB)};
  });
}

std::vector<Peer> BareIo::random_candidates(unsigned depth) {
  std::vector<Peer> peers;
  for (const unsigned jobs : {1U, 2U}) {
    for (const bool fixed : {false, true}) {
      peers.push_back(
          {fmt::format("fio {}, {} job{}", fixed ? "fixed" : "plain", jobs, jobs > 1 ? "s" : ""),
           fmt::format("{}", fmt::join(fio_random_command(depth, fixed, jobs), " ")),
           [this, depth, fixed, jobs] { return run_fio_random(depth, fixed, jobs); }});
    }
  }
  return peers;
}

Result<Sample> BareIo::run_fio(Traffic traffic, unsigned depth, std::uint64_t bytes) {
  return fio_sample(fio_command(traffic, depth, bytes), [](const nlohmann::json& job) {
    double rate = 0;
    double moved = 0;
    for (const char* way : {"read", "write"}) {
      rate += job.at(way).at("bw_bytes").get<double>();
      moved += job.at(way).at("io_bytes").get<double>();
    }
    return Sample{rate / 1e9, cpu_of(job) / (moved / kGiB)};
  });
}

std::vector<Peer> BareIo::candidates(Traffic traffic, std::uint64_t bytes) {
  std::vector<Peer> peers;
  for (const unsigned depth : {8U, 16U, 32U, 64U}) {
    for (const bool fixed : {false, true}) {
      for (const bool huge : {false, true}) {
        const Setting setting{fixed, huge, depth};
        peers.push_back({setting.text(),
                         fmt::format("bare {} loop, {}, blocks of 2 MiB, O_DIRECT",
                                     fio_word(traffic), setting.text()),
                         [this, traffic, setting, bytes] { return run(traffic, setting, bytes); }});
      }
    }
    peers.push_back({fmt::format("fio depth {}", depth),
                     fmt::format("{}", fmt::join(fio_command(traffic, depth, bytes), " ")),
                     [this, traffic, depth, bytes] { return run_fio(traffic, depth, bytes); }});
  }
  return peers;
}

}  // namespace tiermem::bench
