// The filter and its signal. The filter survives exec, so it knows no process: it stops calls that
// point into the regions' range, where a program without tiermem has nothing. A program with
// tiermem that starts under it finds it in force and adds no other.
#include "preload/wrap.hpp"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "base/arena.hpp"
#include "base/results.hpp"
#include "preload/call_shapes.hpp"
#include "preload/exec.hpp"
#include "preload/scratch.hpp"
#include "preload/signals.hpp"
#include "preload/system_call.hpp"
#include "preload/wrapped_calls.hpp"
#include "tier/window_arena.hpp"

namespace tiermem::preload {
namespace {

constexpr int kBySeccomp = 1;            // SYS_SECCOMP, which older headers lack.
constexpr std::uint16_t kMark = 0x7E1E;  // Carried by the signals of our filter.
// A call that tells whether the filter is in force: it names no descriptor and no byte.
constexpr SystemCall kQuestion{SYS_read, {~std::uint64_t{0}, kWrappedBegin + 1, 0, 0, 0, 0}};
constexpr long kInForce = 0x7E1E;
// Before the first region, for the address in kQuestion.
constexpr std::uint64_t kReserved = std::uint64_t{1} << 30;

// ---- the signal --------------------------------------------------------------------------------

bool is_question(const SystemCall& call) {
  return call.number == kQuestion.number && call.arguments[0] == kQuestion.arguments[0] &&
         call.arguments[1] == kQuestion.arguments[1];
}

// The kernel restores the mask of the interrupted code when the handler returns, so a change of the
// mask is made there. The calls for it check the pointers, and their effect ends with the handler.
long change_mask(const SystemCall& call, ucontext_t& interrupted) {
  const auto [how, from, to, bytes, e, f] = call.arguments;
  std::uint64_t before = 0, change = 0;
  memcpy(&before, &interrupted.uc_sigmask, sizeof before);
  if (const long checked = wrapped_call({call.number, {how, from, 0, bytes, e, f}}); checked != 0) {
    return checked;
  }
  if (from != 0) {
    memcpy(&change, reinterpret_cast<const void*>(from), sizeof change);
    const std::uint64_t open = std::uint64_t{1} << (SIGSYS - 1) |
                               std::uint64_t{1} << (SIGKILL - 1) |
                               std::uint64_t{1} << (SIGSTOP - 1);
    const std::uint64_t after = how == SIG_BLOCK     ? before | change
                                : how == SIG_UNBLOCK ? before & ~change
                                                     : change;
    const std::uint64_t mask = after & ~open;
    memcpy(&interrupted.uc_sigmask, &mask, sizeof mask);
  }
  if (to != 0) {
    const long written = wrapped_call({call.number, {SIG_BLOCK, 0, to, bytes, e, f}});
    if (written != 0) {
      return written;
    }
    memcpy(reinterpret_cast<void*>(to), &before, sizeof before);
  }
  return 0;
}

// The same for the alternate stack, which the kernel restores, too.
long change_stack(const SystemCall& call, ucontext_t& interrupted) {
  const long result = wrapped_call(call);
  if (result == 0 && call.arguments[0] != 0) {
    memcpy(&interrupted.uc_stack, reinterpret_cast<const void*>(call.arguments[0]),
           sizeof interrupted.uc_stack);
  }
  return result;
}

long make_call(const SystemCall& call, ucontext_t& interrupted) {
  switch (call.number) {
    case SYS_rt_sigprocmask:
      return change_mask(call, interrupted);
    case SYS_sigaltstack:
      return change_stack(call, interrupted);
    default:
      return wrapped_call(call);
  }
}

void on_sigsys(int number, siginfo_t* info, void* context) {
  if (info->si_code != kBySeccomp || info->si_errno != kMark) {
    call_programs_sigsys(number, info, context);
    return;
  }
  const int error = errno;
  ucontext_t& interrupted = *static_cast<ucontext_t*>(context);
  greg_t* const registers = interrupted.uc_mcontext.gregs;
  SystemCall call{.number = info->si_syscall, .arguments = {}};
  constexpr std::array kArguments = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
  for (std::size_t i = 0; i < kArguments.size(); ++i) {
    call.arguments[i] = static_cast<std::uint64_t>(registers[kArguments[i]]);
  }
  // tiermem's own threads never touch tiered memory, but a register may hold such an address.
  const bool own = inside_tiermem() && detail::thread_mark.malloc_ready == 0;
  registers[REG_RAX] = is_question(call) ? kInForce
                       : own             ? pass(call)
                                         : make_call(call, interrupted);
  errno = error;
}

// ---- the filter --------------------------------------------------------------------------------

// A call in which nothing looks like a region's address passes after one check. For the others the
// filter finds out how many arguments can be addresses (addresses_of), and checks those again. A
// call must not be stopped needlessly: without a SIGSYS handler, such as before tiermem has
// started, that ends the program.
class Filter {
 public:
  Filter() {
    constexpr unsigned kArch = offsetof(seccomp_data, arch), kNumber = offsetof(seccomp_data, nr);
    load(kArch);
    skip_if(AUDIT_ARCH_X86_64, 1, 0);
    allow();
    Jumps suspect;
    for (unsigned i = 0; i < kArguments; ++i) {
      load_place(i);
      jump_if(kPlace, suspect);
    }
    allow();
    land(suspect);
    for (const unsigned argument : {0u, 5u}) {
      load(high_half(argument));
      skip_if(kPass, 0, 1);
      allow();
    }
    load(kNumber);
    std::array<std::size_t, kArguments + 1> look{};  // By the number of arguments to look at.
    for (const unsigned count : {0u, 1u, 2u, 4u, 5u, 6u}) {
      Jumps here;
      for (long number = 0; number < kNumbers; ++number) {
        if (addresses_of(number) == count) {
          jump_if(static_cast<std::uint32_t>(number), here);
        }
      }
      skip(1);
      land(here);
      look[count] = skip(0);
    }
    look[3] = skip(0);
    Jumps stop;
    for (unsigned count = kArguments; count > 0; --count) {
      land(look[count]);
      load_place(count - 1);
      jump_if(kPlace, stop);
    }
    land(look[0]);
    allow();
    land(stop);
    add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP | kMark));
  }
  sock_fprog program() { return {static_cast<unsigned short>(length_), code_.data()}; }

