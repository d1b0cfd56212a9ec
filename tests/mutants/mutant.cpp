#include "base/mutant.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace tiermem_mutants {
namespace {

constexpr int kMost = 4096;
unsigned char nowhere[kMost];
unsigned char* reached = nowhere;
int living = -1;

// Before any constructor of the library. A file, because programs under test end in many ways.
__attribute__((constructor(101))) void read_environment() {
  if (const char* id = std::getenv("TIERMEM_MUTANT"); id != nullptr) {
    living = std::atoi(id);
  }
  if (const char* path = std::getenv("TIERMEM_MUTANTS_REACHED"); path != nullptr) {
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    void* const page =
        file < 0 ? MAP_FAILED
                 : ::mmap(nullptr, kMost, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) {
      ::close(file);
    }
    if (page != MAP_FAILED) {
      reached = static_cast<unsigned char*>(page);
    }
  }
}

}  // namespace

bool look(int id) noexcept {
  // Every thread writes the same byte; what is read is read when the program has ended.
  __atomic_store_n(&reached[id], 1, __ATOMIC_RELAXED);
  return id == living;
}

}  // namespace tiermem_mutants
