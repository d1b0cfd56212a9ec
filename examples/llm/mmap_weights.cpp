// Source "mmap": the file is mapped, and the page cache is the only tier. It is tiermem's peer: the
// kernel decides which pages stay, and the wait is inside page faults.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "failure.hpp"
#include "weights.hpp"

namespace llm {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  const int error = errno;
  throw Failure(Exit::memory, what + ": " + std::strerror(error));
}

int advice_of(const std::string& name) {
  if (name == "normal" || name == "willneed") {  // willneed is applied part by part.
    return MADV_NORMAL;
  }
  if (name == "sequential") {
    return MADV_SEQUENTIAL;
  }
  if (name == "random") {
    return MADV_RANDOM;
  }
  throw Failure(Exit::usage,
                "madvise '" + name + "'; accepted: normal, sequential, random, willneed");
}

class MmapWeights final : public Weights {
 public:
  MmapWeights(const WeightsOptions& options, const Safetensors& file, std::vector<ByteRange> parts)
      : Weights(std::move(parts), options.madvise == "willneed" ? options.ahead : 0),
        length_(file.file_bytes()) {
    const int advice = advice_of(options.madvise);
    const int fd = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      refuse("open " + file.path());
    }
    void* address = mmap(nullptr, length_, PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    close(fd);
    if (address == MAP_FAILED) {
      errno = error;
      refuse("mmap of " + std::to_string(length_) + " bytes of " + file.path());
    }
    bytes_ = static_cast<std::byte*>(address);
    if (madvise(bytes_, length_, advice) != 0) {
      refuse("madvise " + options.madvise);
    }
  }
  ~MmapWeights() override {
    if (bytes_ != nullptr) {
      munmap(bytes_, length_);
    }
  }

 private:
  Lease acquire(ByteRange range) override { return {bytes_ + range.offset, {}}; }
  void copy(ByteRange range, void* to) override {
    std::memcpy(to, bytes_ + range.offset, range.length);
  }
  void prefetch(ByteRange range) override {
    const std::uint64_t begin = range.offset & ~(page_ - 1);
    // A refused hint costs speed only.
    (void)madvise(bytes_ + begin, range.end() - begin, MADV_WILLNEED);
  }

  const std::uint64_t length_;
  const std::uint64_t page_ = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::byte* bytes_ = nullptr;
};

}  // namespace

std::unique_ptr<Weights> open_mmap_weights(const WeightsOptions& options, const Safetensors& file,
                                           std::vector<ByteRange> parts) {
  return std::make_unique<MmapWeights>(options, file, std::move(parts));
}

}  // namespace llm