 private:
  static constexpr std::uint32_t kPlace = kWrappedBegin >> 32;
  static constexpr std::uint32_t kPlaceMask =
      ~static_cast<std::uint32_t>((kWrappedBytes >> 32) - 1);

  /// Jumps to one place further down, at most 255 steps away.
  struct Jumps {
    std::array<std::size_t, 200> from;
    std::size_t count = 0;
  };

  static unsigned high_half(unsigned argument) {
    return static_cast<unsigned>(offsetof(seccomp_data, args) + 8 * argument + 4);
  }
  void add(sock_filter code) { code_[length_++] = code; }
  void allow() { add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)); }
  void load(unsigned offset) { add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)); }
  void load_place(unsigned argument) {
    load(high_half(argument));
    add(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kPlaceMask));
  }
  void skip_if(std::uint32_t value, std::uint8_t steps, std::uint8_t steps_else) {
    add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, steps, steps_else));
  }
  /// Returns the position of the jump, for land().
  std::size_t skip(std::uint32_t steps) {
    add(BPF_STMT(BPF_JMP | BPF_JA, steps));
    return length_ - 1;
  }
  void land(std::size_t skipped) {
    code_[skipped].k = static_cast<std::uint32_t>(length_ - skipped - 1);
  }
  void jump_if(std::uint32_t value, Jumps& jumps) {
    jumps.from[jumps.count++] = length_;
    skip_if(value, 0, 0);
  }
  void land(const Jumps& jumps) {
    for (std::size_t i = 0; i < jumps.count; ++i) {
      code_[jumps.from[i]].jt = static_cast<std::uint8_t>(length_ - jumps.from[i] - 1);
    }
  }

  std::array<sock_filter, 512> code_{};
  std::size_t length_ = 0;
};

bool in_force() {
  return issue(kQuestion) == kInForce;
}

// Returns 0 or errno.
int install() {
  Filter filter;
  sock_fprog program = filter.program();
  const auto set = [&] {
    const long result =
        ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                  SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
    return result < 0 ? errno : result > 0 ? EBUSY : 0;  // A thread has filters of its own.
  };
  int error = set();
  if (error == EACCES) {
    // An unprivileged process may install a filter only if it can never gain privileges.
    best_effort(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "without it the next call is refused");
    error = set();
  }
  return error;
}

}  // namespace

bool wrapping() {
  static const bool asked = [] {
    const char* const text = ::secure_getenv("TIERMEM_WRAP_SYSCALLS");
    return text != nullptr && *text != '\0' && strcmp(text, "0") != 0;
  }();
  return asked;
}

void prepare_wrapping() {
  prepare_signals();
  prepare_exec();
  if (!wrapping()) {
    return;
  }
  prepare_scratch();
  take_sigsys(on_sigsys);
}

bool start_wrapping(const char*& why) {
  WindowArena::place_between(kWrappedBegin + kReserved, kWrappedBytes - kReserved);
  // This thread takes its memory now: a shell may lower its address space limit below its current
  // use and then start a program.
  (void)Scratch().take(1);
  const int error = in_force() ? 0 : install();
  if (error != 0 || !in_force()) {
    why = error != 0 ? strerror(error) : "the filter has no effect";
    return false;
  }
  return true;
}

}  // namespace tiermem::preload

#else

namespace tiermem::preload {

bool wrapping() {
  return false;
}
void prepare_wrapping() {}
bool start_wrapping(const char*& why) {
  why = "not on this processor";
  return false;
}

}  // namespace tiermem::preload

#endif
