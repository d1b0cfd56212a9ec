// The judged program. It contains no code that depends on tiermem.
//
// It reports only what the kernel guarantees: for a mapped page its bytes, or the signal of a
// touch, and its protection in /proc/self/maps; and the result and errno of each call. Addresses
// differ between two runs, so pages are identified by slot and number.
#include "run.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "neighbours.hpp"

namespace judge {
namespace {

constexpr std::size_t kPressure = std::size_t{4} << 20;

thread_local sigjmp_buf g_touch;
thread_local volatile sig_atomic_t g_touching = 0;

// A sanitizer's runtime blocks all signals while a handler runs, whatever sa_flags contain, and
// handles munlock and mlockall itself: they return 0 whatever their arguments are.
const bool g_has_runtime = getenv(kRuntimeVariable) != nullptr;

void on_signal(int signal) {
  if (g_touching == 0) {
    _exit(100 + signal);
  }
  siglongjmp(g_touch, signal);
}

// Returns 0, or the signal that a touch of memory in `body` raised.
template <typename Body>
int touching(Body&& body) {
  const int signal = sigsetjmp(g_touch, g_has_runtime);
  if (signal == 0) {
    g_touching = 1;
    body();
  }
  g_touching = 0;
  return signal;
}

// Attaches a new segment of System V shared memory, which lives until it is detached.
void* attach(std::byte* at, std::size_t bytes) {
  const int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
  void* const attached = shmat(id, at, SHM_REMAP);
  const int error = errno;
  (void)shmctl(id, IPC_RMID, nullptr);
  errno = error;
  return attached;
}

struct Slot {
  std::byte* at = nullptr;
  unsigned pages = 0;
  // Pages of the mapping that begins with this slot; 0: the slot is the whole mapping.
  unsigned reserved = 0;
  bool mapped[kMostPages] = {};
  bool odd[kMostPages] = {};            // A call may have cut the kernel's mapping here.
  std::uint16_t file[kMostPages] = {};  // If it is a shared page of the file: its number + 1.
};

class Run {
 public:
  explicit Run(const RunOptions& options) : options_(options) {}

  bool open_files();
  bool is_tiered();
  void sequence(const Sequence& sequence);
  std::uint64_t digest() const { return digest_; }

 private:
  void call(const Call& call, unsigned number);
  std::byte* at(const Call& call) const { return slots_[call.slot].at + call.page * kPage; }
  void say(const char* what, std::uint64_t value);
  void say_result(long result, long normal = 0);
  void look_at(const Slot& slot, unsigned page);
  void look();
  void look_at_maps();
  bool has_a_page_twice(const Call& call) const;
  bool all(const Call& call, const bool (Slot::*which)[kMostPages], bool value) const;
  bool leaves_nothing(const Call& call) const;
  void set(unsigned slot, unsigned page, unsigned pages, const bool mapped);
  void make_odd(unsigned slot, unsigned page, unsigned pages);
  long protect(const Call& call) const;
  void store(const Call& call);
  void store_beside_pressure(const Call& call);
  unsigned store_pages(const Call& call);
  void mapped_over(const Call& call, void* result);
  void copy(const Call& call);
  void grow(const Call& call);
  void move(const Call& call);
  void children(const Call& call);
  void pressure();
  void fold(std::uint64_t value) {
    digest_ = (digest_ ^ value) * 0x9e3779b97f4a7c15;
    digest_ ^= digest_ >> 29;
  }
  void file_bytes(int fd);
  void fill_file(int fd);
  std::byte* next_place();

