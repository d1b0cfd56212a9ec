// See read_file.hpp. Built with TIERMEM_HAVE_ZLIB and TIERMEM_HAVE_ZSTD if these are found.
#include "cli/read_file.hpp"

#include <fcntl.h>
#include <unistd.h>
#ifdef TIERMEM_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef TIERMEM_HAVE_ZSTD
#include <zstd.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>

#include "base/error.hpp"
#include "base/results.hpp"

namespace tiermem::cli {

namespace {

constexpr std::size_t kStep = std::size_t{1} << 20;

Status too_large(const std::string& path, std::uint64_t limit) {
  return fail(Code::no_capacity, "{}: holds more than {}, the most that is read; split it", path,
              human_bytes(limit));
}

Result<std::string> read_plain(const std::string& path, std::uint64_t limit) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return fail_native(Code::io_error, errno, "{}: cannot open: {}", path, std::strerror(errno));
  }
  struct Closer {
    int fd;
    ~Closer() { best_effort(::close(fd), "it was only read"); }
  } closer{fd};
  std::string bytes;
  for (;;) {
    const std::size_t size = bytes.size();
    bytes.resize(size + kStep);
    const ssize_t got = ::read(fd, bytes.data() + size, kStep);
    const int error = errno;
    bytes.resize(size + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && error != EINTR) {
      return fail_native(Code::io_error, error, "{}: cannot read at offset {}: {}", path, size,
                         std::strerror(error));
    }
    if (bytes.size() > limit) {
      return too_large(path, limit);
    }
    if (got == 0) {
      return bytes;
    }
  }
}

#ifdef TIERMEM_HAVE_ZLIB
Result<std::string> gunzip(const std::string& path, const std::string& packed,
                           std::uint64_t limit) {
  z_stream stream{};
  const int begun = inflateInit2(&stream, 15 + 16);
  if (begun != Z_OK) {
    return fail(Code::no_capacity,
                "{}: zlib cannot start: {}; free memory, or decompress it with gunzip", path,
                zError(begun));
  }
  struct Ender {
    z_stream* stream;
    ~Ender() { inflateEnd(stream); }
  } ender{&stream};
  std::string bytes;
  std::size_t fed = 0;
  int result = Z_OK;
  while (fed < packed.size() || stream.avail_in > 0) {
    if (stream.avail_in == 0) {
      const std::size_t part = std::min(packed.size() - fed, kStep);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + fed));
      stream.avail_in = static_cast<uInt>(part);
      fed += part;
    }
    if (result == Z_STREAM_END && inflateReset(&stream) != Z_OK) {  // Another member follows.
      break;
    }
    // While the output buffer fills up, the input already taken may yield more.
    do {
      const std::size_t size = bytes.size();
      bytes.resize(size + kStep);
      stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + size);
      stream.avail_out = static_cast<uInt>(kStep);
      result = inflate(&stream, Z_NO_FLUSH);
      bytes.resize(size + kStep - stream.avail_out);
      if (bytes.size() > limit) {
        return too_large(path, limit);
      }
    } while (result == Z_OK && stream.avail_out == 0);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      return fail_native(Code::invalid_argument, result,
                         "{}: not gzip data, or damaged: {}; check it with gunzip -t", path,
                         stream.msg != nullptr ? stream.msg : zError(result));
    }
  }
  if (result != Z_STREAM_END) {
    return fail(Code::invalid_argument,
                "{}: the gzip data end too early, after {} bytes; copy the whole file again", path,
                packed.size());
  }
  return bytes;
}
#endif

#ifdef TIERMEM_HAVE_ZSTD
Result<std::string> unzstd(const std::string& path, const std::string& packed,
                           std::uint64_t limit) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(),
                                                                          ZSTD_freeDStream);
  if (stream == nullptr) {
    return fail(Code::no_capacity,
                "{}: allocation for zstd failed; free memory, or decompress it with unzstd", path);
  }
  std::string bytes;
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  std::size_t result = 1;
  bool more_comes = false;
  while (in.pos < in.size || more_comes) {
    const std::size_t size = bytes.size();
    bytes.resize(size + kStep);
    ZSTD_outBuffer to{bytes.data() + size, kStep, 0};
    result = ZSTD_decompressStream(stream.get(), &to, &in);
    bytes.resize(size + to.pos);
    if (ZSTD_isError(result) != 0) {
      return fail(Code::invalid_argument,
                  "{}: not zstd data, or damaged: {}; check it with unzstd -t", path,
                  ZSTD_getErrorName(result));
    }
    if (bytes.size() > limit) {
      return too_large(path, limit);
    }
    more_comes = result != 0 && to.pos == kStep;
  }
  if (result != 0) {
    return fail(Code::invalid_argument,
                "{}: the zstd data end too early, after {} bytes; copy the whole file again", path,
                packed.size());
  }
  return bytes;
}
#endif

}  // namespace

Result<std::string> read_compressed(const std::string& path, std::uint64_t limit) {
  const bool gz = path.ends_with(".gz"), zst = path.ends_with(".zst");
#ifndef TIERMEM_HAVE_ZLIB
  if (gz) {
    return fail(Code::unsupported, "{}: this build has no zlib; decompress it with gunzip first",
                path);
  }
#endif
#ifndef TIERMEM_HAVE_ZSTD
  if (zst) {
    return fail(Code::unsupported, "{}: this build has no zstd; decompress it with unzstd first",
                path);
  }
#endif
  try {
    Result<std::string> bytes = read_plain(path, limit);
#ifdef TIERMEM_HAVE_ZLIB
    if (gz && bytes.ok()) {
      return gunzip(path, *bytes, limit);
    }
#endif
#ifdef TIERMEM_HAVE_ZSTD
    if (zst && bytes.ok()) {
      return unzstd(path, *bytes, limit);
    }
#endif
    return bytes;
  } catch (const std::exception& error) {  // Only allocation can fail here.
    return fail(Code::no_capacity, "{}: {} while reading; free memory, or split the file", path,
                error.what());
  }
}

}  // namespace tiermem::cli
