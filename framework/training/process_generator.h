#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

#include <ATen/core/Tensor.h>

#include "framework/axes/environment.h"
#include "framework/base/non_copyable.h"

namespace lockstep {

// LibTorch's default generator exists once in a process: its threads race for it, and each process
// has its own.

/// While it lives, what this thread draws from LibTorch's default generator is a pure function of
/// `seed`: the default initialization of LibTorch's modules and torch::nn::init give the same bits
/// in every thread and process, whatever has been drawn before.
///
///   auto net = lockstep::seeded(seed, [] { return std::make_shared<Net>(); });
///
/// or, for a block,
///
///   const lockstep::SeededInitialization guard(seed);
///
/// The threads of a process take turns: a second guard waits for the end of the first, so
/// collectives, maps and launch() are an Error while one lives. A draw without a guard at the same
/// time disturbs it. Afterwards the generator is what it was. Guards of one thread nest.
class SeededInitialization : private NonCopyable {
 public:
  explicit SeededInitialization(std::uint64_t seed);
  ~SeededInitialization();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  CallsRefused refused_;
  at::Tensor outer_state_;
};

/// Calls make() under such a guard and returns its result.
template <typename Make>
[[nodiscard]] auto seeded(std::uint64_t seed, Make&& make) {
  const SeededInitialization guard(seed);
  return std::forward<Make>(make)();
}

/// What a process has drawn from LibTorch's default generator so far. Unseeded: the program has not
/// set a seed, and LibTorch's own is another in each run.
enum class EarlierDraws { none, seeded, unseeded };

/// Notices draws from LibTorch's default generator by any thread of the process, except draws under
/// a guard. Seeding is no draw.
class DrawWatch {
 public:
  /// The draws since the last note_initialization(), or since the program began. Those before a
  /// later torch::manual_seed() are not known.
  [[nodiscard]] static EarlierDraws earlier_draws();
  /// Says that all draws until now have initialized modules, and that it is known where that
  /// matters: nothing counts them any more.
  static void note_initialization();

  /// Whether there was a draw since the last look(), or since note_initialization() if that is
  /// later. note_initialization() must have been called before.
  [[nodiscard]] bool look();

 private:
  std::uint64_t initializations_ = 0;  // at the last look; 0: before the first
  at::Tensor seen_;                    // the generator's state then
};

}  // namespace lockstep
