#include "plan.hpp"

#include <iterator>
#include <sstream>
#include <string_view>

namespace tiermem::differential {
namespace {

struct Named {
  What what;
  std::string_view name;
  unsigned weight;
};

constexpr Named kCalls[] = {
    {What::alloc, "alloc", 20},
    {What::free, "free", 10},
    {What::read, "read", 30},
    {What::write, "write", 30},
    {What::acquire, "acquire", 60},
    {What::use, "use", 40},
    {What::release, "release", 60},
    {What::evict, "evict", 30},
    {What::prefetch, "prefetch", 10},
    {What::advise, "advise", 8},
    {What::empty, "empty", 8},
    {What::gather, "gather", 16},
    {What::gather_into, "gather_into", 10},
    {What::scatter, "scatter", 12},
    {What::copy, "copy", 30},
    {What::move_bytes, "move_bytes", 8},
    {What::touch, "touch", 20},
    {What::object, "object", 16},
    {What::budget, "budget", 2},
    {What::migrate, "migrate", 12},
    {What::ask, "ask", 8},
    {What::acquire_async, "acquire_async", 6},
    {What::adopt, "adopt", 3},
    {What::wrong_handle, "wrong_handle", 10},
    {What::thread, "thread", 2},
};
static_assert(std::size(kCalls) == static_cast<std::size_t>(What::kCount));

using Random = std::mt19937_64;

// A small number, one beside a power of two up to 2^64, or any.
std::uint64_t number(Random& random) {
  const std::uint64_t bits = random();
  const std::uint64_t power = std::uint64_t{1} << bits % 64;
  switch (bits >> 8 & 7) {
    case 0:
    case 1:
    case 2:
      return bits >> 16 & 0xffff;
    case 3:
      return power - 1;
    case 4:
      return power;
    case 5:
      return power + (bits >> 16 & 0x1fff);
    case 6:
      return 0 - power + (bits >> 16 & 1);
    default:
      return random();
  }
}

What drawn(Random& random) {
  static const unsigned all = [] {
    unsigned sum = 0;
    for (const Named& each : kCalls) {
      sum += each.weight;
    }
    return sum;
  }();
  auto left = static_cast<unsigned>(random() % all);
  for (const Named& each : kCalls) {
    if (left < each.weight) {
      return each.what;
    }
    left -= each.weight;
  }
  return What::alloc;
}

}  // namespace

Plan draw(std::uint64_t seed, unsigned calls) {
  Random random(seed);
  Plan plan(calls);
  for (Call& call : plan) {
    call.what = drawn(random);
    for (std::uint64_t& n : call.n) {
      n = number(random);
    }
    call.n[0] = random();  // Chooses the object, the variant, and the kind of mistake.
  }
  return plan;
}

std::string text_of(const Plan& plan) {
  std::ostringstream out;
  for (const Call& call : plan) {
    out << kCalls[static_cast<unsigned>(call.what)].name;
    for (const std::uint64_t n : call.n) {
      out << ' ' << n;
    }
    out << '\n';
  }
  return out.str();
}

bool read_plan(const std::string& text, Plan& plan) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string name;
    Call call;
    words >> name;
    bool known = false;
    for (const Named& each : kCalls) {
      if (each.name == name) {
        call.what = each.what;
        known = true;
      }
    }
    for (std::uint64_t& n : call.n) {
      known = known && words >> n;
    }
    if (!known) {
      return false;
    }
    plan.push_back(call);
  }
  return true;
}

}  // namespace tiermem::differential
