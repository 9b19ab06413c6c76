#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/data/dataset.h"
#include "trainers/bench/step_parts.h"

namespace lockstep::bench {

/// One replica's training of a model, in one of the ways that are measured.
class TrainingLoop {
 public:
  virtual ~TrainingLoop() = default;
  /// A step on this replica's `batch`, with laps for all that it consists of. Returns the loss.
  virtual at::Tensor step(const Batch& batch, StepClock& clock) = 0;
};

/// The ways but kAlone: synchronized training with Adam at a stage of ZeRO.
[[nodiscard]] std::string stage_way(std::int64_t stage);

/// The stages that there are.
[[nodiscard]] const std::vector<std::int64_t>& training_stages();

/// Every replica of the axis makes one, of a model of models/ with its defaults for images of 784
/// pixels in 10 classes. ValueError for a way or a model that is not known.
[[nodiscard]] std::unique_ptr<TrainingLoop> make_training_loop(const std::string& way,
                                                               const std::string& model,
                                                               const std::string& axis_name);

inline constexpr std::int64_t kPixels = 784;
inline constexpr std::int64_t kClasses = 10;

/// How many parameters such a model has.
[[nodiscard]] std::int64_t parameters_of(const std::string& model);

}  // namespace lockstep::bench
