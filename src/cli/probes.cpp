// Asks the components that would use a mechanism: the host's space, the I/O port, the dynamic
// linker.
#include "cli/probes.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "os/waitable_io_port.hpp"
#include "tier/host_space.hpp"

namespace tiermem::cli {
namespace {

std::string reason_or(const char* reason, const char* otherwise) {
  return *reason != '\0' ? reason : otherwise;
}

const char* mechanism_words(Mechanism mechanism) {
  switch (mechanism) {
    case Mechanism::uffd_move:
      return "frames appear in windows by UFFDIO_MOVE";
    case Mechanism::remap:
      return "frames appear in windows by mremap";
    case Mechanism::copy:
      return "frames are copied into windows (UFFDIO_COPY)";
    default:
      return "frames are filled in place";
  }
}

std::string mapped_words(const HostSpaceFacts& facts) {
  if (facts.mapped == Mechanism::in_place) {
    return fmt::format("they need userfaultfd, and UFFDIO_MOVE or mremap(DONTUNMAP): {}",
                       reason_or(facts.copy_reason, "another mechanism was asked for"));
  }
  if (facts.mapped == Mechanism::remap) {
    return "by SIGSEGV and mremap, because userfaultfd is unavailable: extents of 2 MiB and more, "
           "no system calls on absent bytes (EFAULT), not for unmodified programs";
  }
  const char* const how = facts.mapped == Mechanism::copy
                              ? "by UFFDIO_COPY, because UFFDIO_MOVE is unavailable: slower, and "
                                "direct I/O by the program needs a view; "
                              : "by UFFDIO_MOVE; ";
  if (facts.userfault.signals) {
    return fmt::format(
        "{}touches are SIGBUS, and the touching thread brings its page; system calls on absent "
        "bytes get EFAULT",
        how);
  }
  const bool user = facts.userfault.source == UserfaultSource::user_mode;
  return fmt::format(
      "{}{}", how,
      user ? "system calls on absent bytes get EFAULT; vm.unprivileged_userfaultfd=1, "
             "CAP_SYS_PTRACE or access to /dev/userfaultfd would prevent that"
           : "system calls on absent bytes wait for them, too");
}

void add_memory(const Config& config, const HostFacts& host, std::vector<Probe>& probes) {
  const auto space = HostSpace::create({.memories = {{.budget = config.dram.budget}},
                                        .mechanism = config.mechanism,
                                        .huge_pages = config.huge_pages,
                                        .userfault = config.userfault});
  if (!space.ok()) {
    probes.push_back({"DRAM tier", false, space.message()});
    return;
  }
  const HostSpaceFacts& facts = (*space)->facts();
  const UserfaultFacts& uffd = facts.userfault;
  const bool open = uffd.source != UserfaultSource::none;
  probes.push_back({"userfaultfd", open,
                    open ? fmt::format("by {}{}{}", userfault_source_name(uffd.source),
                                       *uffd.reason != '\0' ? "; " : "", uffd.reason)
                         : reason_or(uffd.reason, "refused")});
  const bool move = *facts.move_reason == '\0' && uffd.move;
  probes.push_back({"UFFDIO_MOVE", move,
                    move ? "2 MiB moved there and back"
                         : reason_or(facts.move_reason, "not offered by this kernel (Linux 6.8)")});
  probes.push_back({"UFFDIO_POISON", uffd.poison,
                    uffd.poison ? "touches of absent extents end in SIGBUS, not in zeros"
                                : "not offered by this kernel (Linux 6.6)"});
  probes.push_back({"write-protection", facts.watches,
                    facts.watches ? "small extents without writes leave at once"
                                  : reason_or(facts.watch_reason, "needs UFFDIO_MOVE")});
  const bool remap = *facts.remap_reason == '\0';
  probes.push_back({"mremap", remap,
                    remap ? fmt::format("vm.max_map_count {}", host.max_map_count.available
                                                                   ? host.max_map_count.value
                                                                   : host.max_map_count.reason)
                          : facts.remap_reason});
  probes.push_back({"huge pages", facts.huge_pages,
                    facts.huge_pages
                        ? fmt::format("transparent huge pages: {}", host.huge_pages.value)
                        : reason_or(facts.huge_reason, "refused")});
  probes.push_back({"windows", true, mechanism_words(facts.windows)});
  probes.push_back({"mapped buffers", (*space)->maps(), mapped_words(facts)});
}

void add_io(const Config& config, const HostFacts& host, std::vector<Probe>& probes) {
  std::string reason;
  const auto port = make_io_port({}, {.engine = config.io_engine}, reason);
  const bool ring = port != nullptr && std::string_view(port->engine()) == "io_uring";
  if (ring) {
    reason = host.io_uring_disabled.available
                 ? "kernel.io_uring_disabled " + host.io_uring_disabled.value
                 : "works";
  } else if (port != nullptr) {
    reason += "; threads do the I/O";
  }
  probes.push_back({"io_uring", ring, reason});
}

void add_page_locking(const HostFacts& host, std::vector<Probe>& probes) {
  const auto limit = host.memlock_limit.number();
  probes.push_back({"page-locking", host.memlock_limit.available,
                    limit ? fmt::format("RLIMIT_MEMLOCK {}", human_bytes(*limit))
                          : fmt::format("RLIMIT_MEMLOCK {}", host.memlock_limit.available
                                                                 ? host.memlock_limit.value
                                                                 : host.memlock_limit.reason)});
}

void add_direct_path(const Config& config, std::vector<Probe>& probes) {
  const char* const name = "GPU to disk directly";
  if (config.gpu_direct == GpuDirect::staged) {
    probes.push_back({name, false, "staged: gpu_direct=staged, cuFile was not asked"});
    return;
  }
  const CuFileFacts facts = ask_cufile({config.gpu_cufile, config.gpu_driver});
  const bool there = facts.path == CuFileFacts::Path::direct;
  const bool used = there && config.gpu_direct == GpuDirect::direct;
  probes.push_back(
      {name, used,
       used    ? "for bytes without checksums: " + facts.detail
       : there ? "staged; gpu_direct=direct would use, for bytes without checksums: " + facts.detail
               : "staged: " + facts.detail});
}

void add_gpus(const Config& config, std::vector<Probe>& probes) {
  const auto driver = CudaDriver::load(config.gpu_driver.c_str());
  if (!driver.ok()) {
    probes.push_back({"CUDA driver", false, driver.message()});
    return;
  }
  const Result<unsigned> count = driver->start();
  probes.push_back({"CUDA driver", count.ok(),
                    count.ok() ? fmt::format("{} for CUDA {}.{}", config.gpu_driver,
                                             driver->version().major(), driver->version().minor())
                               : count.message()});
  for (unsigned index = 0; count.ok() && index < *count; ++index) {
    const auto facts = probe_device(*driver, index);
    probes.push_back({fmt::format("gpu {}", index), facts.ok() && facts->virtual_memory,
                      !facts.ok()
                          ? facts.message()
                          : fmt::format("{}, {}, compute capability {}.{}{}{}", facts->name,
                                        human_bytes(facts->total), facts->capability_major,
                                        facts->capability_minor,
                                        facts->bus_id.empty() ? "" : ", at ", facts->bus_id) +
                                (facts->virtual_memory
                                     ? ""
                                     : "; without virtual memory management it cannot be a tier")});
  }
  if (count.ok()) {
    add_direct_path(config, probes);
  }
}

}  // namespace

std::vector<Probe> probe_machine(const Config& config, const HostFacts& facts) {
  std::vector<Probe> probes;
  add_memory(config, facts, probes);
  add_io(config, facts, probes);
  add_page_locking(facts, probes);
  add_gpus(config, probes);
  return probes;
}

}  // namespace tiermem::cli
