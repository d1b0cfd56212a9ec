#include "fault/failing_files.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

namespace tiermem::test {
namespace {

constexpr std::uint32_t kMostBytes = 1 << 20;  // The largest request.

/// The server's only thread. It answers the kernel until it is told to stop or the mount is gone.
class Server {
 public:
  Server(int fuse, FailingFiles::Page& page) : fuse_(fuse), page_(page) {}

  void run() {
    std::vector<std::byte> buffer(kMostBytes + 4096);
    while (page_.stop.load() == 0) {
      pollfd waits{fuse_, POLLIN, 0};
      if (::poll(&waits, 1, 2) > 0) {
        const ssize_t n = ::read(fuse_, buffer.data(), buffer.size());
        if (n < 0 && errno != EINTR && errno != EAGAIN && errno != ENOENT) {
          return;  // Unmounted.
        }
        if (n > 0) {
          take({buffer.begin(), buffer.begin() + n});
        }
      }
      let_go();
    }
  }

 private:
  using Call = std::vector<std::byte>;

  template <typename T>
  static const T& in(const Call& call) {
    return *reinterpret_cast<const T*>(call.data() + sizeof(fuse_in_header));
  }
  static const fuse_in_header& header(const Call& call) {
    return *reinterpret_cast<const fuse_in_header*>(call.data());
  }
  static int kind_of(const Call& call) {
    const std::uint32_t op = header(call).opcode;
    return op == FUSE_READ ? 0 : op == FUSE_WRITE ? 1 : op == FUSE_FALLOCATE ? 2 : -1;
  }

  void take(Call call) {
    const int kind = kind_of(call);
    if (kind >= 0 && (page_.held_kinds.load() >> kind & 1) != 0) {
      held_.push_back(std::move(call));
      page_.held.store(static_cast<std::uint32_t>(held_.size()));
      return;
    }
    answer(call);
  }
  void let_go() {
    std::vector<Call> still;
    for (Call& call : held_) {
      (page_.held_kinds.load() >> kind_of(call) & 1) != 0 ? still.push_back(std::move(call))
                                                          : answer(call);
    }
    held_ = std::move(still);
    page_.held.store(static_cast<std::uint32_t>(held_.size()));
  }

  void reply(const Call& call, int error, const void* data = nullptr, std::size_t bytes = 0) {
    fuse_out_header out{};
    out.len = static_cast<std::uint32_t>(sizeof(out) + bytes);
    out.error = -error;
    out.unique = header(call).unique;
    const iovec parts[] = {{&out, sizeof(out)}, {const_cast<void*>(data), bytes}};
    (void)!::writev(fuse_, parts, bytes == 0 ? 1 : 2);
  }
  template <typename T>
  void reply(const Call& call, const T& answer) {
    reply(call, 0, &answer, sizeof(answer));
  }

  fuse_attr attributes(std::uint64_t node) const {
    fuse_attr attr{};
    attr.ino = node;
    attr.nlink = node == FUSE_ROOT_ID ? 2 : 1;
    attr.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0777 : S_IFREG | 0600;
    attr.blksize = 4096;
    if (const auto file = files_.find(node); file != files_.end()) {
      struct stat st {};
      (void)::fstat(file->second, &st);
      attr.size = static_cast<std::uint64_t>(st.st_size);
      attr.blocks = static_cast<std::uint64_t>(st.st_blocks);
    }
    return attr;
  }

