// The table has one line for each call that has pointers, and that may wait or change something
// before it notices an absent page. A call without a line is issued once its pages are resident. If
// a page has left again, the call is repeated.
#include "preload/call_shapes.hpp"

#if defined(__x86_64__)

#include <sys/syscall.h>

#include <algorithm>
#include <iterator>

namespace tiermem::preload {
namespace {

struct Line {
  long number;
  Shape shape;
};

constexpr Pointer in(std::uint8_t argument, std::uint16_t bytes, std::uint8_t count = kOnce) {
  return {argument, Way::in, bytes, count};
}
constexpr Pointer out(std::uint8_t argument, std::uint16_t bytes, std::uint8_t count = kOnce) {
  return {argument, Way::both, bytes, count};
}
constexpr Pointer text(std::uint8_t argument) {
  return {argument, Way::text, 4096, kOnce};
}
constexpr Pointer fills(std::uint8_t argument, std::uint16_t unit, std::uint8_t count) {
  return {argument, Way::fills, unit, count};
}
constexpr Pointer sized(std::uint8_t argument, std::uint16_t most, std::uint8_t length) {
  return {argument, Way::sized, most, length};
}

// In the order of the kernel's numbers. Sizes are those of the kernel's own structures.
constexpr Line kLines[] = {
    {SYS_open, {{text(0)}}},
    {SYS_stat, {{text(0), out(1, 144)}}},
    {SYS_fstat, {{out(1, 144)}}},
    {SYS_lstat, {{text(0), out(1, 144)}}},
    {SYS_poll, {{out(0, 8, 1)}}},
    {SYS_rt_sigaction, {{in(1, 32), out(2, 32)}}},
    {SYS_rt_sigprocmask, {{in(1, 8), out(2, 8)}}},
    {SYS_access, {{text(0)}}},
    {SYS_pipe, {{out(0, 8)}}},
    {SYS_nanosleep, {{in(0, 16), out(1, 16)}}},
    {SYS_getitimer, {{out(1, 32)}}},
    {SYS_setitimer, {{in(1, 32), out(2, 32)}}},
    {SYS_sendfile, {{out(2, 8)}}},
    {SYS_connect, {{in(1, 1, 2)}}},
    {SYS_accept, {{sized(1, 128, 2), out(2, 4)}}},
    {SYS_sendto, {{in(4, 1, 5)}}},
    {SYS_recvfrom, {{sized(4, 128, 5), out(5, 4)}}},
    {SYS_bind, {{in(1, 1, 2)}}},
    {SYS_getsockname, {{sized(1, 128, 2), out(2, 4)}}},
    {SYS_getpeername, {{sized(1, 128, 2), out(2, 4)}}},
    {SYS_socketpair, {{out(3, 8)}}},
    {SYS_setsockopt, {{in(3, 1, 4)}}},
    {SYS_getsockopt, {{sized(3, 32768, 4), out(4, 4)}}},
    {SYS_wait4, {{out(1, 4), out(3, 144)}}},
    {SYS_uname, {{out(0, 390)}}},
    {SYS_semop, {{in(1, 6, 2)}}},
    {SYS_getdents, {{fills(1, 1, 2)}}},
    {SYS_getcwd, {{fills(0, 1, 1)}}},
    {SYS_chdir, {{text(0)}}},
    {SYS_truncate, {{text(0)}}},
    {SYS_rename, {{text(0), text(1)}}},
    {SYS_mkdir, {{text(0)}}},
    {SYS_rmdir, {{text(0)}}},
    {SYS_creat, {{text(0)}}},
    {SYS_link, {{text(0), text(1)}}},
    {SYS_unlink, {{text(0)}}},
    {SYS_symlink, {{text(0), text(1)}}},
    {SYS_readlink, {{text(0), fills(1, 1, 2)}}},
    {SYS_chmod, {{text(0)}}},
    {SYS_chown, {{text(0)}}},
    {SYS_lchown, {{text(0)}}},
    {SYS_gettimeofday, {{out(0, 16), out(1, 8)}}},
    {SYS_getrlimit, {{out(1, 16)}}},
    {SYS_getrusage, {{out(1, 144)}}},
    {SYS_sysinfo, {{out(0, 112)}}},
    {SYS_times, {{out(0, 32)}}},
    {SYS_getgroups, {{fills(1, 4, 0)}}},
    {SYS_setgroups, {{in(1, 4, 0)}}},
    {SYS_rt_sigtimedwait, {{in(0, 8), out(1, 128), in(2, 16)}}},
    {SYS_rt_sigsuspend, {{in(0, 8)}}},
    {SYS_rt_sigqueueinfo, {{in(2, 128)}}},
    {SYS_sigaltstack, {{in(0, 24), out(1, 24)}}},
    {SYS_utime, {{text(0), in(1, 16)}}},
    {SYS_mknod, {{text(0)}}},
    {SYS_statfs, {{text(0), out(1, 120)}}},
    {SYS_fstatfs, {{out(1, 120)}}},
    {SYS_chroot, {{text(0)}}},
    {SYS_setxattr, {{text(0), text(1), in(2, 1, 3)}}},
    {SYS_lsetxattr, {{text(0), text(1), in(2, 1, 3)}}},
    {SYS_fsetxattr, {{text(1), in(2, 1, 3)}}},
    {SYS_getxattr, {{text(0), text(1), fills(2, 1, 3)}}},
    {SYS_lgetxattr, {{text(0), text(1), fills(2, 1, 3)}}},
    {SYS_fgetxattr, {{text(1), fills(2, 1, 3)}}},
    {SYS_listxattr, {{text(0), fills(1, 1, 2)}}},
    {SYS_llistxattr, {{text(0), fills(1, 1, 2)}}},
    {SYS_flistxattr, {{fills(1, 1, 2)}}},
    {SYS_removexattr, {{text(0), text(1)}}},
    {SYS_lremovexattr, {{text(0), text(1)}}},
    {SYS_fremovexattr, {{text(1)}}},
    {SYS_time, {{out(0, 8)}}},
    {SYS_sched_setaffinity, {{in(2, 1, 1)}}},
    {SYS_sched_getaffinity, {{fills(2, 1, 1)}}},
    {SYS_getdents64, {{fills(1, 1, 2)}}},
    {SYS_semtimedop, {{in(1, 6, 2), in(3, 16)}}},
    {SYS_timer_create, {{in(1, 64), out(2, 4)}}},
    {SYS_timer_settime, {{in(2, 32), out(3, 32)}}},
    {SYS_timer_gettime, {{out(1, 32)}}},
    {SYS_clock_gettime, {{out(1, 16)}}},
    {SYS_clock_nanosleep, {{in(2, 16), out(3, 16)}}},
    {SYS_epoll_wait, {{fills(1, 12, 2)}}},
    {SYS_epoll_ctl, {{in(3, 12)}}},
    {SYS_utimes, {{text(0), in(1, 32)}}},
    {SYS_mq_open, {{text(0), in(3, 64)}}},
    {SYS_mq_unlink, {{text(0)}}},
    {SYS_mq_timedsend, {{in(1, 1, 2), in(4, 16)}}},
    {SYS_mq_timedreceive, {{fills(1, 1, 2), out(3, 4), in(4, 16)}}},
    {SYS_waitid, {{out(2, 128), out(4, 144)}}},
    {SYS_inotify_add_watch, {{text(1)}}},
    {SYS_openat, {{text(1)}}},
    {SYS_mkdirat, {{text(1)}}},
    {SYS_mknodat, {{text(1)}}},
    {SYS_fchownat, {{text(1)}}},
    {SYS_newfstatat, {{text(1), out(2, 144)}}},
    {SYS_unlinkat, {{text(1)}}},
    {SYS_renameat, {{text(1), text(3)}}},
    {SYS_linkat, {{text(1), text(3)}}},
    {SYS_symlinkat, {{text(0), text(2)}}},
    {SYS_readlinkat, {{text(1), fills(2, 1, 3)}}},
    {SYS_fchmodat, {{text(1)}}},
    {SYS_faccessat, {{text(1)}}},
    {SYS_ppoll, {{out(0, 8, 1), out(2, 16), in(3, 8)}}},
    {SYS_splice, {{out(1, 8), out(3, 8)}}},
    {SYS_utimensat, {{text(1), in(2, 32)}}},
    {SYS_epoll_pwait, {{fills(1, 12, 2), in(4, 8)}}},
    {SYS_timerfd_settime, {{in(2, 32), out(3, 32)}}},
    {SYS_timerfd_gettime, {{out(1, 32)}}},
    {SYS_accept4, {{sized(1, 128, 2), out(2, 4)}}},
    {SYS_pipe2, {{out(0, 8)}}},
    {SYS_prlimit64, {{in(2, 16), out(3, 16)}}},
    {SYS_renameat2, {{text(1), text(3)}}},
    {SYS_memfd_create, {{text(0)}}},
    {SYS_copy_file_range, {{out(1, 8), out(3, 8)}}},
    {SYS_statx, {{text(1), out(4, 256)}}},
#ifdef SYS_faccessat2
    {SYS_faccessat2, {{text(1)}}},
#endif
#ifdef SYS_epoll_pwait2
    {SYS_epoll_pwait2, {{fills(1, 12, 2), in(3, 16), in(4, 8)}}},
#endif
};

constexpr auto kShapes = [] {
  // Index of the call's line plus one; 0 if it has none.
  std::array<std::uint8_t, kNumbers> places{};
  std::uint8_t place = 0;
  for (const Line& line : kLines) {
    places[static_cast<std::size_t>(line.number)] = ++place;
  }
  return places;
}();
static_assert(sizeof(kLines) / sizeof(Line) < 255);

// Calls without a line above, by the number of arguments that the filter checks. A call that is in
// no list has three. The counts follow Linux 6.18's declarations (events/syscalls in tracefs).
// Calls that take addresses without touching them, and calls that start a thread, have none.
// clang-format off
constexpr long kNone[] = {
    SYS_close, SYS_lseek, SYS_mmap, SYS_mprotect, SYS_munmap, SYS_brk, SYS_rt_sigreturn,
    SYS_sched_yield, SYS_mremap, SYS_msync, SYS_madvise, SYS_shmget, SYS_shmat, SYS_shmdt, SYS_dup,
    SYS_dup2, SYS_pause, SYS_alarm, SYS_getpid, SYS_socket, SYS_shutdown, SYS_listen, SYS_clone,
    SYS_fork, SYS_vfork, SYS_exit, SYS_kill, SYS_semget, SYS_msgget, SYS_flock, SYS_fsync,
    SYS_fdatasync, SYS_ftruncate, SYS_fchdir, SYS_fchmod, SYS_fchown, SYS_umask, SYS_getuid,
    SYS_getgid, SYS_setuid, SYS_setgid, SYS_geteuid, SYS_getegid, SYS_setpgid, SYS_getppid,
    SYS_getpgrp, SYS_setsid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_getpgid,
    SYS_setfsuid, SYS_setfsgid, SYS_getsid, SYS_personality, SYS_getpriority, SYS_setpriority,
    SYS_sched_getscheduler, SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_mlock,
    SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_vhangup, SYS_arch_prctl, SYS_sync, SYS_iopl,
    SYS_ioperm, SYS_gettid, SYS_readahead, SYS_tkill, SYS_io_destroy, SYS_epoll_create,
    SYS_remap_file_pages, SYS_set_tid_address, SYS_restart_syscall, SYS_fadvise64,
    SYS_timer_getoverrun, SYS_timer_delete, SYS_exit_group, SYS_tgkill, SYS_mbind, SYS_ioprio_set,
    SYS_ioprio_get, SYS_inotify_init, SYS_inotify_rm_watch, SYS_unshare, SYS_set_robust_list,
    SYS_tee, SYS_sync_file_range, SYS_timerfd_create, SYS_eventfd, SYS_fallocate, SYS_eventfd2,
    SYS_epoll_create1, SYS_dup3, SYS_inotify_init1, SYS_fanotify_init, SYS_syncfs, SYS_setns,
    SYS_kcmp, SYS_userfaultfd, SYS_membarrier, SYS_mlock2, SYS_pkey_mprotect, SYS_pkey_alloc,
    SYS_pkey_free, SYS_rseq, SYS_pidfd_open, SYS_clone3, SYS_close_range, SYS_pidfd_getfd,
    SYS_landlock_restrict_self, SYS_memfd_secret, SYS_process_mrelease,
};
constexpr long kOne[] = {
    SYS_rt_sigpending, SYS_adjtimex, SYS_acct, SYS_umount2, SYS_swapon, SYS_swapoff,
    SYS_sethostname, SYS_setdomainname, SYS_fsopen,
};
constexpr long kTwo[] = {
    SYS_capget, SYS_capset, SYS_ustat, SYS_sched_setparam, SYS_sched_getparam,
    SYS_sched_rr_get_interval, SYS_pivot_root, SYS_setrlimit, SYS_settimeofday, SYS_io_setup,
    SYS_clock_settime, SYS_clock_getres, SYS_mq_notify, SYS_clock_adjtime, SYS_io_uring_setup,
};
constexpr long kFour[] = {
    SYS_semctl, SYS_ptrace, SYS_quotactl, SYS_migrate_pages, SYS_rt_tgsigqueueinfo,
    SYS_name_to_handle_at, SYS_process_vm_readv, SYS_process_vm_writev, SYS_execveat,
    SYS_move_mount, SYS_fsconfig, SYS_mount_setattr, SYS_futex_waitv,
};
constexpr long kFive[] = {
    SYS_select, SYS_prctl, SYS_mount, SYS_futex, SYS_io_getevents, SYS_keyctl, SYS_move_pages,
    SYS_fanotify_mark, SYS_recvmmsg, SYS_io_uring_enter,
};
constexpr long kSix[] = {SYS_pselect6, SYS_io_pgetevents};
// clang-format on

constexpr auto kAddresses = [] {
  std::array<std::uint8_t, kNumbers> counts{};
  counts.fill(3);
  const auto set = [&](const auto& numbers, std::uint8_t count) {
    for (const long number : numbers) {
      counts[static_cast<std::size_t>(number)] = count;
    }
  };
  set(kNone, 0);
  set(kOne, 1);
  set(kTwo, 2);
  set(kFour, 4);
  set(kFive, 5);
  set(kSix, 6);
  for (const Line& line : kLines) {
    std::uint8_t& count = counts[static_cast<std::size_t>(line.number)];
    count = 0;
    for (const Pointer& pointer : line.shape.pointers) {
      if (pointer.way != Way::none) {
        count = std::max(count, static_cast<std::uint8_t>(pointer.argument + 1));
      }
    }
  }
  return counts;
}();
// The filter (wrap.cpp) jumps over all calls with one count. Its array of jumps has this size.
static_assert([] {
  std::size_t all = 0;
  for (const unsigned count : {0u, 1u, 2u, 4u, 5u, 6u}) {
    const auto calls = std::count(kAddresses.begin(), kAddresses.end(), count);
    all += calls < 200 ? static_cast<std::size_t>(calls) : 1000;
  }
  return all < 400;
}());

}  // namespace

unsigned addresses_of(long number) {
  return number >= 0 && number < kNumbers ? kAddresses[static_cast<std::size_t>(number)] : 3;
}

bool has_vectors(long number) {
  switch (number) {
    case SYS_readv:
    case SYS_writev:
    case SYS_preadv:
    case SYS_pwritev:
    case SYS_preadv2:
    case SYS_pwritev2:
      return true;
    default:
      return false;
  }
}

bool has_message(long number) {
  return number == SYS_sendmsg || number == SYS_recvmsg;
}

const Shape* shape_of(long number) {
  const auto at = static_cast<std::size_t>(number);
  return number >= 0 && number < kNumbers && kShapes[at] != 0 ? &kLines[kShapes[at] - 1].shape
                                                              : nullptr;
}

}  // namespace tiermem::preload

#endif
