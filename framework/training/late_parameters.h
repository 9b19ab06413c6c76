#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/collectives/axis_queue.h"
#include "framework/training/block.h"
#include "framework/training/flat_parameters.h"
#include "framework/training/module_parameters.h"

namespace lockstep::training {

/// Publishes updates of Blocks' parameters while the next forward runs: buckets travel in the
/// reverse order of the backward, and a Block waits for its own ones when it runs. Parameters that
/// have not been waited for are on the meta device. Buckets with parameters of no Block do not come
/// late.
class LateParameters final : public BlockRunner {
 public:
  /// `module` has the parameters that `parameters` keeps; no bucket is cut, and `queue` overlaps.
  LateParameters(const ModuleParameters& module, FlatParameters& parameters,
                 collectives::AxisQueue& queue);

  /// As FlatParameters::publish(), late.
  void publish() { parameters_.publish(is_late_, queue_); }
  /// Waits for the block's parameters, and runs it.
  at::Tensor run(Block& block, const at::Tensor& input, const BlockForward& forward) override;
  /// Waits until all are there. All replicas together.
  void wait_for_all();

 private:
  FlatParameters& parameters_;
  collectives::AxisQueue& queue_;
  std::vector<bool> is_late_;  // by bucket
  std::map<const Block*, std::vector<std::size_t>> buckets_of_;
};

}  // namespace lockstep::training
