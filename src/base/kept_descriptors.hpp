// Descriptors that the process's own code must not close by accident: programs close "all others"
// when they become daemons, and one of tiermem's among them would turn absent pages into zeros. The
// preload library asks here before it lets a close through. Any thread; no locks.
#pragma once

namespace tiermem {

/// Marks a descriptor as tiermem's, and returns it: another number for it where they are kept out
/// of the way. Negative ones go through as they are.
int keep_descriptor(int fd) noexcept;
/// Closes a descriptor that was kept. Negative ones are nothing.
void close_kept(int fd) noexcept;
/// Not tiermem's any more, as whoever closes it does so by other means.
void forget_descriptor(int fd) noexcept;
bool is_kept(int fd) noexcept;
/// From now on descriptors get numbers of at least `least`, as far as there are any, so that they
/// do not meet those that a program chooses itself.
void keep_descriptors_above(int least) noexcept;

}  // namespace tiermem
