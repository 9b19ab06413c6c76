#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::plan {

/// Gradients that are reduced in one call, and their parameters. Seconds are of a replica that
/// waits for nobody.
struct BucketWork {
  std::size_t gradient_bytes = 0;   ///< that travel
  std::size_t parameter_bytes = 0;  ///< likewise, after the update
  double ready = 0;                 ///< when its last gradient is there, since the backward began
  double needed = 0;                ///< when its first parameter is used, since the forward began
  /// Its parameters may come while the next forward runs: they are all in Blocks.
  bool may_be_late = false;
  /// Its parameters are cut, and gathered for forward and backward: it is a Block's, at stage 3.
  bool is_cut = false;
};

/// What a replica computes in a step.
struct StepWork {
  double data = 0;      ///< seconds: a microbatch is made
  double forward = 0;   ///< of a microbatch
  double backward = 0;  ///< likewise, until its last gradient is there
  double rest = 0;      ///< likewise, of the backward beyond that
  double update = 0;    ///< of its part of the parameters
  std::int64_t microbatches = 1;
  bool reduces_every_microbatch = false;
  std::vector<BucketWork> buckets{};  ///< in the order in which they are reduced

  [[nodiscard]] double computing() const {
    return static_cast<double>(microbatches) * (data + forward + backward + rest) + update;
  }
};

/// How long its calls take.
struct StepCalls {
  std::function<double(std::size_t bytes)> reduce{};  ///< of a bucket's gradients
  std::function<double(std::size_t bytes)> gather{};  ///< of a bucket's parameters; none at stage 0
  double votes = 0;     ///< what all replicas tell each other in each step
  double per_call = 0;  ///< beside its messages, of a call that goes on beside the computing
  bool overlaps = true;
};

/// A step in the midst of a run.
struct StepTime {
  double seconds = 0;
  double exposed = 0;        ///< of these, those in which a replica waits for calls
  double communication = 0;  ///< seconds of all calls, hidden ones too
};

/// How long a step takes, as ZeroTrainer does it where replicas are on several hosts (its stages,
/// AxisQueue, BlockGathering): calls of reductions begin when their gradients are there, one after
/// another; what parameters a forward needs it waits for. Calls share one link.
[[nodiscard]] StepTime step_time(const StepWork& work, const StepCalls& calls);

}  // namespace lockstep::plan
