// Which device a path's bytes are on, by a name that is the same after a reboot and on no other
// device: what is measured of a device is kept under it. Facts only.
//
// Threads: any; reads a few small files of sysfs.
#pragma once

#include <sys/types.h>

#include <string>

#include "tiermem/status.hpp"

namespace tiermem {

struct DeviceId {
  /// "wwid eui.0025385b21404d6c, file system ef53": the device, and the kind of file system on it,
  /// which costs time of its own. Printable ASCII, at most 200 characters.
  std::string key;
  std::string model;  ///< For people; empty when the driver tells none.
  friend bool operator==(const DeviceId&, const DeviceId&) = default;
};

/// Of a directory or a block device. Errors: io_error with errno where the path cannot be looked
/// at.
Result<DeviceId> identify_device(const std::string& path);

/// The device's own name: WWID, UUID (of a device made of others) or serial number, of the whole
/// disk where `device` is a partition. Empty `key`: it has none. `root` is put before every path,
/// so that tests lay out their own.
DeviceId identify_block_device(dev_t device, const std::string& root = "");

}  // namespace tiermem