  const RunOptions options_;
  Slot slots_[kSlots];
  std::byte* pressure_ = nullptr;
  std::byte* place_ = reinterpret_cast<std::byte*>(std::uintptr_t{0x10'0000'0000});
  int file_ = -1;     // Mapped by shared mappings.
  int source_ = -1;   // Read by calls, and mapped by private mappings.
  int written_ = -1;  // Written by calls.
  int zero_ = -1;     // A device that can be mapped.
  int self_ = -1;     // This process.
  Counter counter_;
  Caller caller_;
  std::uint64_t digest_ = 0;
  bool quiet_ = false;  // In a child: prints nothing.
};

void Run::say(const char* what, std::uint64_t value) {
  fold(value);
  if (options_.verbose && !quiet_) {
    std::printf(" %s=%llx", what, static_cast<unsigned long long>(value));
  }
}

// `normal`: the number to print for a pointer other than MAP_FAILED.
void Run::say_result(long result, long normal) {
  const int error = errno;
  if (result == -1) {
    say("errno", static_cast<std::uint64_t>(error) + 1000);
  } else {
    say("result", static_cast<std::uint64_t>(normal != 0 ? normal : result));
  }
}

bool Run::open_files() {
  const auto open_one = [&](const char* name) {
    char path[512];
    std::snprintf(path, sizeof path, "%s/judge-%s-%d", options_.folder, name, getpid());
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    unlink(path);
    return fd;
  };
  file_ = open_one("mapped");
  source_ = open_one("source");
  written_ = open_one("written");
  zero_ = open("/dev/zero", O_RDWR | O_CLOEXEC);
  self_ = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  if (file_ < 0 || source_ < 0 || written_ < 0 || zero_ < 0 || self_ < 0) {
    return false;
  }
  fill_file(source_);
  void* const got =
      mmap(nullptr, kPressure, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pressure_ = static_cast<std::byte*>(got);
  caller_.start();
  return got != MAP_FAILED && counter_.start();
}

void Run::fill_file(int fd) {
  static std::uint64_t page[kPage / 8];
  for (unsigned i = 0; i < kFilePages; ++i) {
    for (unsigned j = 0; j < kPage / 8; ++j) {
      page[j] = (std::uint64_t{i} << 32 | j) * 0x9e3779b97f4a7c15;
    }
    if (pwrite(fd, page, kPage, static_cast<off_t>(i * kPage)) != static_cast<ssize_t>(kPage)) {
      std::perror("judge: pwrite");
      std::exit(4);
    }
  }
}

void Run::file_bytes(int fd) {
  static std::uint64_t page[kPage / 8];
  for (unsigned i = 0; i < kFilePages; ++i) {
    std::memset(page, 0, kPage);
    (void)!pread(fd, page, kPage, static_cast<off_t>(i * kPage));
    std::uint64_t sum = 0;
    for (const std::uint64_t word : page) {
      sum = (sum ^ word) * 0x100000001b3;
    }
    fold(sum);
    if (options_.verbose && !quiet_) {
      std::printf(" file%u=%llx", i, static_cast<unsigned long long>(sum));
    }
  }
}

bool Run::is_tiered() {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  void* const got =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) {
    return false;
  }
  std::memset(got, 1, kBytes);
  bool absent = false;
  for (int tries = 0; tries < 3000 && !absent; ++tries) {
    static unsigned char resident[kBytes / kPage];
    (void)madvise(got, kBytes, MADV_PAGEOUT);
    (void)mincore(got, kBytes, resident);
    absent = std::any_of(std::begin(resident), std::end(resident),
                         [](unsigned char page) { return (page & 1) == 0; });
    poll(nullptr, 0, 1);
  }
  munmap(got, kBytes);
  return absent;
}

// Far from the addresses that the kernel chooses, so that no other mapping takes the holes.
std::byte* Run::next_place() {
  std::byte* const place = place_;
  place_ += std::size_t{64} << 20;
  if (reinterpret_cast<std::uintptr_t>(place_) > std::uintptr_t{0x1000'0000'0000}) {
    place_ = reinterpret_cast<std::byte*>(std::uintptr_t{0x10'0000'0000});
  }
  return place;
}

void Run::look_at(const Slot& slot, unsigned page) {
  if (page >= slot.pages || !slot.mapped[page]) {
    return;
  }
  std::uint64_t sum = 0;
  const int signal = touching([&] {
    const auto* const words =
        reinterpret_cast<const volatile std::uint64_t*>(slot.at + page * kPage);
    for (unsigned i = 0; i < kPage / 8; ++i) {
      sum = (sum ^ words[i]) * 0x100000001b3;
    }
  });
  fold(signal != 0 ? static_cast<std::uint64_t>(signal) : sum);
  if (options_.verbose && !quiet_) {
    if (signal != 0) {
      std::printf(" %d.%u:sig%d", static_cast<int>(&slot - slots_), page, signal);
    } else {
      std::printf(" %d.%u:%llx", static_cast<int>(&slot - slots_), page,
                  static_cast<unsigned long long>(sum));
    }
  }
}

void Run::look_at_maps() {
  FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) {
    return;
  }
  static char protections[kSlots][kMostPages][5];
  std::memset(protections, 0, sizeof protections);
  char line[1024];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long begin = 0, end = 0;
    char protection[5] = {};
    if (std::sscanf(line, "%lx-%lx %4s", &begin, &end, protection) != 3) {
      continue;
    }
    for (unsigned i = 0; i < kSlots; ++i) {
      const auto first = reinterpret_cast<unsigned long>(slots_[i].at);
      const unsigned long last = first + slots_[i].pages * kPage;
      for (unsigned long at = std::max(begin, first); at < std::min(end, last); at += kPage) {
        std::memcpy(protections[i][(at - first) / kPage], protection, 5);
      }
    }
  }
  std::fclose(maps);
  for (unsigned i = 0; i < kSlots; ++i) {
    for (unsigned page = 0; page < slots_[i].pages; ++page) {
      if (!slots_[i].mapped[page]) {
        continue;
      }
      std::uint32_t four = 0;
      std::memcpy(&four, protections[i][page], 4);
      fold(four);
      if (options_.verbose && !quiet_) {
        std::printf(" %u.%u:%s", i, page, protections[i][page]);
      }
    }
  }
}

