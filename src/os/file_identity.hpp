// The identity of the file behind a descriptor, and a way to open it again. A path is looked up
// once; everything afterwards names the file by its descriptor. A rename between two lookups would
// otherwise mix two files.
//
// Threads: any. No state.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace tiermem {

/// The inode behind a descriptor. Renames, further links, and changes of mode or owner do not
/// change it.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(FileIdentity, FileIdentity) = default;
};

/// Returns the identity of `fd`'s file, or {0, 0}, which no file has, if the kernel does not report
/// it.
FileIdentity identity_of(int fd) noexcept;

/// Opens the file behind `fd` again with other `flags`, through /proc/self/fd instead of its path.
/// Returns a descriptor of the same inode, which the caller closes, or -1 with errno. ENOENT: there
/// is no /proc. ESTALE: /proc led to another file.
int reopen(int fd, int flags) noexcept;

/// Returns `prefix` and 16 random digits: a name that cannot be guessed, for a shared directory.
std::string random_name(std::string_view prefix);

/// Creates a file with a random name in the directory with the descriptor `directory`, and sets
/// `name`. Returns a descriptor for reading and writing, which the caller closes, or -1 with errno.
int create_random(int directory, std::string_view prefix, mode_t mode, std::string& name);

/// Creates a file without a name in the directory, with O_TMPFILE and `flags`. On a file system
/// without O_TMPFILE, and with `tmpfile` false, the name exists for the time between two system
/// calls. Returns a descriptor for reading and writing, which the caller closes, or -1 with errno.
int create_unnamed(int directory, int flags = 0, bool tmpfile = true);

/// Replaces the file at `path` by one with `text` and `mode`, or leaves it unchanged. The directory
/// is looked up once. Returns 0 or errno.
int replace_file(const std::string& path, std::string_view text, mode_t mode);

}  // namespace tiermem
