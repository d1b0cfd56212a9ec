// How the bytes of a frame of the host go to a frame of another memory of the host. A frame belongs
// to one worker at a time.
#include "base/error.hpp"
#include "os/large_copy.hpp"
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
    if (source.mapped && memory.file() != nullptr) {
      return fail(Code::internal, "a mapped extent cannot be relocated to persistent memory");
    }
    const bool from_home = frame_of(from).has_home();
    const bool to_home = frame_of(to).has_home();
    if (!from_home || !to_home) {
      if (from_home) {
        return relocate_to_place(from, to, at);
      }
      if (to_home) {
        return relocate_from_place(from, to, at, home);
      }
      relocate_in_place(from, to, at);
      return {};
    }
  } else if (memory.home(to) == nullptr) {
    return fail(Code::busy,
                "an extent at home cannot go to a memory with frames in windows only; acquire a "
                "view of it first");
  }
  if (Status got = memory.populate(to, false, nullptr); !got.ok()) {
    return got;
  }
  if (at == nullptr) {
    host::copy_large(memory.home(to), memory_of(from).home(from), memory.bytes_of(to));
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
  host::copy_large(memory_of(to).home(to), memory_of(from).home(from), memory_of(to).bytes_of(to));
  return restore(to, at);
}

// No view exists, so the bytes in the window do not change, and the other frame has them before
// they are dropped there.
Status HostSpace::relocate_in_window(FrameId from, FrameId to, std::byte* at, bool& home) {
  host::copy_large(memory_of(to).home(to), at, memory_of(to).bytes_of(to));
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

// The bytes live in the window, and the other frame has a home in a file.
Status HostSpace::relocate_from_place(FrameId from, FrameId to, std::byte* at, bool& home) {
  if (Status got = memory_of(to).populate(to, false, nullptr); !got.ok()) {
    return got;
  }
  return relocate_in_window(from, to, at, home);
}

// The frame `to` has no memory of its own, so its bytes wait in the home of `from` while the window
// changes. If the window gets no pages, the frame `from` is shown again. If that is refused too,
// the copy brings the pages.
Status HostSpace::relocate_to_place(FrameId from, FrameId to, std::byte* at) {
  const HostFrame source = frame_of(from);
  if (Status out = unmap(from, at); !out.ok()) {
    return out;
  }
  if (Status got = memory_of(to).populate(to, false, at); !got.ok() && show(from, at).ok()) {
    return got;
  }
  host::copy_large(at, source.home(), source.bytes());
  Mechanism used{};
  return map(to, at, used);
}

}  // namespace tiermem
