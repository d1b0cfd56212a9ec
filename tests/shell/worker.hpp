// One worker of a world: its own buffers, a model of their bytes, and calls drawn at random. The
// worker lives in several threads, one after the other, so that threads end while it holds views.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "shell/model.hpp"
#include "shell/page.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::shell {

/// The state that all workers of a seed share. Constant while they run, except for `failed`.
struct World {
  Page& page;
  std::array<Context*, 2> contexts{};  ///< The second may be null.
  bool refuses = false;  ///< Kernel calls fail: errors are allowed, wrong bytes never.
  bool follows = false;  ///< fork=follow.
  bool maps = true;      ///< Mapped buffers are available.
  std::string file;      ///< The path of a file to adopt, and its bytes.
  std::vector<std::uint8_t> file_bytes;
  std::atomic<bool> failed{false};
};

class Worker {
 public:
  Worker(World& world, unsigned number, std::uint64_t seed);
  ~Worker();

  /// Makes `calls` calls on the calling thread. Returns early once the world has failed.
  void live(unsigned calls);
  /// Call it after the refusals have ended: every known byte must be readable and right. Frees all
  /// buffers.
  void finish();
  /// Call it in the destructor of a thread's key: a call from a thread that is ending.
  void touch_at_thread_end();

 private:
  struct Owned {
    Context* context = nullptr;
    Handle handle = 0;
    Model model{0};
    std::byte* address = nullptr;  ///< Only for a mapped buffer.
    std::uint64_t extent = 0;
    bool live = true;
    bool read_only = false;
    bool mapped = false;
    unsigned held = 0;  ///< Number of its views.
  };
  using OwnedPtr = std::shared_ptr<Owned>;
  struct Held {
    ViewRecord record;
    OwnedPtr of;
    std::uint64_t offset = 0;
    std::uint32_t mode = kRead;
  };
  struct Block {
    Context* context;
    std::uint8_t* data;
    std::vector<std::uint8_t> bytes;
  };
  struct Range {
    std::uint64_t offset, length;
  };

  void call();
  void allocate();
  void adopt();
  void free_one();
  void write();
  void read();
  void acquire();
  void acquire_later();
  void release_one();
  void store_in_view();
  void gather(bool into_buffer);
  void scatter();
  void hint();
  void move();
  void touch();
  void place();
  void ask();
  void foreign();
  void fork_child();
  int check_in_child();
  void check_left_to_parent();

  void release(Held& held);
  void check_view(const Held& held, const char* when);
  bool fine(const Status& status, const char* what, std::initializer_list<Code> more = {});
  void fail(const char* what, const std::string& how);
  void compare(const Owned& owned, std::uint64_t offset, std::span<const std::uint8_t> seen,
               const char* what);
  OwnedPtr some(bool writable = false);
  Range some_range(const Owned& owned, std::uint64_t most);
  std::vector<std::uint8_t> some_bytes(std::uint64_t length);
  std::uint64_t upto(std::uint64_t most) { return random_() % (most + 1); }
  bool one_in(unsigned n) { return random_() % n == 0; }

  World& world_;
  const unsigned number_;
  std::mt19937_64 random_;
  std::vector<OwnedPtr> owned_;
  std::vector<Held> held_;
  std::vector<Block> blocks_;
};

/// Installs the handlers that let a worker survive a touch that cannot be served.
void catch_touches();

}  // namespace tiermem::shell