void Run::look() {
  for (const Slot& slot : slots_) {
    for (unsigned page = 0; page < slot.pages; ++page) {
      look_at(slot, page);
    }
  }
  look_at_maps();
}

bool Run::all(const Call& call, const bool (Slot::*which)[kMostPages], bool value) const {
  const Slot& slot = slots_[call.slot];
  for (unsigned i = call.page; i < call.page + call.pages; ++i) {
    if (i >= slot.pages || (slot.*which)[i] != value) {
      return false;
    }
  }
  return true;
}

// If nothing of a slot is mapped any more, the other thread's next mapping may use its addresses,
// and the slot's next call would affect it.
bool Run::leaves_nothing(const Call& call) const {
  const Slot& slot = slots_[call.slot];
  const bool* const part = slot.mapped + call.page;
  return caller_.works() && std::count(slot.mapped, slot.mapped + slot.pages, true) ==
                                std::count(part, part + call.pages, true);
}

void Run::set(unsigned slot, unsigned page, unsigned pages, const bool mapped) {
  std::fill_n(slots_[slot].mapped + page, pages, mapped);
  std::fill_n(slots_[slot].file + page, pages, std::uint16_t{0});
}

// The kernel does not promise in which order a call writes the bytes that it reads, nor in which
// order two threads store. The order shows where a page of a file is mapped twice.
bool Run::has_a_page_twice(const Call& call) const {
  std::bitset<kMostPages + 1> seen;
  const std::uint16_t* const first = slots_[call.slot].file + call.page;
  return std::any_of(first, first + call.pages, [&](std::uint16_t number) {
    const bool again = number != 0 && seen[number];
    seen[number] = true;
    return again;
  });
}

void Run::make_odd(unsigned slot, unsigned page, unsigned pages) {
  std::fill_n(slots_[slot].odd + page, pages, true);
}

long Run::protect(const Call& call) const {
  const std::size_t bytes = call.pages * kPage;
  const int protection = static_cast<int>(call.argument);
  switch (way_to_protect(call)) {
    case Way::system_call:
      return syscall(SYS_mprotect, at(call), bytes, protection);
    case Way::with_key:
      return pkey_mprotect(at(call), bytes, protection, key_of(call));
    case Way::library:
      break;
  }
  return mprotect(at(call), bytes, protection);
}

// Stores from two other threads at once, while this thread causes a shortage.
void Run::store_beside_pressure(const Call& call) {
  unsigned signals[2] = {};
  const unsigned half = call.pages / 2;
  Call one = call, other = call;
  one.pages = half;
  other.page += half;
  other.pages -= half;
  {
    std::thread first([&] { signals[0] = store_pages(one); });
    std::thread second([&] { signals[1] = store_pages(other); });
    pressure();
    first.join();
    second.join();
  }
  say("signals", signals[0] + signals[1]);
}

void Run::store(const Call& call) {
  if ((call.more >> 8 & 7) == 0 && !quiet_ && !has_a_page_twice(call)) {
    store_beside_pressure(call);
  } else {
    say("signals", store_pages(call));
  }
}

