// The default implementations of the tier contract.
#include "tier/tier.hpp"

namespace tiermem {

bool AddressableTier::copy_in(FrameId, const std::byte*, std::uint64_t, Ending& end) {
  end.status = Code::unsupported;
  return true;
}
bool AddressableTier::copy_out(std::byte*, FrameId, std::uint64_t, Ending& end) {
  end.status = Code::unsupported;
  return true;
}
bool AddressableTier::copy_from(FrameId, AddressableTier&, FrameId, std::uint64_t, Ending& end) {
  end.status = Code::unsupported;
  return true;
}

Status AddressableTier::take_home(FrameId, std::byte*) {
  return Code::unsupported;
}
Status AddressableTier::show(FrameId, std::byte*) {
  return Code::unsupported;
}
Status AddressableTier::withdraw(FrameId, std::byte*) {
  return Code::unsupported;
}
Status AddressableTier::restore(FrameId, std::byte*) {
  return Code::unsupported;
}
Status AddressableTier::insert(FrameId, std::byte*, const std::byte*, PageMask, bool) {
  return Code::unsupported;
}
Status AddressableTier::empty(FrameId, std::byte*, PageMask) {
  return Code::unsupported;
}

}  // namespace tiermem
