// Which file a descriptor refers to, and a second open of it. A path is looked up once; everything
// after that names the file by its descriptor. A rename between two lookups would otherwise mix two
// files.
//
// Threads: any. No state.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace tiermem {

/// The inode behind a descriptor. Renames, further links, and changes of mode or owner keep it.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(FileIdentity, FileIdentity) = default;
};

/// The identity of `fd`'s file. {0, 0}, which no file has, when the kernel does not tell.
FileIdentity identity_of(int fd) noexcept;

/// Opens the file behind `fd` once more with other `flags`, through /proc/self/fd and not by its
/// path. Returns a descriptor of the same inode, which the caller closes, or -1 with errno. ENOENT:
/// there is no /proc. ESTALE: /proc led to another file.
int reopen(int fd, int flags) noexcept;

/// `prefix` and 16 random digits: a name in a shared directory that cannot be guessed.
std::string random_name(std::string_view prefix);

/// Creates a file with a random name in `directory`, a descriptor. Returns a descriptor for reading
/// and writing, which the caller closes, or -1 with errno. `name` is set.
int create_random(int directory, std::string_view prefix, mode_t mode, std::string& name);

/// Replaces the file at `path` by one with `text` and `mode`, or leaves it as it was. The directory
/// is looked up once. Returns 0 or errno.
int replace_file(const std::string& path, std::string_view text, mode_t mode);

}  // namespace tiermem
