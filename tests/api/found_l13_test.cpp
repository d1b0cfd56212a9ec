// Fault L13: a crashed program left a core dump of 1.1 TB, because it included address space
// without bytes. A core dump now has the memory that the program can touch, and little else.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/found.hpp"
#include "support/mappings.hpp"
#include "support/pattern.hpp"
#include "support/sanitizers.hpp"

namespace tiermem::test {
namespace {

constexpr std::uint64_t kBudget = 32 * kMiB;
// Tiermem's records, the threads' stacks and malloc's memory.
constexpr std::uint64_t kConstant = 160 * kMiB;

struct CoreDumps : ::testing::Test {
  std::string options(const char* more = "") const {
    return "dram=32M; nvme=" + directory.path() + ":512M" + more;
  }
  Directory directory;
};

FOUND_TEST(CoreDumps, L13_address_space_is_dumped_where_live_buffers_are_only) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer has address space of its own";
  }
  for (const char* mechanism : {"", "; mechanism=remap", "; mechanism=in_place"}) {
    SCOPED_TRACE(mechanism);
    const Mappings before = mappings();
    auto context = make_context(options(mechanism));
    ASSERT_NE(context, nullptr);
    auto viewed = context->alloc(64 * kMiB);
    ASSERT_TRUE(viewed.ok()) << viewed.message();
    ASSERT_TRUE(write_pattern(*viewed, 1).ok());
    auto small = context->alloc(24 * kMiB, {.extent_bytes = 65536});
    ASSERT_TRUE(small.ok()) << small.message();
    ASSERT_TRUE(write_pattern(*small, 2).ok());
    std::uint64_t live = viewed->size() + small->size();
    auto mapped = context->alloc(48 * kMiB, {.flags = kMapped});
    if (mapped.ok()) {
      auto address = mapped->address();
      ASSERT_TRUE(address.ok()) << address.message();
      fill({reinterpret_cast<std::uint64_t*>(*address), mapped->size() / 8}, 3);
      live += mapped->size();
    }
    void* const block = *context->malloc_at({Kind::dram, 0}, 4096);
    std::memset(block, 7, 4096);
    const Mappings with = mappings();
    EXPECT_LE(with.dumped - before.dumped, live + kBudget + kConstant);
    EXPECT_GE(with.dumped - before.dumped, kBudget / 2) << "buffers are not in it";
  }
}

FOUND_TEST(CoreDumps, L13_windows_that_were_freed_are_dumped_no_longer) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer has address space of its own";
  }
  auto context = make_context(options());
  ASSERT_NE(context, nullptr);
  auto first = context->alloc(2 * kMiB, {.extent_bytes = 65536});
  ASSERT_TRUE(first.ok());
  const Mappings before = mappings();
  {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 64; ++i) {
      auto made = context->alloc(1024 * kMiB, {.flags = i % 2 == 0 ? std::uint32_t{kMapped} : 0u});
      if (made.code() != Code::unsupported) {
        ASSERT_TRUE(made.ok()) << made.message();
        buffers.push_back(std::move(made).value());
      }
    }
    EXPECT_GE(mappings().dumped - before.dumped, std::uint64_t{32} << 30);
    // Frees every second one: holes between live windows.
    for (std::size_t i = 0; i < buffers.size(); i += 2) {
      buffers[i] = Buffer();
    }
    ASSERT_TRUE(context->alloc(4096)->write(0, "x", 1).ok());
  }
  // The mover frees them one after another.
  std::uint64_t dumped = 0;
  for (int tries = 0; tries < 500; ++tries) {
    dumped = mappings().dumped;
    if (dumped <= before.dumped + 256 * kMiB) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(dumped, before.dumped + 256 * kMiB);
}

// A child writes these before it crashes: the address of its bytes and their pattern.
struct Held {
  std::uint64_t address, bytes, seed;
};

std::string core_in(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename().string().rfind("core", 0) == 0) {
      return entry.path();
    }
  }
  return {};
}

// Runs `body` in a child that has its own directory and may dump core, and aborts it.
template <typename Body>
struct stat crash(const std::string& directory, Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_CORE, &all) != 0) {
      const rlimit hard = [] {
        rlimit now{};
        ::getrlimit(RLIMIT_CORE, &now);
        return rlimit{now.rlim_max, now.rlim_max};
      }();
      (void)::setrlimit(RLIMIT_CORE, &hard);
    }
    if (::chdir(directory.c_str()) != 0) {
      ::_exit(1);
    }
    body();
    ::signal(SIGABRT, SIG_DFL);
    ::abort();
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  struct stat found {};
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
  if (WIFSIGNALED(status) && WCOREDUMP(status)) {
    (void)::stat(core_in(directory).c_str(), &found);
  }
  return found;
}

