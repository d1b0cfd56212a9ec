// The only exception of libggml-tiermem. No exception leaves the library: api.cpp catches it.
#pragma once

#include <stdexcept>
#include <string>

#include "tiermem.h"

namespace tiermem::ggml {

class Failure : public std::runtime_error {
 public:
  Failure(tm_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  tm_status status() const { return status_; }

 private:
  tm_status status_;
};

}  // namespace tiermem::ggml
