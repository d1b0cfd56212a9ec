// The default implementations of the contract: they refuse.
#include "tier/address_space.hpp"

namespace tiermem {

Status AddressSpace::take_home(FrameId, std::byte*) {
  return Code::unsupported;
}
Status AddressSpace::show(FrameId, std::byte*) {
  return Code::unsupported;
}
Status AddressSpace::relocate(FrameId, FrameId, std::byte*, bool&) {
  return Code::unsupported;
}
Status AddressSpace::withdraw(FrameId, std::byte*) {
  return Code::unsupported;
}
Status AddressSpace::restore(FrameId, std::byte*) {
  return Code::unsupported;
}
Status AddressSpace::withdraw_to(FrameId, FrameId, std::byte*, PageMask) {
  return Code::unsupported;
}
Status AddressSpace::restore_from(FrameId, FrameId, std::byte*) {
  return Code::unsupported;
}
Status AddressSpace::insert(FrameId, std::byte*, const std::byte*, PageMask, bool) {
  return Code::unsupported;
}
Status AddressSpace::empty(FrameId, std::byte*, PageMask) {
  return Code::unsupported;
}

}  // namespace tiermem
