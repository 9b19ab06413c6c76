#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

#include <ATen/core/Tensor.h>

#include "framework/axes/environment.h"

namespace lockstep {

// LibTorch's default generator, which a process has once: its threads race for it, and processes
// each have their own.

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
/// The threads of a process take turns: another one's guard waits for the end of this one's, so
/// collectives, maps and launch() are an Error while it lives. Who draws without a guard at the
/// same time disturbs it. After it the generator is what it was. Guards of one thread nest.
class SeededInitialization {
 public:
  explicit SeededInitialization(std::uint64_t seed);
  ~SeededInitialization();
  SeededInitialization(const SeededInitialization&) = delete;
  SeededInitialization& operator=(const SeededInitialization&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  CallsRefused refused_;
  at::Tensor outer_state_;
};

/// The result of make(), which is called under such a guard.
template <typename Make>
[[nodiscard]] auto seeded(std::uint64_t seed, Make&& make) {
  const SeededInitialization guard(seed);
  return std::forward<Make>(make)();
}

/// Notices draws from LibTorch's default generator by any of the process' threads, but for those
/// under a guard. To seed it is no draw.
class DrawWatch {
 public:
  /// All draws until now have initialized modules: no watch counts them.
  static void note_initialization();

  /// Whether there was a draw since the last look or, if that is later, note_initialization(),
  /// which has been called before.
  [[nodiscard]] bool look();

 private:
  std::uint64_t initializations_ = 0;  // at the last look; 0: before the first
  at::Tensor seen_;                    // the generator's state then
};

}  // namespace lockstep
