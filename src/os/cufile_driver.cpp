// The entry points of libcufile, loaded at run time.
#include "os/cufile_driver.hpp"

#include <dlfcn.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace tiermem {
namespace {

Status refused(const char* doing, const cufile::Error& error) {
  return fail(Code::unavailable, "{} gave {}{}", doing, error.code,
              error.driver == cuda::kSuccess ? "" : fmt::format(", the driver {}", error.driver));
}

// Converts a device address, which is a plain number on the host, to the library's pointer type.
void* pointer(cuda::DevicePointer at) {
  return reinterpret_cast<void*>(at);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

Result<CuFileDriver> CuFileDriver::load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return fail(Code::unavailable, "{:.160}", why != nullptr ? why : library.c_str());
  }
  CuFileDriver driver;
  const char* missing = nullptr;
#define TIERMEM_CUFILE_LOOK_UP(result, name, parameters)                      \
  driver.name = reinterpret_cast<result(*) parameters>(dlsym(handle, #name)); \
  missing = driver.name == nullptr && missing == nullptr ? #name : missing;
  TIERMEM_CUFILE_FILE_CALLS(TIERMEM_CUFILE_LOOK_UP)
#undef TIERMEM_CUFILE_LOOK_UP
  if (missing != nullptr) {
    return fail(Code::unavailable, "{} has no {}", library, missing);
  }
  if (const cufile::Error opened = driver.cuFileDriverOpen(); opened.code != cufile::kSuccess) {
    return refused("cuFileDriverOpen", opened);
  }
  return driver;
}

Result<cufile::Handle> CuFileDriver::add(int descriptor) const {
  cufile::Description description;
  description.descriptor = descriptor;
  cufile::Handle handle = nullptr;
  const cufile::Error added = cuFileHandleRegister(&handle, &description);
  if (added.code != cufile::kSuccess) {
    return refused("cuFileHandleRegister", added);
  }
  return handle;
}

void CuFileDriver::remove(cufile::Handle file) const {
  cuFileHandleDeregister(file);
}

Status CuFileDriver::read(cufile::Handle file, std::uint64_t offset, cuda::DevicePointer to,
                          std::uint64_t bytes) const {
  return all("cuFileRead", offset, bytes, [&](std::uint64_t done) {
    return cuFileRead(file, pointer(to), bytes - done, static_cast<off_t>(offset + done),
                      static_cast<off_t>(done));
  });
}

Status CuFileDriver::write(cufile::Handle file, std::uint64_t offset, cuda::DevicePointer from,
                           std::uint64_t bytes) const {
  return all("cuFileWrite", offset, bytes, [&](std::uint64_t done) {
    return cuFileWrite(file, pointer(from), bytes - done, static_cast<off_t>(offset + done),
                       static_cast<off_t>(done));
  });
}

// Repeats a short transfer from where it ended.
template <typename Once>
Status CuFileDriver::all(const char* doing, std::uint64_t offset, std::uint64_t bytes,
                         const Once& once) const {
  for (std::uint64_t done = 0; done < bytes;) {
    errno = 0;
    const ssize_t n = once(done);
    if (n > 0 && static_cast<std::uint64_t>(n) <= bytes - done) {
      done += static_cast<std::uint64_t>(n);
      continue;
    }
    const int native = n == -1 ? errno : 0;
    if (native == EINTR) {
      continue;
    }
    return fail_native(Code::io_error, native,
                       "{} of {} bytes at offset {}: {}; see cuFile's log (cufile.log)", doing,
                       bytes - done, offset + done,
                       native != 0 ? std::strerror(native)
                       : n == 0    ? std::string("moved none")
                                   : fmt::format("gave {}", n));
  }
  return {};
}

}  // namespace tiermem
