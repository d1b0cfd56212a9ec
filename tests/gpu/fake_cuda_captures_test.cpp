// The calls that the fake driver forbids during a capture, and the calls that invalidate one.
#include "fake_cuda_client.hpp"

namespace tiermem::test {
namespace {

using cuda::kSuccess;

using FakeCaptures = FakeDriver;

TEST_F(FakeCaptures, work_in_a_capture_does_not_run) {
  const cuda::DevicePointer at = mapped();
  const cuda::Stream own = stream();
  const cuda::Event mark = event();
  int status = -1;
  Graph graph = nullptr;
  EXPECT_EQ(cu.cuStreamIsCapturing(own, &status), kSuccess);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(cu.cuStreamEndCapture(own, &graph), cuda::kInvalidValue);
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(own, 1), kSuccess);
  EXPECT_EQ(cu.cuStreamBeginCapture_v2(own, 1), cuda::kInvalidValue);
  EXPECT_EQ(cu.cuStreamIsCapturing(own, &status), kSuccess);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(cu.cuMemsetD8Async(at, 1, 1, own), kSuccess);
  EXPECT_EQ(cu.cuEventRecord(mark, own), kSuccess);
  ASSERT_EQ(cu.cuStreamEndCapture(own, &graph), kSuccess);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(cu.cuEventQuery(mark), 907) << "there is nothing it stands for";
  EXPECT_EQ(byte_at(at), 0xA5);
  EXPECT_EQ(cu.cuGraphDestroy(graph), kSuccess);
  EXPECT_EQ(cu.cuGraphDestroy(graph), cuda::kInvalidValue);
  EXPECT_EQ(cu.cuStreamBeginCapture_v2(nullptr, 1), cuda::kCaptureUnsupported);
}

TEST_F(FakeCaptures, waiting_breaks_the_capture_of_the_same_thread) {
  const cuda::Stream own = stream();
  const cuda::Stream other = stream();
  const cuda::Event mark = event();
  const auto refused = [&](int way) {
    switch (way) {
      case 0:
        return cu.cuEventQuery(mark);
      case 1:
        return cu.cuEventSynchronize(mark);
      case 2:
        return cu.cuStreamSynchronize(other);
      case 3:
        return cu.cuStreamQuery(other);
      case 4:
        return cu.cuCtxSynchronize();
      default:
        cuda::DevicePointer at = 0;
        return cu.cuMemAlloc_v2(&at, 1);
    }
  };
  for (int way = 0; way < 6; ++way) {
    Graph graph = nullptr;
    int status = 0;
    ASSERT_EQ(cu.cuStreamBeginCapture_v2(own, 1), kSuccess);
    (void)mapped();  // Allowed.
    (void)free_bytes();
    EXPECT_EQ(elsewhere([&] {
                (void)cu.cuCtxSetCurrent(context);
                return refused(way);
              }),
              kSuccess)
        << "another thread's, way " << way;
    EXPECT_EQ(cu.cuStreamIsCapturing(own, &status), kSuccess);
    EXPECT_EQ(status, 1);
    EXPECT_EQ(refused(way), cuda::kCaptureUnsupported) << "way " << way;
    EXPECT_EQ(cu.cuStreamIsCapturing(own, &status), kSuccess);
    EXPECT_EQ(status, 2);
    EXPECT_EQ(cu.cuEventRecord(mark, own), 901);
    EXPECT_EQ(cu.cuStreamEndCapture(own, &graph), 901);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(refused(way), kSuccess) << "it is over";
  }
}

TEST_F(FakeCaptures, a_global_capture_forbids_waiting_to_all_and_a_relaxed_one_to_none) {
  const cuda::Stream own = stream();
  const cuda::Event mark = event();
  Graph graph = nullptr;
  const auto query = [&] {
    (void)cu.cuCtxSetCurrent(context);
    return cu.cuEventQuery(mark);
  };
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(own, 0), kSuccess);
  EXPECT_EQ(elsewhere(query), cuda::kCaptureUnsupported);
  EXPECT_EQ(cu.cuStreamEndCapture(own, &graph), 901);
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(own, 2), kSuccess);
  EXPECT_EQ(query(), kSuccess);
  EXPECT_EQ(elsewhere([&] {
              (void)cu.cuCtxSetCurrent(context);
              return cu.cuStreamEndCapture(own, &graph);
            }),
            kSuccess);
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(own, 2), kSuccess);
  EXPECT_EQ(cu.cuStreamSynchronize(own), cuda::kCaptureUnsupported) << "the stream itself";
  EXPECT_EQ(cu.cuStreamEndCapture(own, &graph), 901);
}

TEST_F(FakeCaptures, a_thread_may_keep_out_of_captures) {
  const cuda::Stream own = stream();
  const cuda::Event mark = event();
  const auto query_with = [&](int wanted) {
    (void)cu.cuCtxSetCurrent(context);
    int mode = wanted;
    EXPECT_EQ(cu.cuThreadExchangeStreamCaptureMode(&mode), kSuccess);
    const cuda::Result result = cu.cuEventQuery(mark);
    EXPECT_EQ(cu.cuThreadExchangeStreamCaptureMode(&mode), kSuccess);
    EXPECT_EQ(mode, wanted);
    return result;
  };
  Graph graph = nullptr;
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(own, 0), kSuccess);
  EXPECT_EQ(elsewhere([&] { return query_with(1); }), kSuccess);
  EXPECT_EQ(elsewhere([&] { return query_with(2); }), kSuccess);
  EXPECT_EQ(query_with(2), kSuccess);
  EXPECT_EQ(cu.cuStreamEndCapture(own, &graph), kSuccess);
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(own, 0), kSuccess);
  EXPECT_EQ(query_with(1), cuda::kCaptureUnsupported) << "the thread's own";
  EXPECT_EQ(cu.cuStreamEndCapture(own, &graph), 901);
  int none = 3;
  EXPECT_EQ(cu.cuThreadExchangeStreamCaptureMode(&none), cuda::kInvalidValue);
}

TEST_F(FakeCaptures, a_capture_ends_in_its_thread_and_the_legacy_stream_breaks_it) {
  const cuda::DevicePointer at = mapped();
  const cuda::Stream own = stream(0);
  Graph graph = nullptr;
  int status = 0;
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(own, 1), kSuccess);
  EXPECT_EQ(elsewhere([&] {
              (void)cu.cuCtxSetCurrent(context);
              return cu.cuStreamEndCapture(own, &graph);
            }),
            908);
  EXPECT_EQ(cu.cuStreamIsCapturing(nullptr, &status), 906);
  EXPECT_EQ(cu.cuMemsetD8Async(at, 0, 1, nullptr), 906);
  EXPECT_EQ(cu.cuStreamEndCapture(own, &graph), 901);
  const cuda::Stream free = stream();
  ASSERT_EQ(cu.cuStreamBeginCapture_v2(free, 1), kSuccess);
  EXPECT_EQ(cu.cuMemsetD8Async(at, 0, 1, nullptr), kSuccess);
  EXPECT_EQ(cu.cuStreamEndCapture(free, &graph), kSuccess);
}

}  // namespace
}  // namespace tiermem::test
