#include "framework/training/memory_prediction.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "framework/base/shard.h"
#include "framework/collectives/axis_queue.h"
#include "framework/training/module_parameters.h"
#include "framework/training/sharded_update.h"
#include "framework/training/worker_gradient_sums.h"
#include "framework/training/zero_stages.h"

namespace lockstep {
namespace {

// What so many replicas take that are alike.
MemoryUse times(const MemoryUse& use, std::int64_t replicas) {
  return {.parameters = replicas * (use.parameters - use.shared_parameters) + use.shared_parameters,
          .gradients = replicas * use.gradients,
          .optimizer_state = replicas * use.optimizer_state,
          .communication = replicas * use.communication,
          .shared_parameters = use.shared_parameters};
}

}  // namespace

HostMemoryUse predicted_memory(torch::nn::Module& module, const ZeroOptions& options,
                               const ReplicaPlacement& placement) {
  check_options(options);
  const training::ModuleParameters parameters = training::module_parameters(module);
  const auto is_common = [&] { return placement.shares_memory; };
  const bool cuts = training::cuts_parameters(options.stage, is_common);
  const std::int64_t workers = placement.workers == 0 ? placement.replicas : placement.workers;
  std::vector<std::size_t> order(parameters.tensors.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  const tree::FlatLayout layout =
      training::flat_layout(parameters, order, options.bucket_mb, placement.replicas, cuts);
  const bool take_turns = workers < placement.replicas;
  const bool overlaps = collectives::AxisQueue::would_overlap(options.overlap != Overlap::off,
                                                              !placement.shares_memory, take_turns);
  const training::FlatGradientOptions gradients =
      training::gradient_options(options, layout, overlaps, take_turns, placement.shares_memory);

  MemoryUse use = training::FlatGradients::predicted_use(layout, gradients, overlaps);
  use.parameters = training::FlatParameters::predicted_bytes(layout);
  const bool updates_all = training::FlatParameters::updates_all(
      training::parameter_updates(options.stage), placement.shares_memory);
  use.optimizer_state =
      training::ShardedUpdate::predicted_bytes(options.optimizer, layout, updates_all);
  if (placement.shares_memory) use.shared_parameters = use.parameters;
  if (cuts) use.communication += training::FlatParameters::predicted_gathered(layout);
  HostMemoryUse all{use, times(use, placement.replicas)};
  if (gradients.way == training::GradientWay::summed_in_turns) {
    const bool wait_in_backward = cuts && !parameters.blocks.empty();
    for (std::int64_t worker = 0; worker < workers; ++worker) {
      const Shard here = shard(placement.replicas, workers, worker);
      for (std::int64_t place = 0; place < here.size; ++place) {
        const std::int64_t bytes =
            training::WorkerGradientSums::predicted_bytes(layout, here, wait_in_backward, place);
        all.host.gradients += bytes;
        all.largest.gradients = std::max(all.largest.gradients, use.gradients + bytes);
      }
    }
  }
  return all;
}

}  // namespace lockstep