// Stores to the pages. Returns the number of pages that raised a signal.
unsigned Run::store_pages(const Call& call) {
  const Slot& slot = slots_[call.slot];
  unsigned signals = 0;
  for (unsigned page = call.page; page < call.page + call.pages; ++page) {
    if (!slot.mapped[page]) {
      continue;
    }
    const int signal = touching([&] {
      auto* const words = reinterpret_cast<volatile std::uint64_t*>(slot.at + page * kPage);
      const std::uint64_t pattern = std::uint64_t{call.argument} << 20 | page;
      if ((call.more & 1) != 0) {
        words[call.more / 2 % (kPage / 8)] = pattern;
      } else {
        for (unsigned i = 0; i < kPage / 8; ++i) {
          words[i] = pattern * (i + 1);
        }
      }
    });
    signals += signal != 0 ? 1 : 0;
  }
  return signals;
}

void Run::mapped_over(const Call& call, void* result) {
  make_odd(call.slot, call.page, call.pages);
  say_result(result == MAP_FAILED ? -1 : 0, 1);
  if (result != MAP_FAILED) {
    say("where", result == at(call) ? 1 : 2);
    set(call.slot, call.page, call.pages, true);
  }
}

void Run::copy(const Call& call) {
  const Slot& from = slots_[call.slot];
  const Slot& to = slots_[call.argument];
  for (unsigned i = 0; i < call.pages; ++i) {
    if (call.page + i >= from.pages || call.more + i >= to.pages || !from.mapped[call.page + i] ||
        !to.mapped[call.more + i]) {
      continue;
    }
    const int signal = touching([&] {
      std::memcpy(to.at + (call.more + i) * kPage, from.at + (call.page + i) * kPage, kPage);
    });
    say("signal", static_cast<std::uint64_t>(signal));
  }
}

void Run::grow(const Call& call) {
  Slot& slot = slots_[call.slot];
  const Call whole{What::look, call.slot, 0, slot.pages, 0, 0};
  const unsigned more = call.argument;
  if (!all(whole, &Slot::mapped, true) || !all(whole, &Slot::odd, false) || slot.reserved != 0 ||
      slot.pages + more > kMostPages) {
    return;
  }
  void* moved = mremap(slot.at, slot.pages * kPage, (slot.pages + more) * kPage, MREMAP_MAYMOVE);
  say_result(moved == MAP_FAILED ? -1 : 0, 1);
  if (moved == MAP_FAILED) {
    return;
  }
  if (options_.plain) {
    const std::size_t bytes = (slot.pages + more) * kPage;
    moved = mremap(moved, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, next_place());
  }
  slot.at = static_cast<std::byte*>(moved);
  set(call.slot, slot.pages, more, true);
  std::fill_n(slot.odd + slot.pages, more, false);
  slot.pages += more;
}

void Run::move(const Call& call) {
  const Slot& target = slots_[call.argument];
  if (!all(call, &Slot::mapped, true) || !all(call, &Slot::odd, false) ||
      call.more + call.pages > target.pages || leaves_nothing(call)) {
    return;
  }
  void* const result = mremap(at(call), call.pages * kPage, call.pages * kPage,
                              MREMAP_MAYMOVE | MREMAP_FIXED, target.at + call.more * kPage);
  say_result(result == MAP_FAILED ? -1 : 0, 1);
  make_odd(call.slot, call.page, call.pages);
  make_odd(call.argument, call.more, call.pages);
  if (result != MAP_FAILED) {
    set(call.slot, call.page, call.pages, false);
    set(call.argument, call.more, call.pages, true);
  }
}

void Run::children(const Call& call) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return;
  }
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    quiet_ = true;
    // In a child only: the library tiers no memory of a process after this call.
    if (const int locks = locks_of(call); locks >= 0 && !g_has_runtime && geteuid() == 0) {
      say_result(mlockall(locks));
    }
    look();
    store(call);
    // The child does not inherit its parent's locks.
    say_result(madvise(at(call), call.pages * kPage, MADV_DONTNEED));
    look();
    const std::uint64_t sum = digest_;
    _exit(write(ends[1], &sum, sizeof sum) == sizeof sum ? 0 : 9);
  }
  close(ends[1]);
  std::uint64_t sum = 0;
  say("child", read(ends[0], &sum, sizeof sum) == sizeof sum ? sum : 1);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  say("status", static_cast<std::uint64_t>(status));
}

