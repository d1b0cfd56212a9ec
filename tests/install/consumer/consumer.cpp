// A stranger's program: only installed headers, only exported symbols.
#include <cstdio>
#include <cstring>

#include <tiermem/status.hpp>
#include <tiermem/version.hpp>

int main() {
  const tiermem::Status status(tiermem::Code::no_capacity);
  std::printf("tiermem %d.%d.%d says %s\n", TIERMEM_VERSION_MAJOR, TIERMEM_VERSION_MINOR,
              TIERMEM_VERSION_PATCH, status.message());
  return std::strcmp(status.message(), "no_capacity") == 0 ? 0 : 1;
}
