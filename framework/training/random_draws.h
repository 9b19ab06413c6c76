#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "framework/axes/axis_names.h"
#include "framework/training/averaging_options.h"
#include "framework/training/dropout.h"
#include "framework/training/process_generator.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

/// What a trainer has to do with randomness: it tells the lockstep::Dropouts of its module where it
/// is, and finds draws from LibTorch's process-wide generator.
class RandomDraws {
 public:
  /// `module` may be nullptr, and otherwise lives as long as this is used.
  RandomDraws(torch::nn::Module* module, std::uint64_t seed, Randomness randomness,
              const AxisNames& axis_name);

  /// Before a microbatch's backward: has its forward drawn? ValueError where that is not allowed.
  void begin_backward();
  /// After it, the step's last or not. In the first step's last all replicas together, and replica
  /// 0 tells for all; later each tells what is new to it.
  void end_backward(bool is_last);

  /// Whether a draw is known to this replica: of itself, and in the first step of any.
  [[nodiscard]] bool seen() const noexcept { return seen_; }

 private:
  [[nodiscard]] std::string description() const;
  void tell_for_all();

  torch::nn::Module* module_;
  Randomness randomness_;
  AxisNames axis_;
  std::shared_ptr<RandomPlace> place_;
  DrawWatch watch_;
  bool seen_ = false;
  bool told_ = false;
};

}  // namespace lockstep
