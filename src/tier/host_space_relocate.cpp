// How the bytes of a frame of the host go to a frame of another memory of the host. A frame belongs
// to one worker at a time.
#include <cstring>

#include "base/error.hpp"
#include "tier/host_space.hpp"

namespace tiermem {

// By copy, whatever the mechanism of the windows is. The other frame gets its pages first: this is
// the step that fails while a memory is full, and takes longest.
Status HostSpace::relocate(FrameId from, FrameId to, std::byte* at, bool& home) {
  home = at == nullptr;
  HostMemory& memory = memory_of(to);
  if (at != nullptr) {
    Frame& source = frame_of(from).record;
    if (source.at != at && frame_of(from).has_home()) {
      return fail(Code::internal, "a frame cannot be relocated in a window that it is not in");
    }
    if (source.in_parts) {
      return fail(Code::internal, "a frame of parts cannot be relocated");
    }
    if (!frame_of(from).has_home()) {
      relocate_in_place(from, to, at);
      return {};
    }
  }
  if (Status got = memory.populate(to, false, nullptr); !got.ok()) {
    return got;
  }
  if (at == nullptr) {
    std::memcpy(memory.home(to), memory_of(from).home(from), memory.bytes_of(to));
    return {};
  }
  return frame_of(from).record.mapped ? relocate_mapped(from, to, at)
                                      : relocate_in_window(from, to, at, home);
}

// The program may write a mapped window at any time: the frame leaves it before it is copied.
Status HostSpace::relocate_mapped(FrameId from, FrameId to, std::byte* at) {
  if (Status out = withdraw(from, at); !out.ok()) {
    return out;
  }
  std::memcpy(memory_of(to).home(to), memory_of(from).home(from), memory_of(to).bytes_of(to));
  return restore(to, at);
}

// No view exists, so the bytes in the window do not change, and the other frame has them before
// they are dropped there.
Status HostSpace::relocate_in_window(FrameId from, FrameId to, std::byte* at, bool& home) {
  std::memcpy(memory_of(to).home(to), at, memory_of(to).bytes_of(to));
  if (Status out = unmap(from, at); !out.ok()) {
    return out;
  }
  home = !show(to, at).ok();
  return {};
}

// The bytes live in the window itself, and the frames are only charges. The pages move to the node
// of the other memory, if it is bound to one, and keep their address.
void HostSpace::relocate_in_place(FrameId from, FrameId to, std::byte* at) {
  Frame& source = frame_of(from).record;
  Frame& target = frame_of(to).record;
  target.at = source.at;
  target.by = source.by;
  target.mapped = source.mapped;
  target.huge = source.huge;
  target.pages = source.pages;
  target.tag = target.owner;
  source.at = nullptr;
  source.pages = false;
  source.huge = false;
  homes_.settle_on(memory_of(to).node(), at, memory_of(to).bytes_of(to));
}

}  // namespace tiermem
