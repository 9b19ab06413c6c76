#include "tests/reduce/reductions.h"

#include <cstdint>
#include <functional>
#include <random>

#include "framework/base/random.h"
#include "framework/reduce/reduce.h"
#include "tests/support/settings.h"

namespace lockstep::testing {

bool is_allowed(ElementType type, ReduceOp op) {
  return reduce::why_not(type, op).empty();
}

std::vector<std::vector<std::byte>> random_inputs(int replicas, std::size_t bytes,
                                                  ElementType type) {
  std::vector<std::vector<std::byte>> inputs;
  for (int rank = 0; rank < replicas; ++rank) {
    const Key key = Key(seed()).fold("reductions").fold(static_cast<std::uint64_t>(rank));
    std::mt19937_64 random(key.bits());
    inputs.emplace_back(bytes);
    for (std::byte& byte : inputs.back()) {
      byte = static_cast<std::byte>(random() >> 56U);
      if (type == ElementType::boolean) byte &= std::byte{1};
    }
  }
  return inputs;
}

std::vector<std::vector<std::vector<int>>> splits(int places) {
  constexpr int kAll = 6;
  std::vector<std::vector<std::vector<int>>> found;
  std::vector<std::vector<int>> split;
  // Each place goes to a process that has some already, or to the next one.
  const std::function<void(int)> place = [&](int next) {
    if (next == places) return found.push_back(split);
    const std::size_t known = split.size();
    for (std::size_t process = 0; process <= known; ++process) {
      if (places > kAll && process + 1 < known) continue;
      if (process == known) split.emplace_back();
      split[process].push_back(next);
      place(next + 1);
      split[process].pop_back();
      if (process == known) split.pop_back();
    }
  };
  place(0);
  return found;
}

}  // namespace lockstep::testing
