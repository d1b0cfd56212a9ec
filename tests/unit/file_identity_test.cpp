// Identifying a file by its descriptor. Goal: a second open reaches the same inode wherever the
// path leads now, and a file is replaced as a whole or not at all.
#include "os/file_identity.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/directory.hpp"

namespace tiermem {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t files_in(const std::string& path) {
  const std::filesystem::directory_iterator all(path);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(FileIdentity, file_renamed_away_then_a_second_open_is_of_the_same_inode) {
  const test::Directory directory;
  const std::string path = directory.path() + "/file";
  std::ofstream(path) << "first";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::filesystem::rename(path, path + ".old");
  std::ofstream(path) << "other";
  const int again = reopen(fd, O_RDONLY | O_CLOEXEC);
  ASSERT_GE(again, 0);
  EXPECT_EQ(identity_of(again), identity_of(fd));
  char byte = 0;
  EXPECT_EQ(::pread(again, &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'f');
  ::close(again);
  ::close(fd);
  EXPECT_EQ(identity_of(fd), FileIdentity{}) << "no file";
  EXPECT_EQ(reopen(fd, O_RDONLY | O_CLOEXEC), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(FileIdentity, file_is_replaced_then_it_has_the_text_and_nothing_is_left) {
  const test::Directory directory;
  const std::string path = directory.path() + "/file";
  std::ofstream(path) << "before";
  ASSERT_EQ(replace_file(path, "after", 0600), 0);
  EXPECT_EQ(text_of(path), "after");
  EXPECT_EQ(files_in(directory.path()), 1U);
  struct stat st {};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777U, 0600U);
}

TEST(FileIdentity, file_cannot_be_replaced_then_nothing_is_left) {
  const test::Directory directory;
  const std::string path = directory.path() + "/folder";
  std::filesystem::create_directory(path);
  EXPECT_EQ(replace_file(path, "text", 0600), EISDIR);
  EXPECT_EQ(files_in(directory.path()), 1U);
  EXPECT_EQ(replace_file(directory.path() + "/missing/file", "text", 0600), ENOENT);
}

// A name that an attacker can guess, beside the target, could be a link to another file of the
// user.
TEST(FileIdentity, link_with_a_guessed_name_is_not_followed) {
  const test::Directory directory;
  const std::string path = directory.path() + "/file";
  std::ofstream(directory.path() + "/precious") << "precious";
  std::filesystem::create_symlink("precious", path + ".part");
  ASSERT_EQ(replace_file(path, "text", 0600), 0);
  EXPECT_EQ(text_of(directory.path() + "/precious"), "precious");
  EXPECT_EQ(text_of(path), "text");
}

}  // namespace
}  // namespace tiermem
