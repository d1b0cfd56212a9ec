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

}  // namespace tiermem
