// A file system that fails on command, below the kernel: FUSE, served by a process of its own, so
// that whatever reads and writes, io_uring included, goes the way of a real device's error. Its
// files are kept in memory and have no names that last.
//
// Only in a child of the test (child.hpp) and while it has one thread: the mount is seen by it
// alone and ends with it. Told at any time, by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tiermem::test {

class FailingFiles {
 public:
  enum Kind : std::uint32_t { reads = 1, writes = 2, growth = 4 };

  /// On the empty directory.
  explicit FailingFiles(const std::string& directory);
  /// Lets what is held end.
  ~FailingFiles();
  FailingFiles(const FailingFiles&) = delete;
  FailingFiles& operator=(const FailingFiles&) = delete;

  /// Why there is none here: the test is skipped. "" when there is one.
  const std::string& why_not() const { return why_not_; }

  // errno of each call from now on; 0: as usual.
  void fail_reads(int error) { page_->error[0].store(error); }
  void fail_writes(int error) { page_->error[1].store(error); }
  void fail_growth(int error) { page_->error[2].store(error); }
  /// Calls of these kinds wait from now on, until they are none of `kinds` any more.
  void hold(std::uint32_t kinds) { page_->held_kinds.store(kinds); }
  /// Until `n` calls wait. False after ten seconds.
  bool wait_for_held(std::uint32_t n) const;
  /// The server dies: every call from now on is ENOTCONN, as of a device that was pulled out.
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
