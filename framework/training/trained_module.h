#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "framework/axes/axis_names.h"

namespace lockstep {

/// A trainer's position in training, which it tells the modules that it trains.
struct TrainerPosition {
  AxisNames axis_name;
  std::uint64_t seed = 0;
  std::int64_t replica = 0;  ///< its index on the axis
  std::int64_t step = 0;
  std::int64_t microbatch = 0;
  std::shared_ptr<const int> identity;  ///< Environment::identity() of the replica
};

/// What a module knows of its trainer: a base class beside torch::nn::Module, derived from
/// publicly. A trainer (ZeroTrainer, DataParallel) that is made for a module tells all of these in
/// it, whether in training mode or not. With several trainers the last one made counts.
class TrainedModule {
 public:
  virtual ~TrainedModule() = default;

  /// Called by a trainer whose module has this one at `path` (the first, if it has several). A copy
  /// (torch::nn::Module::clone) follows the same trainer.
  void follow(std::weak_ptr<const TrainerPosition> position, std::string path) {
    position_ = std::move(position);
    path_ = std::move(path);
  }

 protected:
  /// Where the trainer is. Error if no trainer that lives has this module, and in a map inside the
  /// replica. Messages call the module `what`, and say that `instead` works there.
  [[nodiscard]] std::shared_ptr<const TrainerPosition> trainer_position(
      const std::string& what, const std::string& instead) const;
  /// The same, without errors: nullptr if there is none that lives.
  [[nodiscard]] std::shared_ptr<const TrainerPosition> followed() const noexcept {
    return position_.lock();
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::weak_ptr<const TrainerPosition> position_;
  std::string path_;
};

}  // namespace lockstep
