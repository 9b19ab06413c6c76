#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "framework/base/random.h"

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

/// How many damaged files the readers of foreign formats are given, or damaged configs train:
/// LOCKSTEP_FUZZ, or so many.
[[nodiscard]] inline std::uint64_t fuzzed_files(std::uint64_t otherwise = 450) {
  const char* const text = std::getenv("LOCKSTEP_FUZZ");
  return text != nullptr ? std::stoull(text) : otherwise;
}

/// The cases of a sweep that run: all of them, or with LOCKSTEP_SAMPLE=K one of each K in a row,
/// drawn by seed() or, with LOCKSTEP_SAMPLE=K@N, by N. It prints both. The gate does so, with other
/// draws for each commit.
class Sample {
 public:
  /// `sweep` tells the draws from those of other sweeps.
  explicit Sample(std::string_view sweep) : key_(seed()) {
    const char* const variable = std::getenv("LOCKSTEP_SAMPLE");
    if (variable == nullptr) return;
    const std::string text = variable;
    one_in_ = std::max<std::uint64_t>(1, std::stoull(text));
    const std::size_t at = text.find('@');
    const std::uint64_t drawn_by =
        at == std::string::npos ? seed() : std::stoull(text.substr(at + 1));
    key_ = Key(drawn_by).fold(sweep);
    std::cout << sweep << ": LOCKSTEP_SAMPLE=" << one_in_ << '@' << drawn_by << std::endl;
  }

  /// Whether the sweep's next case runs.
  [[nodiscard]] bool next() noexcept {
    const std::uint64_t at = at_++;
    return key_.draw(at / one_in_) % one_in_ == at % one_in_;
  }

 private:
  Key key_;
  std::uint64_t one_in_ = 1;
  std::uint64_t at_ = 0;
};

}  // namespace lockstep::testing
