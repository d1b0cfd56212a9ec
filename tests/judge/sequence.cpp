// Chooses random calls. Their ranges are parts of slots, and begin or end at the edges of extents
// (16 pages) more often than by chance, because the library's most complex cases are parts of
// extents.
#include "sequence.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "draw.hpp"

namespace judge {
namespace {

constexpr int kProtections[] = {PROT_NONE,
                                PROT_READ,
                                PROT_READ | PROT_WRITE,
                                PROT_READ | PROT_WRITE,
                                PROT_NONE,
                                PROT_READ | PROT_EXEC,
                                PROT_READ | PROT_WRITE | PROT_EXEC};

constexpr int kAdvice[] = {
    MADV_DONTNEED,       MADV_DONTNEED,   MADV_DONTNEED,    MADV_WILLNEED, MADV_NORMAL,
    MADV_RANDOM,         MADV_SEQUENTIAL, MADV_COLD,        MADV_PAGEOUT,  MADV_PAGEOUT,
    MADV_DONTDUMP,       MADV_DODUMP,     MADV_NOHUGEPAGE,  MADV_REMOVE,   MADV_POPULATE_READ,
    MADV_POPULATE_WRITE, MADV_MERGEABLE,  MADV_UNMERGEABLE, 4711};

struct Weight {
  What what;
  unsigned weight;
};
constexpr Weight kWeights[] = {
    {What::store, 16},    {What::protect, 16},   {What::unmap, 5},      {What::map_fresh, 8},
    {What::map_again, 2}, {What::map_file, 3},   {What::map_shared, 1}, {What::map_wrong, 1},
    {What::advise, 14},   {What::lock, 2},       {What::unlock, 3},     {What::sync, 1},
    {What::resident, 1},  {What::shrink, 1},     {What::grow, 1},       {What::move, 2},
    {What::read_file, 3}, {What::write_file, 3}, {What::copy, 3},       {What::children, 1},
    {What::pressure, 6},  {What::look, 4},
};

void place(Draw& draw, Call& call, unsigned pages) {
  constexpr unsigned kExtent = 16;
  call.page = draw.chance(3) ? draw.below(pages) / kExtent * kExtent : draw.below(pages);
  const unsigned left = std::max(1u, pages - call.page);
  switch (draw.below(5)) {
    case 0:
      call.pages = 1;
      break;
    case 1:
      call.pages = std::min(left, kExtent);
      break;
    case 2:
      call.pages = left;
      break;
    default:
      call.pages = 1 + draw.below(std::min(left, 3 * kExtent));
  }
  call.pages = std::max(1u, std::min(call.pages, left));
}

const char* name_of(What what) {
  static constexpr const char* kNames[] = {"store",
                                           "mprotect",
                                           "munmap",
                                           "mmap(FIXED)",
                                           "mmap(FIXED_NOREPLACE)",
                                           "mmap(FIXED, file)",
                                           "mmap(FIXED, shared)",
                                           "mmap(FIXED, no file)",
                                           "madvise",
                                           "mlock",
                                           "munlock",
                                           "msync",
                                           "mincore",
                                           "mremap(shrink)",
                                           "mremap(grow)",
                                           "mremap(FIXED)",
                                           "pread",
                                           "pwrite",
                                           "memcpy",
                                           "fork",
                                           "pressure",
                                           "look"};
  return kNames[static_cast<std::size_t>(what)];
}

}  // namespace

Way way_to_protect(const Call& call) {
  switch (call.more >> 8 & 7) {
    case 0:
      return Way::system_call;
    case 1:
      return Way::with_key;
    default:
      return Way::library;
  }
}

int key_of(const Call& call) {
  constexpr int kKeys[] = {-1, -1, 0, 0, 9, 15, 16, 1000};
  return kKeys[call.more >> 12 & 7];
}

int locks_of(const Call& call) {
  // Without MCL_CURRENT: the stacks of the program's threads do not fit into the budget.
  constexpr int kLocks[] = {MCL_FUTURE, MCL_FUTURE | MCL_ONFAULT, MCL_ONFAULT, 0, 64};
  const unsigned drawn = call.more >> 12 & 15;
  return drawn < std::size(kLocks) ? kLocks[drawn] : -1;
}

Sequence make_sequence(std::uint64_t seed, unsigned calls) {
  Draw draw(seed);
  Sequence sequence;
  sequence.seed = seed;
  for (unsigned& pages : sequence.pages) {
    pages =
        // Some slots have no own buffer.
        draw.chance(4) ? 24 + draw.below(40) : 64 + draw.below(140);
  }
  // Half of the sequences use only some kinds of calls, so rare combinations are more frequent.
  std::uint64_t some = ~std::uint64_t{0};
  if (draw.chance(2)) {
    some = draw.next() | draw.next();
  }
  some |= 1;  // store
  unsigned sum = 0;
  for (std::size_t i = 0; i < std::size(kWeights); ++i) {
    sum += (some >> i & 1) != 0 ? kWeights[i].weight : 0;
  }
  while (sequence.calls.size() < calls) {
    unsigned at = draw.below(sum);
    Call call;
    for (std::size_t i = 0; i < std::size(kWeights); ++i) {
      const unsigned weight = (some >> i & 1) != 0 ? kWeights[i].weight : 0;
      if (at < weight) {
        call.what = kWeights[i].what;
        break;
      }
      at -= weight;
    }
    call.slot = draw.below(kSlots);
    place(draw, call, sequence.pages[call.slot]);
    call.argument = static_cast<std::uint32_t>(draw.next());
    call.more = static_cast<std::uint32_t>(draw.next());
    switch (call.what) {
      case What::protect:
        call.argument = static_cast<std::uint32_t>(draw.one_of(kProtections));
        break;
      case What::map_fresh:
      case What::map_again:
        call.argument = static_cast<std::uint32_t>(draw.one_of(kProtections));
        call.more = draw.chance(3) ? MAP_NORESERVE : draw.chance(6) ? MAP_POPULATE : 0;
        break;
      case What::map_file:
        call.argument =
            static_cast<std::uint32_t>(draw.chance(2) ? PROT_READ : PROT_READ | PROT_WRITE);
        call.more = draw.chance(2) ? MAP_SHARED : MAP_PRIVATE;
        call.pages = std::min(call.pages, kFilePages);
        break;
      case What::advise:
        call.argument = static_cast<std::uint32_t>(draw.one_of(kAdvice));
        break;
      case What::lock:
        call.argument = draw.below(2);
        call.pages = std::min(call.pages, 24u);
        break;
      case What::shrink:
        call.page = sequence.pages[call.slot] - 1 - draw.below(20);
        break;
      case What::grow:
        call.argument = 1 + draw.below(30);
        break;
      case What::move:
      case What::copy:
        call.argument = (call.slot + 1 + draw.below(kSlots - 1)) % kSlots;
        call.more = draw.below(sequence.pages[call.argument]);
        call.pages = std::min({call.pages, 40u, sequence.pages[call.argument] - call.more});
        break;
      case What::read_file:
      case What::write_file:
        call.pages = std::min(call.pages, kFilePages - 1);
        break;
      default:
        break;
    }
    sequence.calls.push_back(call);
  }
  sequence.calls.push_back({});  // Looks at everything again at the end.
  return sequence;
}

std::string text_of(const Call& call) {
  return fmt::format("{}(slot {}, page {}, {} pages, {:#x}, {:#x})", name_of(call.what), call.slot,
                     call.page, call.pages, call.argument, call.more);
}

std::string program_of(const Sequence& sequence) {
  std::string text = fmt::format(
      "// Seed {}. Compile with cc -D_GNU_SOURCE, and run with and without `tiermem run`.\n"
      "#include <stdio.h>\n#include <stdint.h>\n#include <string.h>\n#include <unistd.h>\n"
      "#include <fcntl.h>\n#include <errno.h>\n#include <sys/mman.h>\n"
      "#include <sys/shm.h>\n#include <sys/wait.h>\n"
      "#define P 4096\n"
      "#define SAY(call) do {{ errno = 0; long r = (long)(call); "
      "printf(\"%3d %-12s %s\\n\", __LINE__, r == -1 ? strerror(errno) : \"ok\", #call); }} "
      "while (0)\n"
      "static char* s[3];\n"
      "int main(void) {{\n  int f = open(\"judge-file\", O_RDWR | O_CREAT | O_TRUNC, 0600);\n"
      "  for (int i = 0; i < 64 * P; ++i) {{ char c = (char)(i / P + 1); if (write(f, &c, 1) != 1) "
      "return 1; }}\n",
      sequence.seed);
  for (unsigned i = 0; i < kSlots; ++i) {
    text += fmt::format(
        "  s[{0}] = mmap(0, {1} * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, "
        "0);\n  memset(s[{0}], {2}, {1} * P);\n",
        i, sequence.pages[i], 16 * (i + 1));
  }
  for (const Call& call : sequence.calls) {
    const std::string at = fmt::format("s[{}] + {} * P, {} * P", call.slot, call.page, call.pages);
    std::string line;
    switch (call.what) {
      case What::store:
        line = fmt::format("for (int i = 0; i < {}; ++i) s[{}][({} + i) * P] = (char){};",
                           call.pages, call.slot, call.page, call.argument & 0x7f);
        break;
      case What::protect:
        line = way_to_protect(call) == Way::with_key
                   ? fmt::format("SAY(pkey_mprotect({}, {}, {}));", at, call.argument, key_of(call))
                   : fmt::format("SAY(mprotect({}, {}));", at, call.argument);
        break;
      case What::unmap:
        line = fmt::format("SAY(munmap({}));", at);
        break;
      case What::map_fresh:
      case What::map_again:
        line = fmt::format("SAY(mmap({}, {}, {:#x}, -1, 0));", at, call.argument,
                           call.more | MAP_PRIVATE | MAP_ANONYMOUS |
                               (call.what == What::map_again ? MAP_FIXED_NOREPLACE : MAP_FIXED));
        break;
      case What::map_file:
        line = fmt::format("SAY(mmap({}, {}, {:#x}, f, 0));", at, call.argument,
                           call.more | MAP_FIXED);
        break;
      case What::map_shared:
        if ((call.argument & 1) != 0) {
          line = fmt::format(
              "SAY(mmap({}, PROT_READ | PROT_WRITE, {} | MAP_FIXED, open(\"/dev/zero\", O_RDWR), "
              "0));",
              at, (call.argument & 2) != 0 ? "MAP_SHARED" : "MAP_PRIVATE");
        } else if ((call.argument & 4) != 0) {
          line = fmt::format(
              "SAY(shmat(shmget(IPC_PRIVATE, {} * P, IPC_CREAT | 0600), s[{}] + {} * P, "
              "SHM_REMAP));",
              call.pages, call.slot, call.page);
        } else {
          line = fmt::format(
              "SAY(mmap({}, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | "
              "MAP_FIXED, -1, 0));",
              at);
        }
        break;
      case What::map_wrong:
        line = fmt::format("SAY(mmap({}, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0));", at);
        break;
      case What::advise:
        line = fmt::format("SAY(madvise({}, {}));", at, call.argument);
        break;
      case What::lock:
        line = fmt::format("SAY(mlock2({}, {}));", at, call.argument);
        break;
      case What::unlock:
        line = fmt::format("SAY(munlock({}));", at);
        break;
      case What::sync:
        line = fmt::format("SAY(msync({}, MS_ASYNC));", at);
        break;
      case What::resident:
        line = fmt::format("{{ unsigned char r[400]; SAY(mincore({}, r)); }}", at);
        break;
      case What::pressure:
        for (unsigned i = 0; i < kSlots; ++i) {
          line += fmt::format("madvise(s[{}], {} * P, MADV_PAGEOUT); ", i, sequence.pages[i]);
        }
        break;
      case What::children:
        line = fmt::format(
            "{{ pid_t c = fork(); if (c == 0) {{ {}_exit(0); }} int st; waitpid(c, &st, 0); }}",
            locks_of(call) >= 0 ? fmt::format("SAY(mlockall({})); ", locks_of(call)) : "");
        break;
      case What::read_file:
        line = fmt::format("SAY(pread(f, s[{}] + {} * P + 100, {} * P - 100, 0));", call.slot,
                           call.page, call.pages);
        break;
      case What::write_file:
        line = fmt::format("SAY(pwrite(f, {}, 64 * P));", at);
        break;
      case What::copy:
        line = fmt::format("memcpy(s[{}] + {} * P, {});", call.argument, call.more, at);
        break;
      case What::move:
        line =
            fmt::format("SAY(mremap({}, {} * P, MREMAP_MAYMOVE | MREMAP_FIXED, s[{}] + {} * P));",
                        at, call.pages, call.argument, call.more);
        break;
      case What::shrink:
        line = fmt::format("SAY(mremap(s[{}], {} * P, {} * P, 0));", call.slot,
                           sequence.pages[call.slot], call.page);
        break;
      case What::grow:
        line = fmt::format(
            "{{ void* m = mremap(s[{0}], {1} * P, {2} * P, MREMAP_MAYMOVE); if (m != (void*)-1) "
            "s[{0}] = m; SAY(m); }}",
            call.slot, sequence.pages[call.slot], sequence.pages[call.slot] + call.argument);
        break;
      case What::look:
        line = "// The pages are looked at here.";
        break;
    }
    text += fmt::format("  {}\n", line);
  }
  return text + "}\n";
}

}  // namespace judge
