// Facts about a program that are known before it starts. The programs are the system's, a
// statically linked one that the build makes, and files that the test writes.
#include "cli/elf_program.hpp"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "support/directory.hpp"
#include "support/places.hpp"

namespace tiermem::cli {
namespace {

class ElfProgram : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text, mode_t mode = 0755) {
    std::string path = directory_.path() + "/" + name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }
  static Obstacle obstacle(const std::string& name) {
    const Program program = look_at_program(name, "/nowhere:/usr/bin:/bin");
    EXPECT_EQ(program.reason.empty(), program.obstacle == Obstacle::none) << program.reason;
    return program.obstacle;
  }
  static std::string copy_of(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  test::Directory directory_;
};

TEST_F(ElfProgram, a_program_of_the_system_has_no_obstacle) {
  EXPECT_EQ(obstacle("/bin/ls"), Obstacle::none);
  const Program found = look_at_program("ls", "/nowhere:/usr/bin:/bin");
  EXPECT_EQ(found.path, "/usr/bin/ls");
  EXPECT_EQ(found.interpreter, "");
}

TEST_F(ElfProgram, what_is_not_there_is_missing) {
  EXPECT_EQ(obstacle("no-such-program"), Obstacle::missing);
  EXPECT_EQ(obstacle("/no/such/program"), Obstacle::missing);
  EXPECT_EQ(obstacle(""), Obstacle::missing);
}

TEST_F(ElfProgram, what_may_not_be_executed_is_told_from_what_is_missing) {
  EXPECT_EQ(obstacle(file("text", "hello\n", 0644)), Obstacle::not_executable);
  EXPECT_EQ(obstacle("/usr"), Obstacle::not_executable);
  file("ls", "hello\n", 0644);
  EXPECT_EQ(look_at_program("ls", (directory_.path() + ":/usr/bin").c_str()).path, "/usr/bin/ls");
}

TEST_F(ElfProgram, a_script_is_its_interpreter) {
  const Program script = look_at_program(file("script", "#! /bin/sh -e\necho\n"), nullptr);
  EXPECT_EQ(script.obstacle, Obstacle::none) << script.reason;
  EXPECT_EQ(script.interpreter, "/bin/sh");
  const std::string inner = file("inner", "#!/usr/bin/env python3\n");
  EXPECT_EQ(look_at_program(file("outer", "#!" + inner + "\n"), nullptr).interpreter,
            "/usr/bin/env");
  const std::string ends_in_zeros("#!/bin/sh\0\0", 11);
  EXPECT_EQ(look_at_program(file("zeros", ends_in_zeros), nullptr).interpreter, "/bin/sh");
  EXPECT_EQ(obstacle(file("orphan", "#!/no/such/interpreter\n")), Obstacle::missing);
  EXPECT_EQ(obstacle(file("loop", "#!" + directory_.path() + "/loop\n")), Obstacle::not_a_program);
}

TEST_F(ElfProgram, a_text_is_no_program) {
  EXPECT_EQ(obstacle(file("text", "hello\n")), Obstacle::not_a_program);
  EXPECT_EQ(obstacle(file("empty", "")), Obstacle::not_a_program);
}

TEST_F(ElfProgram, a_program_linked_statically_is_told) {
  if (static_program_path() == nullptr) {
    GTEST_SKIP() << "this build has no program that is linked statically";
  }
  const std::string program = static_program_path();
  EXPECT_EQ(obstacle(program), Obstacle::linked_statically);
  const Program script = look_at_program(file("s", "#!" + program + "\n"), nullptr);
  EXPECT_EQ(script.obstacle, Obstacle::linked_statically);
}

TEST_F(ElfProgram, another_processor_is_told) {
  std::string bytes = copy_of("/bin/ls");
  bytes[offsetof(Elf64_Ehdr, e_machine)] = static_cast<char>(EM_AARCH64);
  EXPECT_EQ(obstacle(file("arm", bytes)), Obstacle::foreign);
}

TEST_F(ElfProgram, a_section_of_the_go_linker_is_found) {
  std::string bytes = copy_of("/bin/ls");
  const auto at = bytes.find(".note.ABI-tag");  // Among the names of sections.
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 13, std::string(".go.buildinfo").substr(0, 13));
  EXPECT_EQ(obstacle(file("go", bytes)), Obstacle::go);
}

TEST_F(ElfProgram, rights_of_another_user_are_told) {
  const std::string path = file("privileged", copy_of("/bin/ls"));
  if (::chown(path.c_str(), 65534, 65534) != 0) {
    GTEST_SKIP() << "needs a privilege";
  }
  ASSERT_EQ(::chmod(path.c_str(), 04755), 0);
  EXPECT_EQ(obstacle(path), Obstacle::privileged);
}

// A program that is cut at any length gets some verdict, and is not read past its end.
TEST_F(ElfProgram, a_file_that_was_cut_is_read_to_its_end) {
  const std::string bytes = copy_of("/bin/ls");
  for (const std::size_t length : {4u, 63u, 64u, 100u, 1000u, 20000u}) {
    const Program program = look_at_program(file("cut", bytes.substr(0, length)), nullptr);
    EXPECT_NE(program.obstacle, Obstacle::missing) << length;
  }
}

}  // namespace
}  // namespace tiermem::cli
