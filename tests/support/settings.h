#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace lockstep::testing {

/// What the environment sets for tests.

/// The seed of what they draw at random: LOCKSTEP_SEED, or a fixed number. They print it.
[[nodiscard]] inline std::uint64_t seed() {
  const char* const text = std::getenv("LOCKSTEP_SEED");
  return text != nullptr ? std::stoull(text) : 20240917;
}

/// How often those that repeat themselves do: LOCKSTEP_ROUNDS, or once.
[[nodiscard]] inline int rounds() {
  const char* const text = std::getenv("LOCKSTEP_ROUNDS");
  return text != nullptr ? std::stoi(text) : 1;
}

}  // namespace lockstep::testing
