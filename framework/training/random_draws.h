#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/training/averaging_options.h"
#include "framework/training/keyed_draws.h"
#include "framework/training/process_generator.h"
#include "framework/training/trained_module.h"

namespace torch::nn {
class Module;
}

namespace lockstep::training {

/// Where `parameters`, called `names`, come to a trainer called `owner`, before all replicas start
/// alike: notices initial values that LibTorch's process-wide generator has made. Drawn without a
/// seed they are others in every run. Drawn by replicas that are threads, one after the other, they
/// are others in every placement, and differ between replicas. Replica 0 warns, or all throw a
/// ValueError where randomness is strict. It goes by what was drawn since the last trainer was
/// made, which may have had another purpose. All replicas together.
void check_initialization(const char* owner, const std::vector<std::string>& names,
                          const std::vector<at::Tensor>& parameters, Randomness randomness,
                          const AxisNames& axis_name);

/// A trainer's part in randomness: it tells the TrainedModules in its module, and LibTorch's own
/// operators (keyed_draws.h), the step and the microbatch, and notices draws from LibTorch's
/// process-wide generator.
class RandomDraws {
 public:
  /// After check_initialization(). `module` may be nullptr; otherwise it must live as long.
  RandomDraws(torch::nn::Module* module, std::uint64_t seed, Randomness randomness,
              const AxisNames& axis_name);

  /// A microbatch's backward begins: ValueError if its forward has drawn and may not.
  void begin_backward();
  /// The microbatch's backward is over; `is_last`: the step's last one. At the end of the first
  /// step all replicas call it together, and replica 0 warns for all. Later each warns for itself.
  void end_backward(bool is_last);

  /// Steps done: what a KeyedModule is told.
  [[nodiscard]] std::int64_t steps() const noexcept { return place_->step; }
  /// A training goes on after so many.
  void set_steps(std::int64_t steps) noexcept { place_->step = steps; }

  /// Whether this replica knows of a draw: its own, or any replica's in the first step.
  [[nodiscard]] bool seen() const noexcept { return seen_; }

 private:
  torch::nn::Module* module_;
  Randomness randomness_;
  AxisNames axis_;
  std::shared_ptr<TrainerPosition> place_;
  DrawWatch watch_;
  std::uint64_t of_data_ = draws_of_data;  // at the last look
  bool is_of_data_ = false;                // a data set has drawn before it
  bool seen_ = false;
  bool told_ = false;
};

}  // namespace lockstep::training