void Run::pressure() {
  for (const Slot& slot : slots_) {
    (void)madvise(slot.at, slot.pages * kPage, MADV_PAGEOUT);
  }
  for (std::size_t i = 0; i < kPressure; i += kPage) {
    const_cast<volatile std::byte&>(pressure_[i]) = std::byte{1};
  }
}

void Run::call(const Call& call, unsigned number) {
  Slot& slot = slots_[call.slot];
  if (options_.verbose) {
    std::printf("%u %s:", number, text_of(call).c_str());
  }
  const std::size_t bytes = call.pages * kPage;
  if (call.page + call.pages > slot.pages && call.what != What::look) {
    if (options_.verbose) {
      std::printf("\n");
    }
    return;  // The slot has shrunk since.
  }
  errno = 0;
  switch (call.what) {
    case What::store:
      store(call);
      break;
    case What::protect:
      make_odd(call.slot, call.page, call.pages);
      say_result(protect(call));
      break;
    case What::unmap:
      if (leaves_nothing(call)) {
        break;
      }
      make_odd(call.slot, call.page, call.pages);
      say_result((call.more >> 8 & 7) == 0 ? syscall(SYS_munmap, at(call), bytes)
                                           : munmap(at(call), bytes));
      set(call.slot, call.page, call.pages, false);
      break;
    case What::map_fresh:
    case What::map_again: {
      const int fixed = call.what == What::map_fresh ? MAP_FIXED : MAP_FIXED_NOREPLACE;
      mapped_over(call,
                  mmap(at(call), bytes, static_cast<int>(call.argument),
                       MAP_PRIVATE | MAP_ANONYMOUS | fixed | static_cast<int>(call.more), -1, 0));
      break;
    }
    case What::map_file: {
      // It is unspecified whether a private mapping shows later changes of its file. The file of
      // source_ never changes.
      const bool shared = (call.more & MAP_TYPE) == MAP_SHARED;
      void* const result =
          mmap(at(call), bytes, static_cast<int>(call.argument),
               static_cast<int>(call.more) | MAP_FIXED, shared ? file_ : source_, 0);
      mapped_over(call, result);
      if (result != MAP_FAILED && shared) {
        std::iota(slot.file + call.page, slot.file + call.page + call.pages, std::uint16_t{1});
      }
      break;
    }
    case What::map_shared:
      if ((call.argument & 1) != 0) {
        const int kind = (call.argument & 2) != 0 ? MAP_SHARED : MAP_PRIVATE;
        mapped_over(call,
                    mmap(at(call), bytes, PROT_READ | PROT_WRITE, kind | MAP_FIXED, zero_, 0));
      } else if ((call.argument & 4) != 0) {
        mapped_over(call, attach(at(call), bytes));
      } else {
        mapped_over(call, mmap(at(call), bytes, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
      }
      break;
    case What::map_wrong:
      mapped_over(call, mmap(at(call), bytes, PROT_READ, MAP_SHARED | MAP_FIXED, 1 << 20, 0));
      break;
    case What::advise:
      switch (call.argument) {
        case MADV_DONTNEED:
        case MADV_WILLNEED:
        case MADV_COLD:
        case MADV_PAGEOUT:
        case MADV_POPULATE_READ:
        case MADV_POPULATE_WRITE:
          break;
        default:
          make_odd(call.slot, call.page, call.pages);
      }
      if ((call.more >> 8 & 7) == 0) {
        const iovec part{at(call), bytes};
        say_result(static_cast<long>(
            process_madvise(self_, &part, 1, static_cast<int>(call.argument), 0)));
      } else if ((call.more >> 8 & 7) == 1) {
        say_result(syscall(SYS_madvise, at(call), bytes, static_cast<int>(call.argument)));
      } else {
        say_result(madvise(at(call), bytes, static_cast<int>(call.argument)));
      }
      break;
    case What::lock:
      make_odd(call.slot, call.page, call.pages);
      say_result(mlock2(at(call), bytes, call.argument));
      break;
    case What::unlock:
      make_odd(call.slot, call.page, call.pages);
      say_result((call.more >> 8 & 7) == 0 || g_has_runtime ? syscall(SYS_munlock, at(call), bytes)
                                                            : munlock(at(call), bytes));
      break;
    case What::sync:
      say_result(msync(at(call), bytes, MS_ASYNC));
      break;
    case What::resident: {
      static unsigned char resident[kMostPages];
      say_result(mincore(at(call), bytes, resident));
      break;
    }
    case What::shrink: {
      const Call whole{What::look, call.slot, 0, slot.pages, 0, 0};
      if (call.page != 0 && all(whole, &Slot::mapped, true) && all(whole, &Slot::odd, false)) {
        void* const result = mremap(slot.at, slot.pages * kPage, call.page * kPage, 0);
        say_result(result == MAP_FAILED ? -1 : 0, 1);
        slot.pages = call.page;
      }
      break;
    }
    case What::grow:
      grow(call);
      break;
    case What::move:
      move(call);
      break;
    case What::read_file:
      if (has_a_page_twice(call)) {
        break;
      }
      say_result(pread(source_, at(call) + 100, bytes - 100, 0));
      break;
    case What::write_file:
      (void)!ftruncate(written_, 0);
      errno = 0;
      say_result(pwrite(written_, at(call), bytes, 0));
      file_bytes(written_);
      break;
    case What::copy:
      copy(call);
      break;
    case What::children:
      children(call);
      break;
    case What::pressure:
      pressure();
      break;
    case What::look:
      look();
      break;
  }
  if ((call.more & 0x30000) == 0) {
    look_at(slot, call.page);
    look_at(slot, call.page + call.pages - 1);
    look_at(slot, call.page + call.pages);
  }
  if (options_.verbose) {
    std::printf("\n");
  }
}

void Run::sequence(const Sequence& sequence) {
  digest_ = 0;
  // The other thread's mappings could use holes in slots that have no own buffer.
  const bool own = *std::min_element(std::begin(sequence.pages), std::end(sequence.pages)) >= 64;
  caller_.work(sequence.seed % 2 == 0 && own);
  fill_file(file_);
  for (unsigned i = 0; i < kSlots; ++i) {
    Slot& slot = slots_[i];
    slot = {};
    slot.pages = sequence.pages[i];
    // Like allocators and virtual machines: a larger range is reserved, and a part of it made
    // accessible.
    slot.reserved = sequence.seed % 3 == 0 ? 1100 : 0;
    const int protection = slot.reserved != 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
    void* const got =
        mmap(options_.plain ? next_place() : nullptr, std::max(slot.reserved, slot.pages) * kPage,
             protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const bool opened =
        got != MAP_FAILED &&
        (slot.reserved == 0 || mprotect(got, slot.pages * kPage, PROT_READ | PROT_WRITE) == 0);
    if (!opened) {
      std::perror("judge: mmap");
      std::exit(4);
    }
    slot.at = static_cast<std::byte*>(got);
    set(i, 0, slot.pages, true);
  }
  look();  // Fresh memory must be zeros, whatever it held before.
  for (unsigned i = 0; i < kSlots; ++i) {
    store({What::store, i, 0, slots_[i].pages, 1000 + i, 0});
  }
  for (unsigned i = 0; i < sequence.calls.size(); ++i) {
    call(sequence.calls[i], i);
  }
  if (options_.verbose) {
    std::printf("end:");
  }
  file_bytes(file_);
  say("lost", counter_.wrong());
  say("wrong beside", caller_.wrong());
  for (const Slot& slot : slots_) {
    munmap(slot.at, std::max(slot.reserved, slot.pages) * kPage);
  }
  if (options_.verbose) {
    std::printf("\n");
  }
}

}  // namespace

Sequence sequence_of(const RunOptions& options, std::uint64_t seed) {
  Sequence sequence = make_sequence(seed, options.calls);
  std::vector<Call> kept;
  std::vector<bool> out(sequence.calls.size());
  for (const char* at = options.left_out; *at != '\0';) {
    char* end = nullptr;
    const unsigned long number = std::strtoul(at, &end, 10);
    if (number < out.size()) {
      out[number] = true;
    }
    at = *end == ',' ? end + 1 : end;
  }
  for (std::size_t i = 0; i < sequence.calls.size(); ++i) {
    if (!out[i]) {
      kept.push_back(sequence.calls[i]);
    }
  }
  sequence.calls = std::move(kept);
  return sequence;
}

int run(const RunOptions& options) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
  static Run run(options);
  if (!run.open_files()) {
    return 4;
  }
  if (!options.plain && !run.is_tiered()) {
    return 3;
  }
  for (std::uint64_t seed = options.first; seed < options.first + options.sequences; ++seed) {
    run.sequence(sequence_of(options, seed));
    std::printf("%llu %016llx\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(run.digest()));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace judge
