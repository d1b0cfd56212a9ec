#include "os/handed_descriptors.hpp"

#include <atomic>

namespace tiermem {
namespace {

constinit std::atomic<DescriptorSource> g_source{nullptr};

}  // namespace

void set_descriptor_source(DescriptorSource source) {
  g_source.store(source);
}

bool has_descriptor_source() {
  return g_source.load() != nullptr;
}

int handed_descriptors(Handed what, const char* path, int (&descriptors)[kMostHanded]) {
  const DescriptorSource source = g_source.load();
  return source == nullptr ? 0 : source(what, path, descriptors);
}

}  // namespace tiermem
