// device_rate FILE: the rate of the device behind FILE. A bare io_uring loop reads the file TIMES
// times from beginning to end, without the page cache. The bytes are ignored. One thread.
//
//   device_rate FILE BLOCK DEPTH TIMES     prints bytes per second
//
// scripts/bench-llm compiles it. Exit status: 0; 1 the file cannot be read this way; 2 usage.
#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

[[noreturn]] void give_up(const char* what, int error) {
  std::fprintf(stderr, "device_rate: %s: %s\n", what, std::strerror(error));
  std::exit(1);
}

constexpr std::uintptr_t kHugePage = 2u << 20;

/// Bytes per second. Reads whole blocks of the file only, because O_DIRECT needs aligned lengths.
double read_rate(int fd, std::uint64_t bytes, unsigned block, unsigned depth, unsigned times) {
  io_uring ring;
  io_uring_params settings{};
  settings.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
  int made = io_uring_queue_init_params(depth, &ring, &settings);
  if (made == -EINVAL) {  // An older kernel.
    made = io_uring_queue_init(depth, &ring, 0);
  }
  if (made < 0) {
    give_up("io_uring", -made);
  }
  const std::size_t room = static_cast<std::size_t>(block) * depth;
  // Huge pages if available: the kernel splits a read into many small pages.
  void* const mapped =
      mmap(nullptr, room + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    give_up("buffers", errno);
  }
  void* const memory = reinterpret_cast<void*>(
      (reinterpret_cast<std::uintptr_t>(mapped) + kHugePage - 1) & ~(kHugePage - 1));
  (void)madvise(memory, room, MADV_HUGEPAGE);
  std::memset(memory, 1, room);
  std::vector<iovec> vectors(depth);
  for (unsigned i = 0; i < depth; ++i) {
    vectors[i] = {static_cast<char*>(memory) + static_cast<std::size_t>(i) * block, block};
  }
  // If buffers cannot be registered (a low limit of locked memory), plain reads are used.
  const bool fixed = io_uring_register_buffers(&ring, vectors.data(), depth) == 0;

  const std::uint64_t in_file = bytes / block, blocks = in_file * times;
  std::uint64_t next = 0, done = 0;
  const auto submit = [&](unsigned slot) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring);
    if (fixed) {
      io_uring_prep_read_fixed(entry, fd, vectors[slot].iov_base, block, next % in_file * block,
                               static_cast<int>(slot));
    } else {
      io_uring_prep_read(entry, fd, vectors[slot].iov_base, block, next % in_file * block);
    }
    io_uring_sqe_set_data64(entry, slot);
    ++next;
  };
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned slot = 0; slot < std::min<std::uint64_t>(depth, blocks); ++slot) {
    submit(slot);
  }
  while (done < blocks) {
    if (const int sent = io_uring_submit_and_wait(&ring, 1); sent < 0 && sent != -EINTR) {
      give_up("submit", -sent);
    }
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring, &entry) == 0) {
      if (entry->res != static_cast<int>(block)) {
        give_up("read", entry->res < 0 ? -entry->res : EIO);
      }
      const auto slot = static_cast<unsigned>(io_uring_cqe_get_data64(entry));
      io_uring_cqe_seen(&ring, entry);
      ++done;
      if (next < blocks) {
        submit(slot);
      }
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  io_uring_queue_exit(&ring);
  munmap(mapped, room + kHugePage);
  return static_cast<double>(blocks * block) / took.count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: device_rate FILE BLOCK DEPTH TIMES\n");
    return 2;
  }
  const unsigned long block = std::strtoul(argv[2], nullptr, 10);
  const unsigned long depth = std::strtoul(argv[3], nullptr, 10);
  const unsigned long times = std::strtoul(argv[4], nullptr, 10);
  if (block < 4096 || block > (64u << 20) || block % 4096 != 0 || depth < 1 || depth > 256 ||
      times < 1 || times > 1000) {
    std::fprintf(
        stderr, "device_rate: BLOCK a multiple of 4096 to 64 MiB, DEPTH 1 to 256, TIMES to 1000\n");
    return 2;
  }
  const int fd = open(argv[1], O_RDONLY | O_DIRECT | O_CLOEXEC);
  struct stat about {};
  if (fd < 0 || fstat(fd, &about) != 0) {
    give_up(argv[1], errno);
  }
  if (static_cast<std::uint64_t>(about.st_size) < block) {
    std::fprintf(stderr, "device_rate: %s is smaller than a block\n", argv[1]);
    return 1;
  }
  std::printf("%.0f\n",
              read_rate(fd, static_cast<std::uint64_t>(about.st_size), static_cast<unsigned>(block),
                        static_cast<unsigned>(depth), static_cast<unsigned>(times)));
  return 0;
}