  void answer(const Call& call) {
    const int kind = kind_of(call);
    if (kind >= 0) {
      ++page_.calls[kind];
      if (const int error = page_.error[kind].load(); error != 0) {
        return reply(call, error);
      }
    }
    const std::uint64_t node = header(call).nodeid;
    switch (header(call).opcode) {
      case FUSE_INIT: {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = FUSE_KERNEL_MINOR_VERSION;
        out.max_readahead = 0;
        out.flags = FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO | FUSE_ASYNC_READ;
        out.max_background = 64;
        out.max_write = kMostBytes;
        out.max_pages = kMostBytes / 4096;
        return reply(call, out);
      }
      case FUSE_GETATTR: {
        fuse_attr_out out{};
        out.attr = attributes(node);
        return reply(call, out);
      }
      case FUSE_SETATTR: {
        const auto& asked = in<fuse_setattr_in>(call);
        if ((asked.valid & FATTR_SIZE) != 0 &&
            ::ftruncate(files_.at(node), static_cast<off_t>(asked.size)) != 0) {
          return reply(call, errno);
        }
        fuse_attr_out out{};
        out.attr = attributes(node);
        return reply(call, out);
      }
      case FUSE_CREATE: {
        files_[++last_] = ::memfd_create("failing", MFD_CLOEXEC);
        struct {
          fuse_entry_out entry;
          fuse_open_out open;
        } out{};
        out.entry.nodeid = last_;
        out.entry.attr = attributes(last_);
        return reply(call, out);
      }
      case FUSE_OPEN:
      case FUSE_OPENDIR:
        return reply(call, fuse_open_out{});
      case FUSE_READ: {
        const auto& asked = in<fuse_read_in>(call);
        std::vector<std::byte> bytes(asked.size);
        const ssize_t n =
            ::pread(files_.at(node), bytes.data(), bytes.size(), static_cast<off_t>(asked.offset));
        return n < 0 ? reply(call, errno)
                     : reply(call, 0, bytes.data(), static_cast<std::size_t>(n));
      }
      case FUSE_WRITE: {
        const auto& asked = in<fuse_write_in>(call);
        const ssize_t n =
            ::pwrite(files_.at(node), call.data() + sizeof(fuse_in_header) + sizeof(asked),
                     asked.size, static_cast<off_t>(asked.offset));
        fuse_write_out out{};
        out.size = static_cast<std::uint32_t>(n < 0 ? 0 : n);
        return n < 0 ? reply(call, errno) : reply(call, out);
      }
      case FUSE_FALLOCATE: {
        const auto& asked = in<fuse_fallocate_in>(call);
        return reply(call, ::posix_fallocate(files_.at(node), static_cast<off_t>(asked.offset),
                                             static_cast<off_t>(asked.length)));
      }
      case FUSE_STATFS: {
        fuse_statfs_out out{};
        out.st.blocks = out.st.bfree = out.st.bavail = std::uint64_t{1} << 24;
        out.st.bsize = out.st.frsize = 4096;
        out.st.namelen = 255;
        return reply(call, out);
      }
      case FUSE_LOOKUP:
        return reply(call, ENOENT);
      case FUSE_UNLINK:
      case FUSE_FLUSH:
      case FUSE_FSYNC:
      case FUSE_RELEASE:
      case FUSE_RELEASEDIR:
        return reply(call, 0);
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        return;  // These calls need no answer.
      default:
        return reply(call, ENOSYS);
    }
  }

  const int fuse_;
  FailingFiles::Page& page_;
  std::map<std::uint64_t, int> files_;
  std::uint64_t last_ = FUSE_ROOT_ID;
  std::vector<Call> held_;
};

}  // namespace

FailingFiles::FailingFiles(const std::string& directory) {
  page_ = static_cast<Page*>(
      ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const int fuse = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  const std::string options = "fd=" + std::to_string(fuse) +
                              ",rootmode=40000,user_id=" + std::to_string(geteuid()) +
                              ",group_id=" + std::to_string(getegid()) + ",allow_other";
  if (fuse < 0 || ::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("failing", directory.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    why_not_ = std::string("no FUSE: ") + std::strerror(errno);
    ::close(fuse);
    return;
  }
  server_ = ::fork();
  if (server_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Server(fuse, *page_).run();
    ::_exit(0);
  }
  ::close(fuse);
}

FailingFiles::~FailingFiles() {
  hold(0);
  page_->stop.store(1);
  if (server_ > 0) {
    (void)::waitpid(server_, nullptr, 0);
  }
  ::munmap(page_, sizeof(Page));
}

void FailingFiles::vanish() {
  ::kill(server_, SIGKILL);
  (void)::waitpid(server_, nullptr, 0);
  server_ = -1;
}

bool FailingFiles::wait_for_held(std::uint32_t n) const {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (page_->held.load() < n && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return page_->held.load() >= n;
}

}  // namespace tiermem::test
