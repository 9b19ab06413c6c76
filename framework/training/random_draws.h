#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "framework/axes/axis_names.h"
#include "framework/training/averaging_options.h"
#include "framework/training/dropout.h"
#include "framework/training/process_generator.h"

namespace lockstep::training {

/// A trainer's part in randomness: it tells the lockstep::Dropouts of its module the step and the
/// microbatch, and notices draws from LibTorch's process-wide generator.
class RandomDraws {
 public:
  /// `module` may be nullptr, and otherwise lives as long as this is used.
  RandomDraws(torch::nn::Module* module, std::uint64_t seed, Randomness randomness,
              const AxisNames& axis_name);

  /// A microbatch's backward begins: notices whether its forward has drawn. ValueError where that
  /// is not allowed.
  void begin_backward();
  /// The microbatch's backward is over, the last one of a step or not. At the end of the first step
  /// all replicas call it together, and replica 0 warns for all; later each warns of its own draws.
  void end_backward(bool is_last);

  /// Whether this replica knows of a draw: of its own or, from the first step, of any replica.
  [[nodiscard]] bool seen() const noexcept { return seen_; }

 private:
  [[nodiscard]] std::string description() const;

  torch::nn::Module* module_;
  Randomness randomness_;
  AxisNames axis_;
  std::shared_ptr<RandomPosition> place_;
  DrawWatch watch_;
  bool seen_ = false;
  bool told_ = false;
};

}  // namespace lockstep::training
