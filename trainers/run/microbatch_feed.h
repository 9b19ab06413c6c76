#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "framework/data/data.h"
#include "framework/data/loader.h"
#include "framework/data/sampler.h"
#include "framework/objectives/loss.h"
#include "trainers/config/config.h"
#include "trainers/run/sample_place.h"

namespace lockstep {

/// A part of a replica's samples of a step.
struct Microbatch {
  Batch tensors{};
  std::int64_t samples = 0;  ///< that count; 0: the tensors are of one that does not
  double weight = 0;         ///< of its mean loss: see Loss::weight() …
  double step_weight = 0;    ///< … and of those of all replicas and microbatches of the step
};

/// A replica's microbatches of the training set, step by step, made ahead. One on each replica of
/// the job; one thread. All replicas begin steps together.
class MicrobatchFeed {
 public:
  /// All must live as long.
  MicrobatchFeed(const Config& config, const DataSets& data, const Loss& loss);

  [[nodiscard]] const Sampler& sampler() const noexcept { return sampler_; }

  /// Asks for the microbatches of the step at a position of the sampler. Does not wait.
  void request(std::int64_t position);
  /// Begins the step at `position`, the first that was asked for and is not begun. All replicas
  /// together.
  void begin_step(std::int64_t position);
  /// The step's next microbatch; none after the last.
  [[nodiscard]] std::optional<Microbatch> next();

  /// The number in its step, from 0, of the microbatch that next() gave last, and its samples.
  [[nodiscard]] std::int64_t microbatch() const noexcept { return count_ - left_ - 1; }
  [[nodiscard]] BatchSamples samples() { return samples_of(microbatch()); }

  /// For a step in which `what` ("the loss") is not finite: if one of this replica's samples is not
  /// either, a DataError that names it, or a warning, once, where the config lets such steps pass.
  void check_samples(const std::string& what, std::int64_t step);

 private:
  [[nodiscard]] std::int64_t epoch_of(std::int64_t position) const {
    return sampler_.start_of_step(position) / train_.size();
  }
  [[nodiscard]] BatchSamples samples_of(std::int64_t microbatch);
  // The loader's next batch, which is this microbatch's.
  [[nodiscard]] Batch load(std::int64_t microbatch);

  const Config& config_;
  const Dataset& train_;
  const Loss& loss_;
  std::int64_t replica_;
  std::int64_t count_;  // of microbatches in a step
  Sampler sampler_;
  Loader loader_;
  std::deque<Microbatch> coming_;  // asked of the loader: first those of this step
  std::int64_t position_ = 0;      // of this step
  std::int64_t left_ = 0;          // of its microbatches
  double step_weight_ = 0;         // of all replicas' losses; 0: nothing counts
  bool are_samples_told_ = false;  // that one is not finite
};

}  // namespace lockstep
