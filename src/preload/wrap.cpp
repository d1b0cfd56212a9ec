// The filter and its signal. The filter stays when a program is replaced, so it knows no process:
// it stops what points into the regions' range, where in a program without tiermem nothing is. One
// of tiermem that is started under it finds it in force and adds no other.
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
constexpr std::uint16_t kMark = 0x7E1E;  // Comes with the signals of our filter.
// Asked of the kernel to learn whether the filter is in force: no descriptor, no byte.
constexpr SystemCall kQuestion{SYS_read, {~std::uint64_t{0}, kWrappedBegin + 1, 0, 0, 0, 0}};
constexpr long kInForce = 0x7E1E;
// Before the first region: the question is there.
constexpr std::uint64_t kReserved = std::uint64_t{1} << 30;

// ---- the signal --------------------------------------------------------------------------------

bool is_question(const SystemCall& call) {
  return call.number == kQuestion.number && call.arguments[0] == kQuestion.arguments[0] &&
         call.arguments[1] == kQuestion.arguments[1];
}

void on_sigsys(int number, siginfo_t* info, void* context) {
  if (info->si_code != kBySeccomp || info->si_errno != kMark) {
    call_programs_sigsys(number, info, context);
    return;
  }
  const int error = errno;
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  SystemCall call{.number = info->si_syscall, .arguments = {}};
  constexpr std::array kArguments = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
  for (std::size_t i = 0; i < kArguments.size(); ++i) {
    call.arguments[i] = static_cast<std::uint64_t>(registers[kArguments[i]]);
  }
  // tiermem's own threads never touch what is tiered, but a register may hold such an address.
  const bool own = inside_tiermem() && detail::thread_mark.malloc_ready == 0;
  registers[REG_RAX] = is_question(call) ? kInForce : own ? pass(call) : wrapped_call(call);
  errno = error;
}

// ---- the filter --------------------------------------------------------------------------------

// These take addresses and do not look at what is there, or have numbers that may look like some,
// or fewer arguments than registers are looked at: what an unused one holds is by chance.
// clang-format off
constexpr long kOfAddresses[] = {
    SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_mremap, SYS_mlock, SYS_munlock,
    SYS_mlock2, SYS_msync, SYS_brk, SYS_clone, SYS_clone3, SYS_exit, SYS_exit_group,
    SYS_rt_sigreturn, SYS_lseek, SYS_ftruncate, SYS_fallocate, SYS_fadvise64, SYS_sync_file_range,
    SYS_mbind, SYS_remap_file_pages, SYS_userfaultfd, SYS_arch_prctl, SYS_rseq,
    SYS_set_robust_list, SYS_set_tid_address, SYS_pkey_mprotect, SYS_close, SYS_sched_yield,
    SYS_getpid, SYS_gettid, SYS_getppid, SYS_getuid, SYS_geteuid, SYS_kill, SYS_tgkill, SYS_fsync,
    SYS_fdatasync, SYS_dup, SYS_dup2, SYS_shutdown, SYS_listen, SYS_socket, SYS_restart_syscall,
    SYS_membarrier, SYS_vfork, SYS_fork, SYS_getgid, SYS_getegid, SYS_getpgrp, SYS_setsid,
    SYS_alarm, SYS_pause, SYS_umask, SYS_sync,
};
// clang-format on

class Filter {
 public:
  Filter() {
    constexpr unsigned kArch = offsetof(seccomp_data, arch), kNumber = offsetof(seccomp_data, nr);
    constexpr std::uint32_t kHigh = kWrappedBegin >> 32;
    constexpr std::uint32_t kMask = ~static_cast<std::uint32_t>((kWrappedBytes >> 32) - 1);
    load(kArch);
    unless(AUDIT_ARCH_X86_64, kAllow);
    for (unsigned i = 0; i < 6; ++i) {
      load(high_half(i));
      add(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kMask));
      when(kHigh, i < kFew ? kLook : kCount);
    }
    allow_here();
    land(kCount);
    load(kNumber);
    for (long number = 0; number < kNumbers; ++number) {
      if (has_far_pointers(number)) {
        when(static_cast<std::uint32_t>(number), kLook);
      }
    }
    allow_here();
    land(kLook);
    for (const unsigned argument : {0u, 5u}) {
      load(high_half(argument));
      when(kPass, kAllow);
    }
    load(kNumber);
    for (const long number : kOfAddresses) {
      when(static_cast<std::uint32_t>(number), kAllow);
    }
    add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP | kMark));
    allow_here();
  }
  sock_fprog program() { return {static_cast<unsigned short>(length_), code_.data()}; }

 private:
  enum Place : std::uint8_t { kAllow, kCount, kLook };
  struct Jump {
    std::size_t at;
    Place to;
    bool if_equal;
  };

  static unsigned high_half(unsigned argument) {
    return static_cast<unsigned>(offsetof(seccomp_data, args) + 8 * argument + 4);
  }
  void add(sock_filter code) { code_[length_++] = code; }
  void load(unsigned offset) { add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)); }
  void when(std::uint32_t value, Place to) { jump(value, to, true); }
  void unless(std::uint32_t value, Place to) { jump(value, to, false); }
  void jump(std::uint32_t value, Place to, bool if_equal) {
    jumps_[jumps_count_++] = {length_, to, if_equal};
    add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 0));
  }
  // Jumps go forward only, so there are two ends that allow: one before what looks closer.
  void allow_here() {
    land(kAllow);
    add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  void land(Place place) {
    for (std::size_t i = 0; i < jumps_count_; ++i) {
      Jump& jump = jumps_[i];
      if (jump.to != place || jump.at == kLanded) {
        continue;
      }
      const auto distance = static_cast<std::uint8_t>(length_ - jump.at - 1);
      (jump.if_equal ? code_[jump.at].jt : code_[jump.at].jf) = distance;
      jump.at = kLanded;
    }
  }

  static constexpr std::size_t kLanded = ~std::size_t{0};
  std::array<sock_filter, 256> code_{};
  std::size_t length_ = 0;
  std::array<Jump, 200> jumps_{};
  std::size_t jumps_count_ = 0;
};

bool in_force() {
  return issue(kQuestion) == kInForce;
}

// 0, or errno.
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
    // Without rights of its own a process may only filter who will never gain any.
    (void)::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
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
  // This thread's memory is taken now: a shell limits its address space below what it has, and then
  // starts a program.
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
