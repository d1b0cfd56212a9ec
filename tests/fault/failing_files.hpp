// A file system that fails on command, below the kernel. It is a FUSE file system in a process of
// its own, so all reads and writes, also by io_uring, take the path of a real device's error. Its
// files are in memory and have no persistent names.
//
// Use it only in a child of the test (child.hpp) while the child has one thread: only the child
// sees the mount, which ends with it. Any thread may give commands at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tiermem::test {

class FailingFiles {
 public:
  enum Kind : std::uint32_t { reads = 1, writes = 2, growth = 4 };

  /// Mounts the file system on the empty directory.
  explicit FailingFiles(const std::string& directory);
  /// Lets the held calls end.
  ~FailingFiles();
  FailingFiles(const FailingFiles&) = delete;
  FailingFiles& operator=(const FailingFiles&) = delete;

  /// Why the file system could not be mounted; the test is then skipped. "" if it is mounted.
  const std::string& why_not() const { return why_not_; }

  // errno of each later call; 0: no error.
  void fail_reads(int error) { page_->error[0].store(error); }
  void fail_writes(int error) { page_->error[1].store(error); }
  void fail_growth(int error) { page_->error[2].store(error); }
  /// Later calls of these kinds wait, until `kinds` no longer contains them.
  void hold(std::uint32_t kinds) { page_->held_kinds.store(kinds); }
  /// Waits until `n` calls are held. Returns false after ten seconds.
  bool wait_for_held(std::uint32_t n) const;
  /// The server dies. Every later call returns ENOTCONN, as for an unplugged device.
  void vanish();

  std::uint32_t calls(Kind kind) const { return page_->calls[index_of(kind)].load(); }

  /// Shared with the server.
  struct Page {
    std::atomic<int> error[3];
    std::atomic<std::uint32_t> held_kinds, held, calls[3], stop;
  };
  static std::size_t index_of(Kind kind) { return kind == reads ? 0 : kind == writes ? 1 : 2; }

 private:
  std::string why_not_;
  Page* page_;
  int server_ = -1;
};

}  // namespace tiermem::test
