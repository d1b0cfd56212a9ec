// The answers that another process gets from a context's socket: real sockets and exact texts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/pattern.hpp"
#include "support/sanitizers.hpp"
#include "support/threads.hpp"
#include "tiermem/tiermem.hpp"

namespace tiermem::test {
namespace {

class Inspect : public ::testing::Test {
 protected:
  std::unique_ptr<Context> make(const std::string& more = "") {
    return make_context("dram=16M; nvme=" + directory_.path() +
                        ":256M; inspect=" + directory_.path() + more);
  }
  /// Returns the paths of all sockets.
  std::vector<std::string> sockets() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      if (entry.is_socket()) {
        all.push_back(entry.path().string());
      }
    }
    return all;
  }
  static int connect_to(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      ::close(fd);
      return -1;
    }
    return fd;
  }
  /// Reads until the connection closes.
  static std::string rest_of(int fd) {
    std::string said;
    char some[4096];
    for (ssize_t n = 1; n > 0;) {
      n = ::recv(fd, some, sizeof(some), 0);
      said.append(some, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    }
    ::close(fd);
    return said;
  }
  std::string ask(const std::string& question) const {
    const auto all = sockets();
    EXPECT_EQ(all.size(), 1u);
    const int fd = all.empty() ? -1 : connect_to(all.front());
    EXPECT_GE(fd, 0);
    EXPECT_EQ(::send(fd, question.data(), question.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(question.size()));
    return rest_of(fd);
  }
  Directory directory_;
};

TEST_F(Inspect, what_a_context_says_of_its_buffers_is_right) {
  auto context = make();
  auto small = context->alloc(100'000, {.label = "a\tb\nc"});
  auto large = context->alloc(4 * kMiB, {.label = "large"});
  ASSERT_TRUE(small.ok() && large.ok());
  for (const std::uint64_t at : {std::uint64_t{0}, 2 * kMiB}) {
    auto view = large->acquire(kDiscard, at, 2 * kMiB);
    ASSERT_TRUE(view.ok()) << view.message();
    fill(view->as<std::uint64_t>(), 1);
  }
  ASSERT_TRUE(large->evict(0, 2 * kMiB).ok());

  char expected[200];
  std::snprintf(expected, sizeof(expected),
                "ok\n%#llx\t4194304\t2097152\t2097152\t2097152\t0\t0\t2097152\t0\tlarge\n"
                "%#llx\t100000\t",
                static_cast<unsigned long long>(large->handle()),
                static_cast<unsigned long long>(small->handle()));
  const std::string buffers = ask("buffers\n");
  EXPECT_EQ(buffers.substr(0, std::strlen(expected)), expected);
  EXPECT_NE(buffers.find("\ta\\tb\\nc\n"), std::string::npos) << buffers;

  const std::string handle = std::to_string(large->handle());
  const std::string there = ask("why " + handle + " 2097157\n");
  EXPECT_EQ(there.rfind("ok\nlarge\t2097152\tin dram, dirty, for ", 0), 0u) << there;
  const std::string gone = ask("why " + handle + " 0\n");
  EXPECT_EQ(gone.rfind("ok\nlarge\t0\tin block 0 only, for ", 0), 0u) << gone;
  EXPECT_NE(gone.find("on request\n"), std::string::npos) << gone;
  EXPECT_NE(ask("stats 1\n").find("\"demoted\":2097152"), std::string::npos);
}

TEST_F(Inspect, questions_that_are_none_are_answered_in_words) {
  auto context = make();
  auto buffer = context->alloc(4096);
  ASSERT_TRUE(buffer.ok());
  const std::string handle = std::to_string(buffer->handle());
  for (const std::string bad :
       {"", "buffers 1", "why", "why 1", "why x 0", "why 0x 0", "why -1 0", "why 1 0 0", "stats",
        "stats 1x", "stats 99999999999999999999", "help"}) {
    EXPECT_EQ(ask(bad + "\n").rfind("error '" + bad + "' is not a question; accepted are ", 0), 0u)
        << bad;
  }
  EXPECT_EQ(ask("why 77 0\n").rfind("error why: ", 0), 0u);
  EXPECT_EQ(ask("why " + handle + " 4096\n").rfind("error why: ", 0), 0u);
  EXPECT_EQ(ask(std::string(300, 'x')), "") << "no line ends it";
  EXPECT_EQ(ask("buffers\n").rfind("ok\n", 0), 0u);
}

TEST_F(Inspect, who_says_nothing_holds_up_neither_others_nor_close) {
  auto context = make();
  const int silent = connect_to(sockets().front());
  ASSERT_GE(silent, 0);
  EXPECT_EQ(ask("buffers\n"), "ok\n") << "after a second at most";
  EXPECT_EQ(rest_of(silent), "");
  const int again = connect_to(sockets().front());
  ASSERT_TRUE(context->close().ok());
  EXPECT_EQ(rest_of(again), "");
  EXPECT_TRUE(sockets().empty());
}

// An answer that fills the socket is sent as far as the reader reads it.
TEST_F(Inspect, who_does_not_listen_is_given_up) {
  auto context = make();
  std::vector<Buffer> many;
  for (int i = 0; i < 12'000; ++i) {
    auto buffer = context->alloc(4096);
    ASSERT_TRUE(buffer.ok());
    many.push_back(std::move(*buffer));
  }
  const int deaf = connect_to(sockets().front());
  ASSERT_EQ(::send(deaf, "buffers\n", 8, 0), 8);
  const std::string all = ask("buffers\n");
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 10'001) << "the most that are listed";
  ::close(deaf);
  EXPECT_EQ(ask("why " + std::to_string(many[0].handle()) + " 0\n").rfind("ok\n", 0), 0u);
}

TEST_F(Inspect, the_socket_is_for_its_user_alone) {
  auto context = make();
  struct stat its {};
  ASSERT_EQ(::stat(sockets().front().c_str(), &its), 0);
  EXPECT_EQ(its.st_mode & 0777, 0600u);
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can change its user";
  }
  // Even if all users may reach it.
  ASSERT_EQ(::chmod(sockets().front().c_str(), 0666), 0);
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  const std::string path = sockets().front();
  const pid_t other = ::fork();
  if (other == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) {
      ::_exit(3);
    }
    const int fd = connect_to(path);
    char some = 0;
    const bool sent = fd >= 0 && ::send(fd, "buffers\n", 8, MSG_NOSIGNAL) == 8;
    ::_exit(!sent || ::recv(fd, &some, 1, 0) <= 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

TEST_F(Inspect, a_directory_that_cannot_be_used_is_named) {
  const std::string tiers = "dram=16M; nvme=off; inspect=";
  auto none = Context::create(tiers + directory_.path() + "/none");
  EXPECT_EQ(none.code(), Code::io_error);
  EXPECT_NE(std::string(none.message()).find(directory_.path() + "/none/tiermem-"),
            std::string::npos)
      << none.message();
  auto deep = Context::create(tiers + "/" + std::string(120, 'x'));
  EXPECT_EQ(deep.code(), Code::invalid_argument) << deep.message();
}

TEST_F(Inspect, each_context_has_a_socket_and_takes_it_along) {
  auto first = make();
  auto second = make();
  EXPECT_EQ(sockets().size(), 2u);
  ASSERT_TRUE(first->close().ok());
  EXPECT_EQ(sockets().size(), 1u);
  EXPECT_EQ(ask("buffers\n"), "ok\n");
  second.reset();
  EXPECT_TRUE(sockets().empty());
}

TEST_F(Inspect, a_child_of_fork_answers_for_itself_or_not_at_all) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
  }
  for (const bool follows : {false, true}) {
    auto context = make(follows ? "; fork=follow" : "");
    EXPECT_TRUE(comes_true(threads_have_started)) << "a child that allocates needs it";
    const auto before = sockets();
    ASSERT_EQ(before.size(), 1u);
    int to_child[2], to_parent[2];
    ASSERT_EQ(::pipe(to_child), 0);
    ASSERT_EQ(::pipe(to_parent), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(to_child[1]);
      char some = 0;
      (void)!::write(to_parent[1], "x", 1);
      (void)!::read(to_child[0], &some, 1);
      ::_exit(0);
    }
    ::close(to_child[0]);
    char some = 0;
    ASSERT_EQ(::read(to_parent[0], &some, 1), 1);
    const auto all = sockets();
    EXPECT_EQ(all.size(), follows ? 2u : 1u);
    for (const std::string& path : all) {
      const int fd = connect_to(path);
      ASSERT_GE(fd, 0);
      ASSERT_EQ(::send(fd, "buffers\n", 8, MSG_NOSIGNAL), 8);
      EXPECT_EQ(rest_of(fd), "ok\n") << path;
    }
    // The parent's socket no longer answers, because the child does not hold it.
    ASSERT_TRUE(context->close().ok());
    EXPECT_EQ(connect_to(before.front()), -1);
    ::close(to_child[1]);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (const std::string& left : sockets()) {
      ::unlink(left.c_str());  // The child ended without removing it.
    }
    ::close(to_parent[0]);
    ::close(to_parent[1]);
  }
}

// Tiermem's fork handlers do not run for such a child, which has copies of all descriptors.
TEST_F(Inspect, close_does_not_wait_for_a_child_that_was_made_behind_its_back) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "the thread sanitizer does not follow a fork with threads";
  }
  auto context = make();
  int lifeline[2];
  ASSERT_EQ(::pipe(lifeline), 0);
  const pid_t child = ::_Fork();
  if (child == 0) {
    char some = 0;
    ::close(lifeline[1]);
    (void)!::read(lifeline[0], &some, 1);
    ::_exit(0);
  }
  EXPECT_EQ(ask("buffers\n"), "ok\n");
  EXPECT_TRUE(context->close().ok());
  EXPECT_TRUE(sockets().empty());
  ::close(lifeline[0]);
  ::close(lifeline[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tiermem::test