// Returns the number of words of the range that match the pattern in the core.
std::uint64_t found_in_core(const std::string& core, const Held& held) {
  std::ifstream file(core, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  std::vector<Elf64_Phdr> parts(header.e_phnum);
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  file.read(reinterpret_cast<char*>(parts.data()),
            static_cast<std::streamsize>(parts.size() * sizeof(Elf64_Phdr)));
  std::uint64_t right = 0;
  for (const Elf64_Phdr& part : parts) {
    const std::uint64_t begin = std::max(held.address, part.p_vaddr);
    const std::uint64_t end = std::min(held.address + held.bytes, part.p_vaddr + part.p_filesz);
    if (part.p_type != PT_LOAD || begin >= end) {
      continue;
    }
    std::vector<std::uint64_t> words((end - begin) / 8);
    file.seekg(static_cast<std::streamoff>(part.p_offset + (begin - part.p_vaddr)));
    file.read(reinterpret_cast<char*>(words.data()),
              static_cast<std::streamsize>(words.size() * 8));
    right += words.size() - wrong(words, held.seed, (begin - held.address) / 8);
  }
  return right;
}

FOUND_TEST(CoreDumps, L13_a_crash_leaves_the_bytes_of_the_program_in_a_small_core) {
  std::string pattern;
  std::getline(std::ifstream("/proc/sys/kernel/core_pattern"), pattern);
  rlimit limit{};
  ::getrlimit(RLIMIT_CORE, &limit);
  if (pattern.rfind("core", 0) != 0 || limit.rlim_max < 1024 * kMiB) {
    GTEST_SKIP() << "core dumps go to '" << pattern << "', limit " << limit.rlim_max;
  }
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer has address space of its own";
  }
  // The same bytes in plain memory.
  Directory plain_directory;
  const struct stat plain = crash(plain_directory.path(), [] {
    constexpr std::uint64_t kBytes = 80 * kMiB;
    void* const memory =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill({static_cast<std::uint64_t*>(memory), kBytes / 8}, 1);
  });
  if (plain.st_size == 0) {
    GTEST_SKIP() << "this kernel writes no core dump here";
  }
  Directory tiered_directory;
  const std::string facts = tiered_directory.path() + "/facts";
  const struct stat tiered = crash(tiered_directory.path(), [&] {
    auto context = make_context(options());
    auto large = context->alloc(64 * kMiB);
    (void)write_pattern(*large, 1);
    auto single = context->alloc(kMiB);
    auto mapped = context->alloc(16 * kMiB, {.flags = kMapped});
    std::vector<Held> held;
    const auto note = [&](const void* at, std::uint64_t bytes, std::uint64_t seed) {
      held.push_back({reinterpret_cast<std::uint64_t>(at), bytes, seed});
    };
    auto view = large->acquire(kRead, 0, 8 * kMiB);
    note(view->data(), view->size(), 1);
    auto in_frame = single->acquire(kWrite);
    fill(in_frame->as<std::uint64_t>(), 2);
    note(in_frame->data(), in_frame->size(), 2);
    void* const block = *context->malloc_at({Kind::dram, 0}, 65536);
    fill({static_cast<std::uint64_t*>(block), 65536 / 8}, 4);
    note(block, 65536, 4);
    if (mapped.ok()) {
      auto* const words = reinterpret_cast<std::uint64_t*>(*mapped->address());
      fill({words, 4 * kMiB / 8}, 3);
      note(words, 4 * kMiB, 3);
    }
    std::ofstream(facts, std::ios::binary)
        .write(reinterpret_cast<const char*>(held.data()),
               static_cast<std::streamsize>(held.size() * sizeof(Held)));
    ::signal(SIGABRT, SIG_DFL);
    ::abort();  // Its views are still held.
  });
  // The file's size shows how many addresses the kernel examined, and therefore how long the dump
  // took.
  EXPECT_LE(tiered.st_size, 2 * plain.st_size + static_cast<off_t>(kBudget + kConstant));
  EXPECT_LE(tiered.st_blocks * 512, 2 * plain.st_blocks * 512 + static_cast<off_t>(kBudget));
  std::vector<Held> held(4);
  std::ifstream file(facts, std::ios::binary);
  file.read(reinterpret_cast<char*>(held.data()),
            static_cast<std::streamsize>(held.size() * sizeof(Held)));
  held.resize(static_cast<std::size_t>(file.gcount()) / sizeof(Held));
  ASSERT_GE(held.size(), 3u);
  for (const Held& range : held) {
    EXPECT_EQ(found_in_core(core_in(tiered_directory.path()), range), range.bytes / 8)
        << "pattern " << range.seed;
  }
}

}  // namespace
}  // namespace tiermem::test
