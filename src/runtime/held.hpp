// Owners of resources that a call must release when it ends early, by an error or an exception:
// posted requests, views, and buffers of tiermem's own. Each belongs to one thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "mover/request.hpp"
#include "runtime/context_impl.hpp"

namespace tiermem {

/// A request and its completion word. The destructor cancels a request under way and waits for its
/// answer, so the mover never follows a pointer into freed memory.
class PostedRequest : public InArena {
 public:
  explicit PostedRequest(Context::Impl& impl) : impl_(impl) {}
  ~PostedRequest() {
    if (under_way_) {
      cancel();
      impl_.note_cancel();
      await();
    }
  }
  PostedRequest(const PostedRequest&) = delete;
  PostedRequest& operator=(const PostedRequest&) = delete;

  /// The caller fills it before post(). The mover owns it until await() returns.
  Request request;

  void post() noexcept {
    request.context = &done_;
    request.on_done = [](Request& ended) {
      auto& word = *static_cast<std::atomic<std::uint32_t>*>(ended.context);
      word.store(1, std::memory_order_release);  // As in Context::Impl::ask.
      word.notify_one();
    };
    under_way_ = true;
    impl_.post(request);
  }
  /// The caller must call note_cancel() once after cancelling any number of requests.
  void cancel() noexcept { request.cancel.store(true, std::memory_order_relaxed); }
  void await() noexcept {
    done_.wait(0, std::memory_order_acquire);
    under_way_ = false;
  }

 private:
  Context::Impl& impl_;
  std::atomic<std::uint32_t> done_{0};
  bool under_way_ = false;
};

/// Views that are released at the end of the scope. The records must outlive this.
class HeldViews {
 public:
  HeldViews(Residency& residency, std::span<const ViewRecord> views) noexcept
      : residency_(residency), views_(views) {}
  ~HeldViews() { release(); }
  HeldViews(const HeldViews&) = delete;
  HeldViews& operator=(const HeldViews&) = delete;

  void release() noexcept { (void)residency_.release(std::exchange(views_, {})); }
  /// The caller now releases the views.
  void keep() noexcept { views_ = {}; }

 private:
  Residency& residency_;
  std::span<const ViewRecord> views_;
};

/// A buffer that is freed at the end of the scope.
class HeldBuffer {
 public:
  HeldBuffer(Context::Impl& impl, Handle buffer) noexcept : impl_(impl), buffer_(buffer) {}
  ~HeldBuffer() {
    if (buffer_ != 0) {
      (void)impl_.free(buffer_);
    }
  }
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;

  Handle handle() const noexcept { return buffer_; }
  /// The caller now frees the buffer.
  Handle keep() noexcept { return std::exchange(buffer_, 0); }

 private:
  Context::Impl& impl_;
  Handle buffer_;
};

}  // namespace tiermem
