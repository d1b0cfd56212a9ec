// One line for each call that has pointers, may wait or change something, and whose pages would be
// missed too late. Those that are not here are made when their pages are there, and again where one
// has left.
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
  std::array<std::uint8_t, kNumbers> places{};  // Of the line, and one more; 0: none.
  std::uint8_t place = 0;
  for (const Line& line : kLines) {
    places[static_cast<std::size_t>(line.number)] = ++place;
  }
  return places;
}();
static_assert(sizeof(kLines) / sizeof(Line) < 255);

// Of those without a line here.
constexpr long kFarPointers[] = {SYS_futex,
                                 SYS_select,
                                 SYS_pselect6,
                                 SYS_execveat,
                                 SYS_recvmmsg,
                                 SYS_mount,
                                 SYS_ptrace,
                                 SYS_get_mempolicy,
                                 SYS_move_pages,
                                 SYS_io_getevents,
                                 SYS_rt_tgsigqueueinfo,
                                 SYS_prctl,
                                 SYS_request_key,
                                 SYS_keyctl,
                                 SYS_quotactl,
                                 SYS_name_to_handle_at,
                                 SYS_process_vm_readv,
                                 SYS_process_vm_writev};

}  // namespace

bool has_far_pointers(long number) {
  if (const Shape* const shape = shape_of(number); shape != nullptr) {
    return std::any_of(shape->pointers.begin(), shape->pointers.end(), [](const Pointer& pointer) {
      return pointer.way != Way::none && pointer.argument >= kFew;
    });
  }
  return std::find(std::begin(kFarPointers), std::end(kFarPointers), number) !=
         std::end(kFarPointers);
}

const Shape* shape_of(long number) {
  const auto at = static_cast<std::size_t>(number);
  return number >= 0 && number < kNumbers && kShapes[at] != 0 ? &kLines[kShapes[at] - 1].shape
                                                              : nullptr;
}

}  // namespace tiermem::preload

#endif
