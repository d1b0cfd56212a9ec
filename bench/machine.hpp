// The origin of a figure: a sentence about the machine, and the commit. Any thread.
#pragma once

#include <string>

namespace tiermem::bench {

/// "AMD EPYC 9575F, 2 processors, 23.4 GiB, Linux 6.18, ext4 on /dev/vda". With an empty
/// `directory` it omits the disk.
std::string describe_machine(const std::string& directory);

/// $TIERMEM_COMMIT; otherwise the commit of the folder this program was built in, with "-dirty" if
/// files differ; otherwise the version.
std::string describe_commit();

}  // namespace tiermem::bench
