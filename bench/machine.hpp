// Where and of what a figure was taken: a sentence about the machine, and the commit. Any thread.
#pragma once

#include <string>

namespace tiermem::bench {

/// "AMD EPYC 9575F, 2 processors, 23.4 GiB, Linux 6.18, ext4 on /dev/vda". `directory` empty: no
/// word about a disk.
std::string describe_machine(const std::string& directory);

/// $TIERMEM_COMMIT; else what git says of the folder this program was built in, with "-dirty" when
/// files differ from it; else the version.
std::string describe_commit();

}  // namespace tiermem::bench
