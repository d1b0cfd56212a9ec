// Descriptors that the program must not close by accident. Programs close "all others" when they
// become daemons; if they closed one of tiermem's, absent pages would become zeros. The preload
// library checks this table before it allows a close. Any thread; no locks.
#pragma once

namespace tiermem {

/// Marks a descriptor as tiermem's. Returns the descriptor, or its new number where they are moved
/// out of the way. Returns negative numbers unchanged.
int keep_descriptor(int fd) noexcept;
/// Closes a kept descriptor. Ignores negative numbers.
void close_kept(int fd) noexcept;
/// Removes the mark, for a caller that closes the descriptor by other means.
void forget_descriptor(int fd) noexcept;
bool is_kept(int fd) noexcept;
/// Gives later descriptors numbers of at least `least`, as far as such numbers are free. They then
/// do not collide with numbers that a program chooses itself.
void keep_descriptors_above(int least) noexcept;

/// [child of fork, its only thread] Forgets what threads of the parent were doing here.
void kept_descriptors_follow_fork() noexcept;

/// While one exists, the process may open descriptors although the program has used up its own:
/// beyond the soft limit, or some that the first one left in stock. For work of tiermem that must
/// not fail. Has an effect only after keep_descriptors_above(). The only effect on other threads is
/// that they may open some files more.
class BeyondLimit {
 public:
  BeyondLimit() noexcept;
  ~BeyondLimit();
  BeyondLimit(const BeyondLimit&) = delete;
  BeyondLimit& operator=(const BeyondLimit&) = delete;

 private:
  const int least_;  // 0: it has no effect.
};

}  // namespace tiermem
