#include "cli/run_handing.hpp"

#include <fcntl.h>

#include <algorithm>

#include "os/block_file.hpp"

namespace tiermem::cli {
namespace {

void add(int descriptor, BrokerReply& reply) {
  if (descriptor >= 0) {
    reply.descriptors[reply.count++] = descriptor;
  }
}

void add_copy(int descriptor, BrokerReply& reply) {
  add(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0), reply);
}

void add_scratch_file(const BlockDevice& device, BrokerReply& reply) {
  BlockFileOptions options;
  options.path = device.path;
  options.limit = device.bytes;
  const auto file = BlockFile::open(options);
  if (!file.ok() || (*file)->raw()) {
    return;
  }
  add_copy((*file)->fd(true), reply);
  if (reply.count == 1 && (*file)->facts().direct) {
    add_copy((*file)->fd(false), reply);
  }
}

}  // namespace

void hand_over(const RunHost& host, const Config& config, BrokerRequest::What what,
               const char* path, BrokerReply& reply) {
  switch (what) {
    case BrokerRequest::What::identity:
      break;
    case BrokerRequest::What::page:
      add_copy(host.fd(), reply);
      break;
    case BrokerRequest::What::userfault_device:
      if (config.userfault == UserfaultUse::automatic) {
        add(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), reply);
      }
      break;
    case BrokerRequest::What::scratch_file: {
      const auto device = std::find_if(config.block.begin(), config.block.end(),
                                       [&](const BlockDevice& one) { return one.path == path; });
      if (device != config.block.end()) {
        add_scratch_file(*device, reply);
      }
      break;
    }
  }
}

}  // namespace tiermem::cli
