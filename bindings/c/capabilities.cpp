// C: capabilities of this build and this machine, versions, names, and the last error.
#include <cstring>

#include "checks.hpp"
#include "operations.hpp"
#include "residency/buffer_limits.hpp"
#include "runtime/build_facts.hpp"
#include "runtime/context_impl.hpp"
#include "runtime/in_call.hpp"
#include "tm_context.hpp"

using namespace tiermem;
using namespace tiermem::c_abi;

namespace {

constexpr std::uint32_t bit(int kind) {
  return std::uint32_t{1} << kind;
}

void describe(Context::Impl& impl, tm_capabilities& caps) {
  caps.kinds_here =
      bit(TM_HOST) | bit(TM_DRAM) | bit(TM_FILE) | (impl.block() != nullptr ? bit(TM_BLOCK) : 0) |
      (impl.config.numa.empty() ? 0 : bit(TM_NUMA)) |
      (impl.config.pmem.empty() ? 0 : bit(TM_PMEM)) | (impl.gpus().empty() ? 0 : bit(TM_GPU)) |
      (impl.config.compressed == 0 ? 0 : bit(TM_COMPRESSED));
  caps.flags |= impl.gpus().empty() ? 0 : std::uint64_t{TM_CAN_CUDA_STREAM};
  caps.spaces = 1 + static_cast<std::uint32_t>(impl.gpus().size());
  caps.tiers = impl.tiers();
  caps.extent_default = impl.config.extent;
  caps.extents_per_buffer = impl.residency.extents.capacity();
  if (!impl.config.checksum) {
    caps.flags &= ~std::uint64_t{TM_CAN_CHECKSUM};
  }
  if (std::strcmp(impl.port().engine(), "io_uring") == 0) {
    caps.flags |= TM_CAN_IO_URING;
  }
  const HostSpaceFacts& facts = impl.host_space().facts();
  if (facts.huge_pages) {
    caps.flags |= TM_CAN_HUGE_PAGES;
  }
  if (facts.windows == Mechanism::uffd_move || facts.windows == Mechanism::remap) {
    caps.flags |= TM_CAN_MOVE_PAGES;
  }
  if (impl.host_space().maps()) {
    caps.flags |= TM_CAN_MAP;
  }
  if (impl.host_space().sees_touches()) {
    caps.flags |= TM_CAN_SEE_TOUCHES;
  }
}

constexpr ErrorInfo kNoError{};

// `holder` and `setting` point into `error`, which is the thread's own record or the empty one.
tm_error_info describe(const ErrorInfo& error) {
  tm_error_info info{};
  info.status = static_cast<tm_status>(error.code);
  info.holder = error.holder;
  info.setting = error.setting;
  fill_error(info, error);
  return info;
}

}  // namespace

extern "C" tm_status tm_caps(tm_context* context, tm_capabilities* out) {
  if (tm_status bad = check_info("caps", out, kCapabilities1)) {
    return bad;
  }
  return guarded([&]() -> Status {
    tm_capabilities caps{};
    caps.version = TM_VERSION;
    caps.kinds_known = bit(TM_HOST) | bit(TM_DRAM) | bit(TM_NUMA) | bit(TM_PMEM) | bit(TM_GPU) |
                       bit(TM_BLOCK) | bit(TM_FILE) | (build_compresses() ? bit(TM_COMPRESSED) : 0);
    caps.spaces = 1;
    caps.extent_smallest = kSmallestExtent;
    caps.extent_largest = kLargestExtent;
    caps.extent_default = kDefaultExtent;
    caps.extents_per_buffer = kMostExtents;
    caps.ops_most = Ops::kMost;
    caps.flags = TM_CAN_CHECKSUM | TM_CAN_ADOPT_FILE;
    if (context != nullptr) {
      const CallMark call(*context->context);
      if (call->is_tombstone()) {
        return call->usable("caps");
      }
      describe(*call, caps);
    }
    caps.buffer_largest =
        largest_buffer(kLargestExtent, saturate<std::uint32_t>(caps.extents_per_buffer));
    fill_info(out, caps);
    return {};
  });
}

// Failures of tm_error() itself do not change the last error: the query must not destroy its
// answer.
extern "C" tm_status tm_error(tm_context* context, tm_op op, tm_error_info* out) {
  if (out == nullptr || !size_fits(out, kErrorInfo1) || (op != 0 && context == nullptr)) {
    return TM_INVALID_ARGUMENT;
  }
  if (op == 0) {
    fill_info(out, describe(last_error()));
    return TM_OK;
  }
  try {
    const Ops::Outcome outcome = look_at("error", *context, op);
    switch (outcome.state) {
      case Ops::State::none:
        return static_cast<tm_status>(outcome.status.code());
      case Ops::State::under_way: {
        tm_error_info info = describe(kNoError);
        info.status = TM_BUSY;
        set_text(info.text, outcome.status.message());
        fill_info(out, info);
        return TM_OK;
      }
      case Ops::State::done:
        break;
    }
    if (outcome.status.ok()) {
      fill_info(out, describe(kNoError));
    } else {
      (void)keep(outcome.status);
      fill_info(out, describe(last_error()));
    }
    return TM_OK;
  } catch (...) {
    return keep_exception();
  }
}

extern "C" const char* tm_status_name(tm_status status) {
  return code_name(static_cast<Code>(status));
}

extern "C" uint32_t tm_version(void) {
  return TM_VERSION;
}
