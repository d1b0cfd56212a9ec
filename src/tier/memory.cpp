// The default implementations of the contract: a memory that is not opaque refuses copies.
#include "tier/memory.hpp"

namespace tiermem {

bool Memory::copy_in(FrameId, const std::byte*, std::uint64_t, Completion& end) {
  end.status = Code::unsupported;
  return true;
}
bool Memory::copy_out(std::byte*, FrameId, std::uint64_t, Completion& end) {
  end.status = Code::unsupported;
  return true;
}
bool Memory::copy_from(FrameId, Memory&, FrameId, std::uint64_t, Completion& end) {
  end.status = Code::unsupported;
  return true;
}

}  // namespace tiermem
