// System calls that read and write evicted memory, made in all the ways in which programs make
// them. Runs twice: with the kernel's own faults served, and with wrapped system calls
// (preload_wrapped).
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "preload/evicted.hpp"
#include "preload/system_call.hpp"
#include "preload/words.hpp"

namespace tiermem::test {
namespace {

constexpr std::size_t kPage = 4096;

class File {
 public:
  File() {
    char name[] = "./tiermem-calls-XXXXXX";
    fd_ = mkstemp(name);
    EXPECT_GE(fd_, 0) << strerror(errno);
    unlink(name);
  }
  ~File() { close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

class Calls : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, Calls,
                         testing::Values(100, kPage, 3 * kPage + 17, kMiB + 5, 9 * kMiB),
                         testing::PrintToStringParamName());

TEST_P(Calls, files_are_written_and_read) {
  const std::size_t bytes = GetParam() / 8 * 8;
  Evicted memory(bytes + 3 * kPage);
  std::byte* const at = memory.at() + kPage - 8;
  put_words(at, bytes, 1);
  const File file;
  memory.evict();
  ASSERT_EQ(write(file.fd(), at, bytes), static_cast<ssize_t>(bytes)) << strerror(errno);
  memory.evict();
  ASSERT_EQ(pwrite(file.fd(), at, bytes, static_cast<off_t>(bytes)), static_cast<ssize_t>(bytes));
  put_words(at, bytes, 2);
  memory.evict();
  ASSERT_EQ(pread(file.fd(), at, bytes, static_cast<off_t>(bytes)), static_cast<ssize_t>(bytes));
  EXPECT_EQ(wrong_words(at, bytes, 1), 0u);
  put_words(at, bytes, 2);
  ASSERT_EQ(lseek(file.fd(), 0, SEEK_SET), 0);
  memory.evict();
  ASSERT_EQ(read(file.fd(), at, bytes), static_cast<ssize_t>(bytes));
  memory.evict();
  EXPECT_EQ(wrong_words(at, bytes, 1), 0u);
  // At the end of the file only the available bytes are read, and no more.
  put_words(at, bytes, 2);
  memory.evict();
  ASSERT_EQ(pread(file.fd(), at, bytes, static_cast<off_t>(bytes + 8)),
            static_cast<ssize_t>(bytes - 8));
  EXPECT_EQ(reinterpret_cast<std::uint64_t*>(at)[bytes / 8 - 1], word_of(2, bytes / 8 - 1));
  EXPECT_EQ(read(-1, at, bytes), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST_P(Calls, vectors_of_parts_are_written_and_read) {
  const std::size_t bytes = GetParam() / 8 * 8;
  Evicted memory(2 * bytes + 3 * kPage);
  std::byte* const first = memory.at() + 16;
  std::byte* const second = memory.at() + bytes + 2 * kPage;
  std::uint64_t plain[2] = {1, 2};  // On the stack.
  put_words(first, bytes, 1);
  put_words(second, bytes, 2);
  const iovec parts[] = {{first, bytes}, {plain, sizeof(plain)}, {second, bytes}, {plain, 0}};
  const auto total = static_cast<ssize_t>(2 * bytes + sizeof(plain));
  const File file;
  memory.evict();
  ASSERT_EQ(writev(file.fd(), parts, 4), total);
  memory.evict();
  ASSERT_EQ(pwritev(file.fd(), parts, 4, total), total);
  for (const bool at_offset : {false, true}) {
    put_words(first, bytes, 3);
    put_words(second, bytes, 3);
    plain[0] = plain[1] = 0;
    memory.evict();
    ASSERT_EQ(lseek(file.fd(), 0, SEEK_SET), 0);
    ASSERT_EQ(at_offset ? preadv2(file.fd(), parts, 4, total, 0) : readv(file.fd(), parts, 4),
              total);
    EXPECT_EQ(wrong_words(first, bytes, 1), 0u);
    EXPECT_EQ(wrong_words(second, bytes, 2), 0u);
    EXPECT_EQ(plain[0] * 10 + plain[1], 12u);
  }
  memory.evict();
  put_words(first, bytes, 4);
  memory.evict();
  ASSERT_EQ(syscall(SYS_preadv, file.fd(), parts, 4, total, 0), total);
  EXPECT_EQ(wrong_words(first, bytes, 1), 0u);
}

TEST_P(Calls, streams_of_libc_reach_the_programs_buffers) {
  const std::size_t bytes = GetParam() / 8 * 8;
  Evicted memory(bytes + kPage);
  put_words(memory.at(), bytes, 1);
  memory.evict();
  FILE* const file = tmpfile();
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(fwrite(memory.at(), 1, bytes, file), bytes);
  ASSERT_EQ(fflush(file), 0);
  rewind(file);
  put_words(memory.at(), bytes, 2);
  memory.evict();
  ASSERT_EQ(fread(memory.at(), 1, bytes, file), bytes);
  EXPECT_EQ(wrong_words(memory.at(), bytes, 1), 0u);
  rewind(file);
  memory.evict();
  EXPECT_EQ(setvbuf(file, reinterpret_cast<char*>(memory.at()), _IOFBF, kPage), 0);
  char small[64];
  memory.evict();
  ASSERT_EQ(fread(small, 1, sizeof(small), file), sizeof(small));
  EXPECT_EQ(wrong_words(small, sizeof(small), 1), 0u);
  fclose(file);
}

TEST_P(Calls, pipes_and_sockets_carry_every_byte) {
  const std::size_t bytes = GetParam() / 8 * 8;
  for (const bool is_pipe : {true, false}) {
    Evicted from(bytes), to(bytes);
    put_words(from.at(), bytes, 1);
    int ends[2];
    ASSERT_EQ(is_pipe ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    from.evict();
    to.evict();
    std::thread reader([&] {
      for (std::size_t at = 0; at < bytes;) {
        const ssize_t got = read(ends[0], to.at() + at, bytes - at);
        ASSERT_GT(got, 0) << strerror(errno);
        at += static_cast<std::size_t>(got);
      }
    });
    // A blocking write writes everything in one call.
    EXPECT_EQ(write(ends[1], from.at(), bytes), static_cast<ssize_t>(bytes)) << strerror(errno);
    reader.join();
    EXPECT_EQ(wrong_words(to.at(), bytes, 1), 0u);
    close(ends[0]);
    close(ends[1]);
  }
}

TEST(Messages, arrive_whole_and_once) {
  constexpr std::size_t kBytes = 60000;
  Evicted from(kMiB), to(kMiB);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::size_t bytes = kBytes - 8 * i;
    put_words(from.at() + kPage - 8, bytes, i);
    from.evict();
    to.evict();
    ASSERT_EQ(send(ends[0], from.at() + kPage - 8, bytes, 0), static_cast<ssize_t>(bytes));
    const std::size_t room = i % 2 == 0 ? kMiB : 1000;  // Bytes that do not fit are cut off.
    if (i % 4 == 1) {
      EXPECT_EQ(recv(ends[1], to.at(), room, MSG_PEEK | MSG_TRUNC), static_cast<ssize_t>(bytes));
      to.evict();
    }
    ASSERT_EQ(recv(ends[1], to.at(), room, 0), static_cast<ssize_t>(std::min(room, bytes)));
    EXPECT_EQ(wrong_words(to.at(), std::min(room, bytes) / 8 * 8, i), 0u);
    EXPECT_EQ(recv(ends[1], to.at(), room, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
  close(ends[0]);
  close(ends[1]);
}

TEST(Messages, have_names_and_descriptors) {
  Evicted memory(kMiB);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
  const File file;
  ASSERT_EQ(write(file.fd(), "text", 4), 4);

  // Everything that the call refers to is tiered, including its own structure.
  struct Parts {
    msghdr message;
    iovec parts[2];
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    char text[2][16];
    sockaddr_un name;
  };
  auto* const sent = new (memory.at() + kPage - 64) Parts{};
  auto* const got = new (memory.at() + 64 * kPage - 64) Parts{};
  const auto prepare = [](Parts& p) {
    p.parts[0] = {p.text[0], 3};
    p.parts[1] = {p.text[1], 16};
    p.message.msg_iov = p.parts;
    p.message.msg_iovlen = 2;
    p.message.msg_control = p.control;
    p.message.msg_controllen = sizeof(p.control);
  };
  prepare(*sent);
  prepare(*got);
  got->message.msg_name = &got->name;
  got->message.msg_namelen = sizeof(got->name);
  strcpy(sent->text[0], "abc");
  strcpy(sent->text[1], "defghijklmnopqr");
  cmsghdr* const header = CMSG_FIRSTHDR(&sent->message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int given = file.fd();
  memcpy(CMSG_DATA(header), &given, sizeof(given));
  memory.evict();
  ASSERT_EQ(sendmsg(ends[0], &sent->message, 0), 19) << strerror(errno);
  memory.evict();
  ASSERT_EQ(recvmsg(ends[1], &got->message, 0), 19) << strerror(errno);
  EXPECT_EQ(memcmp(got->text[0], "abc", 3), 0);
  EXPECT_STREQ(got->text[1], "defghijklmnopqr");
  const cmsghdr* const back = CMSG_FIRSTHDR(&got->message);
  ASSERT_NE(back, nullptr);
  ASSERT_EQ(back->cmsg_type, SCM_RIGHTS);
  int received = -1;
  memcpy(&received, CMSG_DATA(back), sizeof(received));
  memory.evict();
  char* const text = reinterpret_cast<char*>(memory.at());
  EXPECT_EQ(pread(received, text, 4, 0), 4);
  EXPECT_EQ(memcmp(text, "text", 4), 0);
  close(received);
  close(ends[0]);
  close(ends[1]);
}

// A wrapped call reads one piece at a time.
TEST(Directories, with_more_entries_than_a_piece_holds_are_read_whole) {
  constexpr int kFiles = 4000;
  constexpr std::size_t kRoom = kMiB;
  char folder[] = "./tiermem-entries-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const int directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(directory, 0);
  const auto name_of = [](int i) {
    return "an entry with a name of many characters " + std::to_string(i);
  };
  for (int i = 0; i < kFiles; ++i) {
    ASSERT_EQ(mknodat(directory, name_of(i).c_str(), S_IFREG | 0600, 0), 0) << strerror(errno);
  }
  Evicted memory(kRoom);
  std::vector<bool> seen(kFiles);
  for (;;) {
    memory.evict();
    const long got = syscall(SYS_getdents64, directory, memory.at(), kRoom);
    ASSERT_GE(got, 0) << strerror(errno);
    if (got == 0) {
      break;
    }
    for (long at = 0; at < got;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(memory.at() + at);
      ASSERT_GT(entry->d_reclen, 0) << "at byte " << at << " of " << got;
      if (const char* const digits = strrchr(entry->d_name, ' '); digits != nullptr) {
        seen[static_cast<std::size_t>(atoi(digits + 1))] = true;
      }
      at += entry->d_reclen;
    }
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), kFiles);
  for (int i = 0; i < kFiles; ++i) {
    EXPECT_EQ(unlinkat(directory, name_of(i).c_str(), 0), 0);
  }
  close(directory);
  EXPECT_EQ(rmdir(folder), 0);
}

// The kernel handles the flags as long as no part is tiered.
TEST(Pipes, that_are_full_refuse_a_splice_of_plain_memory_that_may_not_wait) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  alignas(kPage) static char bytes[kPage];
  const iovec part{bytes, sizeof(bytes)};
  ssize_t spliced = 0;
  for (int i = 0; i < 1000 && spliced >= 0; ++i) {
    spliced = vmsplice(ends[1], &part, 1, SPLICE_F_NONBLOCK);
  }
  EXPECT_EQ(spliced, -1);
  EXPECT_EQ(errno, EAGAIN);
  close(ends[0]);
  close(ends[1]);
}

// As with plain memory: what there is room for, and no wait but for the first page.
TEST(Pipes, take_as_much_tiered_memory_as_they_have_room_for) {
  Evicted memory(kMiB);
  put_words(memory.at(), kMiB, 1);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int room = fcntl(ends[1], F_GETPIPE_SZ);
  const iovec part{memory.at(), kMiB};
  memory.evict();
  const ssize_t spliced = vmsplice(ends[1], &part, 1, 0);
  EXPECT_EQ(spliced, room);
  EXPECT_EQ(vmsplice(ends[1], &part, 1, SPLICE_F_NONBLOCK), -1);
  EXPECT_EQ(errno, EAGAIN);
  std::vector<std::byte> copy(static_cast<std::size_t>(room));
  ASSERT_EQ(read(ends[0], copy.data(), copy.size()), room);
  EXPECT_EQ(wrong_words(copy.data(), copy.size(), 1), 0u);
  EXPECT_EQ(vmsplice(ends[0], &part, 1, SPLICE_F_NONBLOCK), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(vmsplice(ends[1], &part, 1, 1U << 20), -1);
  EXPECT_EQ(errno, EINVAL);
  const File file;
  EXPECT_EQ(vmsplice(file.fd(), &part, 1, 0), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(syscall(SYS_vmsplice, ends[1], &part, 1, 0), room);  // By number, too.
  close(ends[0]);
  close(ends[1]);
}

// A wrapped call has limited room for control data. The message stays in the socket.
TEST(Messages, with_too_much_room_for_control_data_are_refused) {
  if (getenv("TIERMEM_WRAP_SYSCALLS") == nullptr) {
    GTEST_SKIP() << "the kernel decides";
  }
  constexpr std::size_t kMostControl = 128 << 10;
  Evicted memory(kMiB);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  ASSERT_EQ(write(ends[0], "text", 4), 4);
  std::vector<char> control(kMostControl + 1);
  iovec part{memory.at(), 16};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  memory.evict();
  ASSERT_EQ(recvmsg(ends[1], &message, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, ENOBUFS);
  memory.evict();
  ASSERT_EQ(sendmsg(ends[0], &message, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, ENOBUFS);
  message.msg_controllen = kMostControl;
  memory.evict();
  EXPECT_EQ(recvmsg(ends[1], &message, MSG_DONTWAIT), 4) << strerror(errno);
  EXPECT_EQ(message.msg_controllen, 0u);
  EXPECT_EQ(memcmp(memory.at(), "text", 4), 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(Messages, come_many_at_once) {
  constexpr unsigned kCount = 8;
  Evicted memory(kMiB);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  mmsghdr messages[kCount]{};
  iovec parts[kCount];
  for (unsigned i = 0; i < kCount; ++i) {
    parts[i] = {memory.at() + i * 16 * kPage + 4, 800 + 8 * i};
    put_words(parts[i].iov_base, parts[i].iov_len, i);
    messages[i].msg_hdr.msg_iov = &parts[i];
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  memory.evict();
  ASSERT_EQ(sendmmsg(ends[0], messages, kCount, 0), static_cast<int>(kCount));
  memset(memory.at(), 0, kMiB);
  memory.evict();
  for (iovec& part : parts) {
    part.iov_len = 4096;
  }
  ASSERT_EQ(recvmmsg(ends[1], messages, kCount, MSG_WAITFORONE, nullptr), static_cast<int>(kCount));
  for (unsigned i = 0; i < kCount; ++i) {
    EXPECT_EQ(messages[i].msg_len, 800 + 8 * i);
    EXPECT_EQ(wrong_words(parts[i].iov_base, messages[i].msg_len, i), 0u);
  }
  close(ends[0]);
  close(ends[1]);
}

TEST(Paths, are_found) {
  Evicted memory(kMiB);
  // Crosses a page boundary.
  char* const old_name = reinterpret_cast<char*>(memory.at()) + kPage - 5;
  char* const new_name = reinterpret_cast<char*>(memory.at()) + 200 * kPage;
  auto* const facts = reinterpret_cast<struct stat*>(memory.at() + 2 * kPage - 20);
  strcpy(old_name, "./tiermem-path-XXXXXX");
  memory.evict();
  int fd = mkstemp(old_name);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, old_name, 5), 5);
  close(fd);
  memory.evict();
  ASSERT_EQ(stat(old_name, facts), 0);
  EXPECT_EQ(facts->st_size, 5);
  strcpy(new_name, old_name);
  strcat(new_name, "-moved");
  memory.evict();
  ASSERT_EQ(rename(old_name, new_name), 0) << strerror(errno);
  memory.evict();
  EXPECT_EQ(access(old_name, F_OK), -1);
  EXPECT_EQ(errno, ENOENT);
  memory.evict();
  ASSERT_EQ(symlink(new_name, old_name), 0);
  memory.evict();
  char* const link = reinterpret_cast<char*>(memory.at()) + 100 * kPage - 7;
  memset(link, 'x', 100);
  memory.evict();
  ASSERT_EQ(readlink(old_name, link, 100), static_cast<ssize_t>(strlen(new_name)));
  EXPECT_EQ(memcmp(link, new_name, strlen(new_name)), 0);
  EXPECT_EQ(link[strlen(new_name)], 'x');
  memory.evict();
  fd = open(new_name, O_RDONLY);
  ASSERT_GE(fd, 0);
  close(fd);
  memory.evict();
  EXPECT_EQ(unlink(old_name), 0);
  memory.evict();
  EXPECT_EQ(unlink(new_name), 0);
  memory.evict();
  ASSERT_NE(getcwd(link, 4000), nullptr);
  EXPECT_EQ(link[0], '/');
  strcpy(old_name, "/proc/self");
  memory.evict();
  DIR* const directory = opendir(old_name);
  ASSERT_NE(directory, nullptr);
  int entries = 0;
  while (readdir(directory) != nullptr) {
    ++entries;
  }
  closedir(directory);
  EXPECT_GT(entries, 20);
  memset(link, 'a', 2 * kPage);
  memory.evict();
  EXPECT_EQ(open(link, O_RDONLY), -1);
  EXPECT_EQ(errno, ENAMETOOLONG);
}

TEST(Waiting, for_descriptors_reports_in_tiered_memory) {
  Evicted memory(kMiB);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  auto* const polls = reinterpret_cast<pollfd*>(memory.at() + kPage - 4);
  polls[0] = {ends[0], POLLIN, 0};
  polls[1] = {ends[1], POLLOUT, 0};
  std::thread late([&] {
    usleep(50000);
    memory.evict();
    EXPECT_EQ(write(ends[1], "x", 1), 1);
  });
  polls[1].fd = -1;
  memory.evict();
  ASSERT_EQ(poll(polls, 2, 10000), 1);
  EXPECT_EQ(polls[0].revents, POLLIN);
  late.join();

  auto* const sets = reinterpret_cast<fd_set*>(memory.at() + 2 * kPage - 8);
  auto* const timeout = reinterpret_cast<timeval*>(memory.at() + 9 * kPage - 8);
  FD_ZERO(sets);
  FD_SET(ends[0], sets);
  *timeout = {10, 0};
  memory.evict();
  ASSERT_EQ(select(ends[0] + 1, sets, nullptr, nullptr, timeout), 1);
  EXPECT_TRUE(FD_ISSET(ends[0], sets));

  const int queue = epoll_create1(0);
  auto* const events = reinterpret_cast<epoll_event*>(memory.at() + 3 * kPage - 6);
  events->events = EPOLLIN;
  events->data.u64 = 0x123456789ABCDEF0u;
  memory.evict();
  ASSERT_EQ(epoll_ctl(queue, EPOLL_CTL_ADD, ends[0], events), 0);
  *events = {};
  memory.evict();
  ASSERT_EQ(epoll_wait(queue, events, 10, 10000), 1);
  const std::uint64_t data = events->data.u64;
  EXPECT_EQ(data, 0x123456789ABCDEF0u);
  close(queue);
  close(ends[0]);
  close(ends[1]);
}

TEST(Waiting, for_a_child_says_how_it_ended) {
  Evicted memory(kMiB);
  auto* const status = reinterpret_cast<int*>(memory.at());
  const pid_t child = fork();
  if (child == 0) {
    usleep(50000);
    _exit(7);
  }
  memory.evict();
  std::thread other([&] { memory.evict(); });
  ASSERT_EQ(waitpid(child, status, 0), child) << strerror(errno);
  other.join();
  EXPECT_TRUE(WIFEXITED(*status));
  EXPECT_EQ(WEXITSTATUS(*status), 7);
}

#define TIERMEM_WORDS_5(...) __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__
#define TIERMEM_WORDS_50(word) \
  TIERMEM_WORDS_5(word, word, word, word, word, word, word, word, word, word)
#define TIERMEM_WORDS_250(word)                                                                   \
  TIERMEM_WORDS_50(word), TIERMEM_WORDS_50(word), TIERMEM_WORDS_50(word), TIERMEM_WORDS_50(word), \
      TIERMEM_WORDS_50(word)
#define TIERMEM_WORDS_1000(word) \
  TIERMEM_WORDS_250(word), TIERMEM_WORDS_250(word), TIERMEM_WORDS_250(word), TIERMEM_WORDS_250(word)

// The maximum number of arguments that the kernel accepts; execle has its variables after them.
TEST(Programs, take_any_number_of_words) {
  const std::string script = "test $# = 2000 && test ${1}$TIERMEM_TEST_WORD = onetwo && exit 42";
  const char* const variables[] = {"TIERMEM_TEST_WORD=two", nullptr};
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    execle("/bin/sh", "sh", "-c", script.c_str(), "sh", TIERMEM_WORDS_1000("one"),
           TIERMEM_WORDS_1000("more"), nullptr, variables);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

#if defined(__x86_64__)

long call_with(long number, const std::array<std::uint64_t, 6>& arguments) {
  return preload::issue({number, arguments});
}

// The registers after a call's arguments can hold any value. When the loader calls access(), the
// third register holds the upper half of the processor's clock, which for an hour looks like an
// address in the regions' range. A started program has no handler for the filter's signal yet.
TEST(Programs, may_have_anything_in_the_registers_that_a_call_has_not_got) {
  const Evicted memory(kPage);  // Makes the filter active.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::uint64_t stray = preload::kWrappedBegin + 0x12300000000;
    const auto number = [](const void* at) { return reinterpret_cast<std::uint64_t>(at); };
    const std::uint64_t no_handler[4] = {};  // SIG_DFL in the kernel's layout, as after exec.
    bool right = call_with(SYS_rt_sigaction, {SIGSYS, number(no_handler), 0, 8, stray, stray}) == 0;
    rlimit limit;
    struct stat about;
    right = right && call_with(SYS_access, {number("/"), R_OK, stray, stray, stray, stray}) == 0;
    right = right && call_with(SYS_stat, {number("/"), number(&about), stray, stray, stray}) == 0;
    right = right && call_with(SYS_getppid, {stray, stray, stray, stray, stray, stray}) > 0;
    right = right && call_with(SYS_umask, {022, stray, stray, stray, stray, stray}) >= 0;
    right = right && call_with(SYS_prlimit64, {0, RLIMIT_CORE, 0, number(&limit), stray}) == 0;
    // Wakes no thread.
    right = right && call_with(SYS_futex, {number(&limit), 1, 0, 0, 0, stray}) == 0;
    right = right && call_with(SYS_read, {~std::uint64_t{0}, 0, 0, stray, stray, stray}) == -EBADF;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << strsignal(WTERMSIG(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

#endif

TEST(Addresses, that_are_none_are_refused) {
  Evicted memory(kMiB);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(mprotect(memory.at(), kPage, PROT_NONE), 0);
  EXPECT_EQ(write(ends[1], memory.at(), 8), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(open(reinterpret_cast<char*>(memory.at()), O_RDONLY), -1);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_EQ(mprotect(memory.at(), kPage, PROT_READ), 0);
  EXPECT_EQ(write(ends[1], memory.at(), 8), 8);
  EXPECT_EQ(read(ends[0], memory.at(), 8), -1);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_EQ(mprotect(memory.at(), kPage, PROT_READ | PROT_WRITE), 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(Addresses, that_are_null_are_refused) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
  void* volatile none = nullptr;  // The compiler must not know the value.
  EXPECT_EQ(writev(ends[0], static_cast<iovec*>(none), 1), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(sendmsg(ends[0], static_cast<msghdr*>(none), 0), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(recvmsg(ends[0], static_cast<msghdr*>(none), MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(sendmmsg(ends[0], static_cast<mmsghdr*>(none), 1, 0), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(syscall(SYS_sendmsg, ends[0], none, 0), -1);
  EXPECT_EQ(errno, EFAULT);
  msghdr message{};
  message.msg_iovlen = 1;
  EXPECT_EQ(sendmsg(ends[0], &message, 0), -1);
  EXPECT_EQ(errno, EFAULT);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace tiermem::test
