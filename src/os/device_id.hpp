// The identity of the device that holds a path's bytes: a name that survives a reboot and that no
// other device has. Measurements of a device are stored under this name. Facts only.
//
// Threads: any. Reads a few small files of sysfs.
#pragma once

#include <sys/types.h>

#include <string>

#include "tiermem/status.hpp"

namespace tiermem {

struct DeviceId {
  /// "wwid eui.0025385b21404d6c, file system ef53": the device and the kind of file system on it,
  /// which has a cost of its own. Printable ASCII, up to 200 characters.
  std::string key;
  std::string model;  ///< For people; empty if the driver does not report one.
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

/// Identifies the device of a directory, or a block device. Errors: io_error with errno: the path
/// is not accessible.
Result<DeviceId> identify_device(const std::string& path);

/// Returns the device's own name: WWID, UUID (for a device made of others) or serial number; of the
/// whole disk if `device` is a partition. `key` is empty if there is none.
///
/// - `root`: a prefix for every path, so that tests can provide their own files.
DeviceId identify_block_device(dev_t device, const std::string& root = "");

}  // namespace tiermem
