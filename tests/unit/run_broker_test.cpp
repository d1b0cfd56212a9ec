// Descriptors that `tiermem run` passes to the processes under it, over a real socket.
#include "preload/run_broker.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "preload/run_owner.hpp"

namespace tiermem {
namespace {

using What = BrokerRequest::What;

// A broker that passes both ends of a pipe for the path "pipe", and nothing else.
class Broker : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(broker_.listen(), 0);
    thread_ = std::thread([this] {
      while (!stop_) {
        pollfd asked{broker_.fd(), POLLIN, 0};
        if (poll(&asked, 1, 5) == 1) {
          broker_.serve();
        }
      }
    });
  }
  void TearDown() override {
    stop_ = true;
    thread_.join();
  }

  RunBroker broker_{[this](What what, const char* path, BrokerReply& reply) {
    ++asked_;
    int ends[2];
    if (what == What::scratch_file && path == std::string("pipe") && pipe2(ends, O_CLOEXEC) == 0) {
      reply.descriptors[0] = ends[0];
      reply.descriptors[1] = ends[1];
      reply.count = 2;
    }
  }};
  std::atomic<int> asked_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

unsigned open_descriptors() {
  unsigned count = 0;
  for (int fd = 0; fd < 256; ++fd) {
    count += fcntl(fd, F_GETFD) >= 0 ? 1U : 0U;
  }
  return count;
}

TEST_F(Broker, a_process_gets_its_own_descriptors) {
  BrokerReply reply;
  ASSERT_TRUE(ask_broker(broker_.variable(), What::scratch_file, "pipe", reply));
  ASSERT_EQ(reply.count, 2);
  ASSERT_EQ(write(reply.descriptors[1], "byte", 4), 4);
  char text[4];
  EXPECT_EQ(read(reply.descriptors[0], text, 4), 4);
  for (const int fd : reply.descriptors) {
    EXPECT_EQ(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(fd);
  }
}

TEST_F(Broker, nothing_stays_open_after_many_requests) {
  const unsigned before = open_descriptors();
  for (int i = 0; i < 200; ++i) {
    BrokerReply reply;
    ASSERT_TRUE(
        ask_broker(broker_.variable(), What::scratch_file, i % 2 == 0 ? "pipe" : "other", reply));
    ASSERT_EQ(reply.count, i % 2 == 0 ? 2 : 0);
    for (int j = 0; j < reply.count; ++j) {
      close(reply.descriptors[j]);
    }
  }
  BrokerReply reply;  // The answer arrives before the broker closes its own descriptor.
  ASSERT_TRUE(ask_broker(broker_.variable(), What::identity, "", reply));
  for (int tries = 0; open_descriptors() > before && tries < 1000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Broker, a_process_learns_who_it_is) {
  BrokerReply reply;
  ASSERT_TRUE(ask_broker(broker_.variable(), What::identity, "", reply));
  EXPECT_EQ(reply.identity, run::own_identity());
  EXPECT_NE(reply.identity, 0U);
  EXPECT_EQ(asked_, 0);
}

TEST_F(Broker, another_secret_gets_nothing) {
  std::string variable = broker_.variable();
  variable.back() = variable.back() == '0' ? '1' : '0';
  BrokerReply reply;
  EXPECT_FALSE(ask_broker(variable.c_str(), What::scratch_file, "pipe", reply));
  EXPECT_EQ(reply.count, 0);
  EXPECT_EQ(asked_, 0);
}

TEST_F(Broker, requests_of_many_threads_are_all_answered) {
  std::atomic<int> answered{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 25; ++j) {
        BrokerReply reply;
        answered += ask_broker(broker_.variable(), What::identity, "", reply) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(answered, 200);
}

TEST(BrokerVariable, values_that_name_no_broker_are_refused) {
  const auto refused = [](const char* variable, const char* path = "") {
    BrokerReply reply;
    return !ask_broker(variable, What::page, path, reply) && reply.count == 0;
  };
  constexpr const char* kNone = "no-such-socket 0123456789abcdef0123456789abcdef";
  const std::string long_text(5000, 'n');
  EXPECT_TRUE(refused(nullptr));
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("name"));
  EXPECT_TRUE(refused("name 0123456789abcdef"));
  EXPECT_TRUE(refused(kNone));
  EXPECT_TRUE(refused(kNone + sizeof("no-such-socket") - 1));
  EXPECT_TRUE(refused(long_text.c_str()));
  EXPECT_TRUE(refused((long_text + kNone).c_str()));
  EXPECT_TRUE(refused(kNone, long_text.c_str()));
}

}  // namespace
}  // namespace tiermem
