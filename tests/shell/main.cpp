// tiermem-shell: the production library on the real kernel, by seed. Each seed is a world: budgets,
// mechanisms, one or two contexts, one to three workers in threads that end, and forks. In half of
// the seeds the kernel refuses some system calls at random. A model of plain bytes checks the
// results. After the refusals end, every byte must be readable and right, and closing leaves no
// descriptor.
//
// The calls of a worker follow from the seed; how threads interleave does not. A failing seed is
// run again with fewer calls until it passes, and the shortest failing run is printed.
//
// usage: tiermem-shell [--seeds N] [--first SEED] [--calls N] [--refuse never|always|half] [-v]
// Exit status: 0 all passed; 1 one failed; 2 usage.
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "shell/refuser.hpp"
#include "shell/worker.hpp"
#include "support/directory.hpp"

namespace tiermem::shell {
namespace {

enum class Refuse { never, half, always };

struct Arguments {
  std::uint64_t seeds = 20, first = 1;
  unsigned calls = 400;
  Refuse refuse = Refuse::half;
  bool verbose = false;
};

/// The properties that a seed draws before it runs.
struct Drawn {
  std::string spec;
  std::vector<Refusable> refused;
  unsigned workers = 1, lives = 1;
  bool two = false, follows = false, refuses_start = false, key_destructors = false;
};

Drawn draw(std::uint64_t seed, Refuse refuse, const std::string& directory) {
  std::mt19937_64 random(seed);
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  Drawn drawn;
  const bool refuses = refuse == Refuse::always || (refuse == Refuse::half && one_in(2));
  drawn.spec = "dram=" + std::to_string(16 + random() % 16) + "M; nvme=" + directory +
               ":256M; workers=" + std::to_string(1 + random() % 2) + "; extent=256K";
  if (refuses || one_in(3)) {
    drawn.spec += "; io_engine=threads";  // Its reads and writes are system calls.
  }
  drawn.follows = one_in(5);
  if (drawn.follows) {
    drawn.spec += "; fork=follow";
  } else if (one_in(4)) {
    drawn.spec += "; row_cache=1M";
  }
  if (one_in(4)) {
    drawn.spec += "; mechanism=copy";
  } else if (!drawn.follows && one_in(8)) {
    drawn.spec += "; userfault=off";
  }
  // The row cache needs checksums.
  if (one_in(6) && drawn.spec.find("row_cache") == std::string::npos) {
    drawn.spec += "; checksum=off";
  }
  drawn.workers = 1 + static_cast<unsigned>(random() % 3);
  drawn.lives = 1 + static_cast<unsigned>(random() % 4);
  drawn.two = one_in(3);
  drawn.key_destructors = one_in(2);
  if (refuses) {
    drawn.refuses_start = one_in(4);
    auto all = refusables();
    for (unsigned n = 1 + static_cast<unsigned>(random() % 3); n > 0 && !all.empty(); --n) {
      const auto at = all.begin() + static_cast<std::ptrdiff_t>(random() % all.size());
      drawn.refused.push_back(*at);
      all.erase(at);
    }
  }
  return drawn;
}

std::size_t open_descriptors() {
  std::size_t n = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    char link[64], target[256];
    std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t length = ::readlink(link, target, sizeof(target));
    const std::string_view text(target, length < 0 ? 0 : static_cast<std::size_t>(length));
    // The library keeps one /proc/self/pagemap for the process.
    n += length > 0 && !text.ends_with("/pagemap") ? 1 : 0;
  }
  return n;
}

pthread_key_t g_key;
bool g_have_key = false;

void at_thread_end(void* worker) {
  static_cast<Worker*>(worker)->touch_at_thread_end();
}

std::vector<std::uint8_t> make_file(const std::string& path, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint8_t> bytes(300'000 + random() % 5000);
  for (auto& byte : bytes) {
    byte = static_cast<std::uint8_t>(random());
  }
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

/// Makes one context. With refusals at the start, the first attempt may fail with an error.
std::unique_ptr<Context> make_context(const Drawn& drawn, Page& page) {
  for (const bool refuse : {drawn.refuses_start, false}) {
    page.refuse = refuse;
    auto context = Context::create(drawn.spec);
    page.refuse = false;
    if (context.ok()) {
      return std::move(*context);
    }
    if (!refuse) {
      std::printf("create: %s\n", context.message());
    } else if (context.status().info() == nullptr) {
      std::printf("create: refused without a sentence\n");
      return nullptr;
    }
  }
  return nullptr;
}

/// Runs in the child.
bool run_world(const Drawn& drawn, std::uint64_t seed, unsigned calls, const std::string& directory,
               Page& page) {
  catch_touches();
  g_have_key = drawn.key_destructors && ::pthread_key_create(&g_key, at_thread_end) == 0;
  const std::size_t before = open_descriptors();
  World world{.page = page};
  world.refuses = !drawn.refused.empty();
  world.follows = drawn.follows;
  world.file = directory + "/adopted";
  world.file_bytes = make_file(world.file, seed);
  std::array<std::unique_ptr<Context>, 2> contexts;
  contexts[0] = make_context(drawn, page);
  if (contexts[0] == nullptr) {
    return false;
  }
  if (drawn.two) {
    contexts[1] = make_context(drawn, page);
  }
  world.contexts = {contexts[0].get(), contexts[1].get()};
  world.maps = contexts[0]->alloc(4096, {.flags = kMapped}).ok();
  if (world.follows && !world.maps) {
    return true;  // Without mapped buffers there is nothing for a fork to follow.
  }
  std::vector<std::unique_ptr<Worker>> workers;
  for (unsigned i = 0; i < drawn.workers; ++i) {
    workers.push_back(std::make_unique<Worker>(world, i, seed * 31 + i));
  }
  page.refuse = world.refuses;
  for (unsigned life = 0; life < drawn.lives && !world.failed; ++life) {
    std::vector<std::thread> threads;
    for (auto& worker : workers) {
      auto run = [&worker, calls, &drawn] {
        if (g_have_key) {
          (void)::pthread_setspecific(g_key, worker.get());
        }
        worker->live(calls / drawn.lives + 1);
      };
      try {
        threads.emplace_back(run);
      } catch (const std::system_error&) {  // A clone was refused.
        worker->live(1);
      }
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  page.refuse = false;
  for (auto& worker : workers) {
    if (!world.failed) {
      worker->finish();
    }
  }
  if (world.failed) {
    return false;
  }
  for (auto& context : contexts) {
    if (context != nullptr) {
      const Status status = context->close(false, Timeout::seconds(20));
      if (!status.ok()) {
        std::printf("close: %s: %s\n", code_name(status.code()), status.message());
        return false;
      }
    }
    context.reset();
  }
  const std::size_t after = open_descriptors();
  if (after != before) {
    std::printf("%zu descriptors before, %zu after\n", before, after);
    return false;
  }
  return true;
}

/// Runs one seed; prints nothing if it passes.
ChildResult run_seed(std::uint64_t seed, unsigned calls, const Arguments& arguments, bool quiet) {
  const test::Directory directory;
  const Drawn drawn = draw(seed, arguments.refuse, directory.path());
  Page* const page = Page::make();
  if (page == nullptr) {
    return {.how = "no memory for the page of notes"};
  }
  if (arguments.verbose && !quiet) {
    std::printf("seed %lu: %s; %u workers, %u lives%s; refuses", seed, drawn.spec.c_str(),
                drawn.workers, drawn.lives, drawn.two ? ", two contexts" : "");
    for (const Refusable& call : drawn.refused) {
      std::printf(" %s", call.name);
    }
    std::printf("%s\n", drawn.refused.empty() ? " nothing" : "");
  }
  ChildResult result = run_refusing(drawn.refused, seed, *page, 120, [&] {
    return run_world(drawn, seed, calls, directory.path(), *page);
  });
  if (!result.passed && !result.skipped && !quiet) {
    page->print();
  }
  if (arguments.verbose && !quiet) {
    std::printf("seed %lu: %lu calls refused\n", seed, page->refused.load());
  }
  ::munmap(page, sizeof(Page));
  return result;
}

void report(std::uint64_t seed, const Arguments& arguments, const ChildResult& first) {
  std::printf("FAILED: seed %lu with %u calls: %s\n", seed, arguments.calls, first.how.c_str());
  unsigned calls = arguments.calls;
  for (unsigned fewer = calls / 2; fewer > 0; fewer /= 2) {
    if (run_seed(seed, fewer, arguments, true).passed) {
      break;
    }
    calls = fewer;
  }
  std::printf("replay: tiermem-shell --seeds 1 --first %lu --calls %u -v\n", seed, calls);
  std::fflush(stdout);
}

int run(const Arguments& arguments) {
  unsigned failed = 0, skipped = 0;
  for (std::uint64_t seed = arguments.first; seed < arguments.first + arguments.seeds; ++seed) {
    const ChildResult result = run_seed(seed, arguments.calls, arguments, false);
    skipped += result.skipped ? 1 : 0;
    if (!result.passed && !result.skipped) {
      ++failed;
      report(seed, arguments, result);
    }
  }
  std::printf("%lu seeds from %lu: %u failed, %u skipped (no filter that asks)\n", arguments.seeds,
              arguments.first, failed, skipped);
  return failed != 0 ? 1 : 0;
}

}  // namespace
}  // namespace tiermem::shell

int main(int argc, char** argv) {
  using namespace tiermem::shell;
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (name == "-v") {
      arguments.verbose = true;
    } else if (value != nullptr && name == "--seeds") {
      arguments.seeds = std::strtoull(argv[++i], nullptr, 10);
    } else if (value != nullptr && name == "--first") {
      arguments.first = std::strtoull(argv[++i], nullptr, 10);
    } else if (value != nullptr && name == "--calls") {
      arguments.calls = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10));
    } else if (value != nullptr && name == "--refuse") {
      const std::string_view how = argv[++i];
      arguments.refuse = how == "never"    ? Refuse::never
                         : how == "always" ? Refuse::always
                                           : Refuse::half;
    } else {
      std::fprintf(stderr,
                   "usage: tiermem-shell [--seeds N] [--first SEED] [--calls N] "
                   "[--refuse never|half|always] [-v]\n");
      return 2;
    }
  }
  return run(arguments);
}
