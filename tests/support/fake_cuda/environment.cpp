// Reads TIERMEM_FAKE_CUDA. Commands are joined with ';', as in
//   devices=2;capacity=1G;version=12000;hide=cuMemCreate;fail=cuMemCreate:3:2
//
//   devices=N  version=N  capacity=BYTES  granularity=BYTES  lockable=BYTES
//   taken=DEVICE:BYTES  lose=DEVICE  attribute=NUMBER:VALUE  hide=SYMBOL  peers=0
//   fail=CALL:NTH:RESULT[:TIMES]  slow=CALL:US  copy_us=US  copy_ns_per_kib=NS
//
// Bytes may end in K, M or G; TIMES may be "always".
#include "support/fake_cuda/environment.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace tiermem::test {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

[[noreturn]] void give_up(std::string_view word) {
  std::fprintf(stderr, "the fake CUDA driver does not understand \"%.*s\" in TIERMEM_FAKE_CUDA\n",
               static_cast<int>(word.size()), word.data());
  std::abort();
}

/// The values of one command; each is taken once.
class Values {
 public:
  Values(std::string_view word, std::string_view text) : word_(word), parts_(split(text, ':')) {}

  std::string_view text() {
    if (next_ == parts_.size() || parts_[next_].empty()) {
      give_up(word_);
    }
    return parts_[next_++];
  }
  std::uint64_t number() {
    const std::string_view digits = text();
    if (digits == "always") {
      return FakeCuda::kForever;
    }
    std::uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [after, error] = std::from_chars(digits.data(), end, value);
    const std::string_view unit(after, static_cast<std::size_t>(end - after));
    const unsigned shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : 0;
    if (error != std::errc() || (shift == 0 && !unit.empty())) {
      give_up(word_);
    }
    return value << shift;
  }
  int integer() { return static_cast<int>(number()); }
  /// Takes a valid device number.
  int device() {
    const std::uint64_t index = number();
    return index < 16 ? static_cast<int>(index) : (give_up(word_), 0);
  }
  std::chrono::microseconds time() { return std::chrono::microseconds(number()); }
  bool more() const { return next_ < parts_.size(); }

 private:
  std::string_view word_;
  std::vector<std::string_view> parts_;
  std::size_t next_ = 0;
};

/// The copy time from earlier commands; the driver gets both values at once.
struct CopyTime {
  double ns_per_byte = 0;
  std::chrono::microseconds least{0};
};

void fail(FakeCuda& fake, Values& values) {
  const std::string_view call = values.text();
  const std::uint64_t nth = values.number();
  const int result = values.integer();
  fake.fail_nth(call, nth, result, values.more() ? values.number() : 1);
}

bool follow(FakeCuda& fake, CopyTime& time, std::string_view name, Values& values) {
  if (name == "devices") {
    fake.set_devices(values.integer());
  } else if (name == "version") {
    fake.set_driver_version(values.integer());
  } else if (name == "capacity") {
    fake.set_capacity(values.number());
  } else if (name == "granularity") {
    fake.set_granularity(values.number());
  } else if (name == "lockable") {
    fake.set_lockable(values.number());
  } else if (name == "taken") {
    const int device = values.device();
    fake.set_taken(device, values.number());
  } else if (name == "lose") {
    fake.lose_device(values.device());
  } else if (name == "attribute") {
    const int attribute = values.integer();
    fake.set_attribute(attribute, values.integer());
  } else if (name == "peers") {
    fake.set_peers(values.number() != 0);
  } else if (name == "hide") {
    fake.hide(values.text());
  } else if (name == "fail") {
    fail(fake, values);
  } else if (name == "slow") {
    const std::string_view call = values.text();
    fake.slow_call(call, values.time());
  } else if (name == "copy_us") {
    time.least = values.time();
  } else if (name == "copy_ns_per_kib") {
    time.ns_per_byte = static_cast<double>(values.number()) / 1024;
  } else {
    return false;
  }
  return !values.more();
}

}  // namespace

void follow_environment(FakeCuda& fake) {
  const char* const text = std::getenv("TIERMEM_FAKE_CUDA");
  CopyTime time;
  for (const std::string_view word : split(text == nullptr ? "" : text, ';')) {
    if (word.empty()) {
      continue;
    }
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      give_up(word);
    }
    Values values(word, word.substr(equals + 1));
    if (!follow(fake, time, word.substr(0, equals), values)) {
      give_up(word);
    }
  }
  fake.slow_copies(time.ns_per_byte, time.least);
}

}  // namespace tiermem::test
