// Fuzzes sequences of calls of the C interface by one thread, also with arguments that no program
// would use on purpose. The input is a list of calls (fuzz/calls.hpp). Properties after each call:
//
// - it returns one of the documented statuses, and never TM_INTERNAL or TM_LOST
// - a failure sets a message in tm_error(), and leaves the results unchanged
// - written bytes are read back through views, copies, plain addresses and objects
//
// After the last call, when everything is released, nothing is counted as in use. A context serves
// many inputs, because creating one costs more than most inputs.
#include <dirent.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "calls.hpp"

namespace {

using namespace tiermem::fuzz;

std::string g_folder;

void remove_folder() {
  (void)::unlink((g_folder + "/adopted").c_str());
  (void)::rmdir(g_folder.c_str());
}

struct World {
  World() {
    const char* const base = std::getenv("TMPDIR");
    g_folder =
        std::string(base != nullptr && *base != '\0' ? base : "/var/tmp") + "/tiermem-fuzz-XXXXXX";
    require(::mkdtemp(g_folder.data()) != nullptr, "a folder for the block tier");
    std::atexit(remove_folder);
    adopted = g_folder + "/adopted";
    FILE* const file = std::fopen(adopted.c_str(), "wb");
    require(file != nullptr, "a file to adopt");
    for (std::size_t i = 0; i < kAdoptedBytes; ++i) {
      std::fputc(adopted_byte(i), file);
    }
    std::fclose(file);
    spec = "dram=8M; nvme=" + g_folder + ":64M; reserve_free=0; log=off";
  }
  std::string adopted, spec;
  tm_context* context = nullptr;
  tm_context* heaps = nullptr;
  unsigned inputs = 0;  // Number of inputs that used these contexts.
};

World& world() {
  static World* const made = new World;  // Never freed, because threads of the context use it.
  return *made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr unsigned kInputsOfAContext = 300;
  World& w = world();
  if (w.context == nullptr) {
    require(tm_context_create(w.spec.c_str(), nullptr, &w.context) == TM_OK, "a context");
    require(tm_context_create(w.spec.c_str(), nullptr, &w.heaps) == TM_OK, "a context");
    w.inputs = 0;
  }
  auto calls = std::make_unique<Calls>(w.context, w.heaps, w.adopted, w.spec);
  calls->run({data, size});
  calls->give_all_back();
  if (++w.inputs == kInputsOfAContext) {
    require(tm_context_destroy(w.context, 0, -1) == TM_OK, "an empty context ends");
    require(tm_context_destroy(w.heaps, 0, -1) == TM_OK, "an empty context ends");
    w.context = nullptr;
  }
  return 0;
}
