// A program outside tiermem: it uses only installed headers and exported symbols.
#include <cstdio>
#include <cstring>

#include <tiermem/tiermem.hpp>
#include <tiermem/version.hpp>

int main() {
  const tiermem::Status status(tiermem::Code::no_capacity);
  std::printf("tiermem %d.%d.%d says %s\n", TIERMEM_VERSION_MAJOR, TIERMEM_VERSION_MINOR,
              TIERMEM_VERSION_PATCH, status.message());
  auto context = tiermem::Context::create("dram=16M; nvme=off");
  if (!context.ok()) {
    std::printf("%s\n", context.message());
    return 1;
  }
  auto buffer = (*context)->alloc(1 << 20);
  if (!buffer.ok()) {
    std::printf("%s\n", buffer.message());
    return 1;
  }
  auto chunks = buffer->stream(0, 0, 256 << 10, tiermem::kWrite);
  std::size_t numbers = 0;
  for (tiermem::View& view : chunks) {
    for (float& x : view.as<float>()) {
      x += 1;
      ++numbers;
    }
  }
  return chunks.status().ok() && numbers == (1 << 20) / sizeof(float) &&
                 std::strcmp(status.message(), "no_capacity") == 0
             ? 0
             : 1;
}
