// The wrapper of arena_allocate().
#include "arena/refused_arena.hpp"

#include <cstddef>

namespace tiermem::test {
namespace {

__thread std::uint64_t t_seen = 0, t_nth = 0;  // t_nth 0: nothing is refused.
__thread bool t_for_good = false;

bool refuses() {
  return t_nth != 0 && (++t_seen == t_nth || (t_for_good && t_seen > t_nth));
}

}  // namespace

RefusedArena::RefusedArena(std::uint64_t n, bool for_good) {
  t_seen = 0;
  t_nth = n;
  t_for_good = for_good;
}

RefusedArena::~RefusedArena() {
  t_nth = 0;
}

bool RefusedArena::refused() {
  return t_seen >= t_nth;
}

}  // namespace tiermem::test

// tiermem::arena_allocate(unsigned long, unsigned long), by its symbol name.
extern "C" {
void* __real__ZN7tiermem14arena_allocateEmm(std::size_t bytes, std::size_t align);
void* __wrap__ZN7tiermem14arena_allocateEmm(std::size_t bytes, std::size_t align);
void* __wrap__ZN7tiermem14arena_allocateEmm(std::size_t bytes, std::size_t align) {
  return tiermem::test::refuses() ? nullptr : __real__ZN7tiermem14arena_allocateEmm(bytes, align);
}
}
