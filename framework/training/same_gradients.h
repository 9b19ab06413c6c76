#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/training/averaging_options.h"

namespace lockstep::training {

/// Notices replicas that all compute the same gradients, step after step, as they do if a loop for
/// one process gives each of them the same samples. Looks at the first steps alone.
class SameGradients {
 public:
  /// With `may_repeat`, and on one replica, it notices nothing.
  SameGradients(bool may_repeat, Randomness randomness, const AxisNames& axis_name);

  /// Whether it still looks, alike on all replicas.
  [[nodiscard]] bool is_watching() const noexcept { return is_watching_; }
  /// This replica's own gradient of parameter `index`, or a part of it.
  void add(std::size_t index, const at::Tensor& gradient);
  /// A number of the step's gradients; 0 if all were zeros. Begins the next step.
  [[nodiscard]] std::uint64_t take() { return std::exchange(own_, 0); }
  /// The numbers that all replicas took in a step. If several steps' were the same, replica 0
  /// warns, or all throw a ValueError where randomness is strict.
  void compare(const std::vector<std::uint64_t>& taken);

 private:
  Randomness randomness_;
  AxisNames axis_;
  bool is_watching_;
  std::uint64_t own_ = 0;
  int steps_ = 0;  // seen so far …
  int same_ = 0;   // … and those of them with the same gradients
};

}  // namespace lockstep::training
