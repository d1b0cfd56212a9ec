// Names of devices, read from a sysfs that the test writes and from the machine's own.
#include "os/device_id.hpp"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/directory.hpp"

namespace tiermem {
namespace {

/// A sysfs with one disk, 8:0, and its partition 8:1.
class DeviceIdTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(root_ + "/sys/devices/sda/sda1");
    std::filesystem::create_directories(root_ + "/sys/devices/sda/device");
    std::filesystem::create_directories(root_ + "/sys/dev/block");
    std::filesystem::create_directory_symlink("../../devices/sda", root_ + "/sys/dev/block/8:0");
    std::filesystem::create_directory_symlink("../../devices/sda/sda1",
                                              root_ + "/sys/dev/block/8:1");
    write("sda/sda1/partition", "1\n");
  }
  void write(const std::string& file, const std::string& text) {
    std::ofstream(root_ + "/sys/devices/" + file) << text;
  }
  std::string key(unsigned minor_number) {
    return identify_block_device(makedev(8, minor_number), root_).key;
  }

  const test::Directory own_;
  const std::string root_ = own_.path();
};

TEST_F(DeviceIdTest, a_partition_is_its_disk) {
  write("sda/device/wwid", "naa.5002538d40a1b2c3\n");
  write("sda/device/model", "  Some  Disk\t1000 \n");
  EXPECT_EQ(key(0), "wwid naa.5002538d40a1b2c3");
  EXPECT_EQ(key(1), key(0));
  EXPECT_EQ(identify_block_device(makedev(8, 1), root_).model, "Some Disk 1000");
}

TEST_F(DeviceIdTest, a_wwid_is_better_than_a_serial_number_and_that_than_nothing) {
  EXPECT_EQ(key(0), "");
  write("sda/device/serial", "S1\n");
  EXPECT_EQ(key(0), "serial S1");
  write("sda/device/wwid", "t10.ATA\n");
  EXPECT_EQ(key(0), "wwid t10.ATA");
  write("sda/wwid", "eui.1\n");
  EXPECT_EQ(key(0), "wwid eui.1");
}

TEST_F(DeviceIdTest, names_are_printable_and_bounded) {
  std::string odd = "a\x01\xff \tb";
  odd.append(1000, 'c');
  write("sda/wwid", odd);
  const std::string name = key(0);
  EXPECT_TRUE(name.starts_with("wwid a bccc")) << name;
  EXPECT_LT(name.size(), 150U);
  write("sda/wwid", "\n");
  EXPECT_EQ(key(0), "");
}

TEST(DeviceId, a_directory_has_one_and_keeps_it) {
  const test::Directory directory;
  const auto first = identify_device(directory.path());
  ASSERT_TRUE(first.ok()) << first.message();
  EXPECT_NE(first->key.find("file system "), std::string::npos) << first->key;
  const auto again = identify_device(directory.path());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_EQ(identify_device("/nowhere/at/all").code(), Code::io_error);
}

}  // namespace
}  // namespace tiermem
