#include "framework/training/memory_prediction.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include <torch/nn/module.h>

#include "framework/base/shard.h"
#include "framework/collectives/axis_queue.h"
#include "framework/training/bucket_sizes.h"
#include "framework/training/deferred_parameters.h"
#include "framework/training/frozen_parameters.h"
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
          .checkpoint = replicas * use.checkpoint,
          .initialization = replicas * use.initialization,
          .shared_parameters = use.shared_parameters};
}

bool cuts_parameters(const ZeroOptions& options, const ReplicaPlacement& placement) {
  return training::cuts_parameters(options.stage, [&] { return placement.shares_memory; });
}

std::int64_t workers_of(const ReplicaPlacement& placement) {
  return placement.workers == 0 ? placement.replicas : placement.workers;
}

bool overlaps(const ZeroOptions& options, const ReplicaPlacement& placement) {
  return collectives::AxisQueue::would_overlap(options.overlap != Overlap::off,
                                               !placement.shares_memory);
}

tree::FlatLayout predicted_layout(const training::ModuleParameters& parameters,
                                  const ZeroOptions& options, const ReplicaPlacement& placement) {
  std::vector<std::size_t> order(parameters.tensors.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  const auto link = overlaps(options, placement) ? std::optional(placement.link) : std::nullopt;
  const tree::BucketSizes sizes = training::bucket_sizes(
      options.bucket_mb, training::bytes_of(parameters.tensors), placement.replicas, link);
  return training::flat_layout(parameters, order, sizes, placement.replicas,
                               cuts_parameters(options, placement));
}

// What a replica saves of tensors that all replicas hold whole.
std::int64_t bytes_of_shards(const std::vector<at::Tensor>& tensors, std::int64_t replicas,
                             std::int64_t replica) {
  std::int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) {
    sum += shard(tensor.numel(), replicas, replica).size *
           static_cast<std::int64_t>(tensor.itemsize());
  }
  return sum;
}

Shard replicas_here(const ReplicaPlacement& placement) {
  return placement.here.size > 0 ? placement.here : Shard{0, placement.replicas};
}

}  // namespace

HostMemoryUse predicted_memory(torch::nn::Module& module, const ZeroOptions& options,
                               const ReplicaPlacement& placement) {
  check_options(options);
  const training::ModuleParameters parameters = training::module_parameters(module);
  const bool cuts = cuts_parameters(options, placement);
  const std::int64_t workers = workers_of(placement);
  const tree::FlatLayout layout = predicted_layout(parameters, options, placement);
  const bool take_turns = workers < placement.replicas;
  const bool is_overlapped = overlaps(options, placement);
  const training::FlatGradientOptions gradients = training::gradient_options(
      options, layout, is_overlapped, take_turns, placement.shares_memory);

  MemoryUse use = training::FlatGradients::predicted_use(layout, gradients, is_overlapped);
  use.parameters = training::FlatParameters::predicted_bytes(layout);
  const bool updates_all = training::FlatParameters::updates_all(
      training::parameter_updates(options.stage), placement.shares_memory);
  use.optimizer_state =
      training::ShardedUpdate::predicted_bytes(options.optimizer, layout, updates_all);
  if (placement.shares_memory) use.shared_parameters = use.parameters;
  if (cuts) use.communication += training::FlatParameters::predicted_gathered(layout);
  use.initialization = training::DeferredParameters::predicted_bytes(parameters);
  const Shard here = replicas_here(placement);
  const std::int64_t workers_here = placement.here.size > 0 ? placement.workers_here : workers;
  HostMemoryUse all{use, times(use, here.size)};
  for (std::int64_t replica = here.offset; replica < here.offset + here.size; ++replica) {
    const std::int64_t masters =
        training::FrozenParameters::predicted_bytes(parameters, placement.replicas, replica);
    if (replica == here.offset) all.largest.optimizer_state += masters;
    all.host.optimizer_state += masters;
  }
  all.host.initialization = workers_here * use.initialization;  // of replicas that run at once
  if (gradients.way == training::GradientWay::summed_in_turns) {
    const bool wait_in_backward = cuts && !parameters.blocks.empty();
    for (std::int64_t worker = 0; worker < workers_here; ++worker) {
      Shard its = shard(here.size, workers_here, worker);
      its.offset += here.offset;
      for (std::int64_t place = 0; place < its.size; ++place) {
        const std::int64_t bytes =
            training::WorkerGradientSums::predicted_bytes(layout, its, wait_in_backward, place);
        all.host.gradients += bytes;
        all.largest.gradients = std::max(all.largest.gradients, use.gradients + bytes);
      }
    }
  }
  return all;
}

HostMemoryUse predicted_checkpoint(torch::nn::Module& module, const ZeroOptions& options,
                                   const ReplicaPlacement& placement) {
  const training::ModuleParameters parameters = training::module_parameters(module);
  const tree::FlatLayout layout = predicted_layout(parameters, options, placement);
  const std::vector<at::Tensor> buffers = module.buffers();
  // A replica saves its own residuals.
  const std::int64_t residuals = options.compression == Compression::none
                                     ? 0
                                     : training::FlatGradients::residual_bytes(layout);
  HostMemoryUse use;
  const Shard here = replicas_here(placement);
  for (std::int64_t replica = here.offset; replica < here.offset + here.size; ++replica) {
    const std::int64_t steps = replica == 0 ? sizeof(std::int64_t) : 0;
    const std::int64_t bytes =
        training::ShardedUpdate::predicted_saved_bytes(options.optimizer, layout, replica) +
        residuals + bytes_of_shards(buffers, placement.replicas, replica) +
        training::FrozenParameters::predicted_saved_bytes(parameters, placement.replicas, replica) +
        steps;
    use.largest.checkpoint = std::max(use.largest.checkpoint, bytes);
    use.host.checkpoint += bytes;
  }
  return use;
}

}  // namespace lockstep
