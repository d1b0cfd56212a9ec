// Submission, the streams' threads, and waiting.
#include "support/fake_cuda/work.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "support/fake_cuda/world.hpp"

namespace tiermem::test {
namespace {

bool is_done(const MarkPointer& mark) {
  return mark == nullptr || mark->done;
}

bool may_begin(const World& world, const StreamState& stream, const Operation& operation) {
  return stream.abandoned || stream.context->failure != cuda::kSuccess ||
         (!world.settings.held &&
          std::all_of(operation.after.begin(), operation.after.end(), is_done));
}

void run_front(World& world, std::unique_lock<std::mutex>& lock, StreamState& stream) {
  const Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  stream.running = true;
  if (operation.run && !stream.abandoned && stream.context->failure == cuda::kSuccess) {
    const cuda::Result result = operation.run(lock);
    if (result != cuda::kSuccess) {
      fail_context(world, *stream.context, result);
    }
  }
  stream.running = false;
  operation.mark->done = true;
  operation.mark->at = std::chrono::steady_clock::now();
  world.changed.notify_all();
}

// The thread of a stream.
void serve(const StreamPointer stream) {
  ::pthread_setname_np(::pthread_self(), "fake-cuda");
  World& world = test::world();
  std::unique_lock lock(world.mutex);
  for (;;) {
    stream->asked.wait(lock, [&] { return !stream->queue.empty() || stream->closed; });
    if (stream->queue.empty()) {
      return;
    }
    world.changed.wait(lock, [&] { return may_begin(world, *stream, stream->queue.front()); });
    run_front(world, lock, *stream);
  }
}

// Detached, because the program may end at any time and no thread could join them. Their state is
// never freed. They block the program's signals.
void start_thread(const StreamPointer& stream) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  for (const int own : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP}) {
    ::sigdelset(&all, own);
  }
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread(serve, stream).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  stream->has_thread = true;
}

}  // namespace

MarkPointer submit(World& world, const StreamPointer& stream, Run run, MarkPointer also) {
  Operation operation{std::move(run), {}, std::make_shared<Mark>()};
  if (!is_done(also)) {
    operation.after.push_back(std::move(also));
  }
  const ContextState& context = *stream->context;
  if (stream->legacy) {
    for (const auto& [handle, each] : world.streams) {
      if (each->context == &context && each->blocking && !is_done(each->last)) {
        operation.after.push_back(each->last);
      }
    }
    std::copy_if(context.orphans.begin(), context.orphans.end(),
                 std::back_inserter(operation.after), [](const auto& mark) { return !mark->done; });
  } else if (stream->blocking && !is_done(context.legacy->last)) {
    operation.after.push_back(context.legacy->last);
  }
  stream->last = operation.mark;
  stream->queue.push_back(std::move(operation));
  if (!stream->has_thread) {
    start_thread(stream);
  }
  stream->asked.notify_one();
  return stream->last;
}

void await(World& world, std::unique_lock<std::mutex>& lock, const MarkPointer& mark) {
  world.changed.wait(lock, [&] { return is_done(mark); });
}

std::vector<MarkPointer> under_way(const World& world, const ContextState* context) {
  std::vector<MarkPointer> marks;
  const auto add = [&](const MarkPointer& mark) {
    if (!is_done(mark)) {
      marks.push_back(mark);
    }
  };
  for (const auto& [handle, stream] : world.streams) {
    if (context == nullptr || stream->context == context) {
      add(stream->last);
    }
  }
  for (const auto& each : world.contexts) {
    if (context == nullptr || each.second == context) {
      std::for_each(each.second->orphans.begin(), each.second->orphans.end(), add);
      add(each.second->legacy->last);
    }
  }
  return marks;
}

void await_all(World& world, std::unique_lock<std::mutex>& lock, const ContextState* context) {
  for (const MarkPointer& mark : under_way(world, context)) {
    await(world, lock, mark);
  }
}

void take_time(World& world, std::unique_lock<std::mutex>& lock, const StreamState& stream,
               std::chrono::nanoseconds time) {
  if (time.count() > 0) {
    world.changed.wait_until(lock, std::chrono::steady_clock::now() + time, [&] {
      return stream.abandoned || stream.context->failure != cuda::kSuccess;
    });
  }
}

void close_stream(StreamState& stream) {
  std::vector<MarkPointer>& orphans = stream.context->orphans;
  std::erase_if(orphans, is_done);
  if (!is_done(stream.last)) {
    orphans.push_back(stream.last);
  }
  stream.closed = true;
  stream.asked.notify_one();
}

void fail_context(World& world, ContextState& context, cuda::Result failure) {
  if (context.failure == cuda::kSuccess) {
    context.failure = failure;
  }
  world.changed.notify_all();
}

}  // namespace tiermem::test
