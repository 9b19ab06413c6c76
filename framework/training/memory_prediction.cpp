#include "framework/training/memory_prediction.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include <torch/nn/module.h>

#include "framework/base/memory.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_queue.h"
#include "framework/training/averaged_parameters.h"
#include "framework/training/bucket_sizes.h"
#include "framework/training/deferred_parameters.h"
#include "framework/training/frozen_parameters.h"
#include "framework/training/module_parameters.h"
#include "framework/training/sharded_update.h"
#include "framework/training/worker_gradient_sums.h"
#include "framework/training/zero_stages.h"

namespace lockstep {
namespace {

Range replicas_here(const ReplicaPlacement& placement) {
  return placement.here.size > 0 ? placement.here : Range{0, placement.replicas};
}

std::int64_t workers_of(const ReplicaPlacement& placement) {
  return placement.workers == 0 ? placement.replicas : placement.workers;
}

// The replicas of each worker of this host.
std::vector<Range> workers_here(const ReplicaPlacement& placement) {
  const Range here = replicas_here(placement);
  const std::int64_t count =
      placement.here.size > 0 ? placement.workers_here : workers_of(placement);
  std::vector<Range> workers;
  for (std::int64_t worker = 0; worker < count; ++worker) {
    const Range its = shard(here.size, count, worker);
    workers.push_back({here.offset + its.offset, its.size});
  }
  return workers;
}

// Whether all replicas hold the parameters once. Otherwise bytes travel over a network.
bool is_common(const ReplicaPlacement& placement) {
  return placement.shares_memory && replicas_here(placement).size == placement.replicas;
}

bool cuts_parameters(const ZeroOptions& options, const ReplicaPlacement& placement) {
  return training::cuts_parameters(options.stage, [&] { return is_common(placement); });
}

bool overlaps(const ZeroOptions& options, const ReplicaPlacement& placement) {
  return collectives::AxisQueue::would_overlap(options.overlap != Overlap::off,
                                               !is_common(placement));
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

// What all replicas take must fit in 63 bits: no sum below overflows.
void check_size(const training::ModuleParameters& parameters) {
  constexpr std::int64_t kMost = std::int64_t{1} << 46;
  std::int64_t count = 0;
  for (const at::Tensor& tensor : parameters.tensors) count += tensor.numel();
  require(count <= kMost, "the model's ", counted(count, "parameter"), " alone take ",
          text_of_bytes(count * 4), " a copy, and this host has ",
          text_of_bytes(static_cast<std::int64_t>(available_memory())), " of memory left");
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

}  // namespace

HostMemoryUse predicted_memory(torch::nn::Module& module, const ZeroOptions& options,
                               const ReplicaPlacement& placement) {
  check_options(options);
  const training::ModuleParameters parameters = training::module_parameters(module);
  check_size(parameters);
  const bool cuts = cuts_parameters(options, placement);
  const tree::FlatLayout layout = predicted_layout(parameters, options, placement);
  const bool take_turns = workers_of(placement) < placement.replicas;
  const bool is_overlapped = overlaps(options, placement);
  const training::FlatGradientOptions gradients =
      training::gradient_options(options, layout, is_overlapped, take_turns, is_common(placement));

  MemoryUse each = training::FlatGradients::predicted_use(layout, gradients, is_overlapped);
  each.parameters = training::FlatParameters::predicted_bytes(layout);
  if (cuts) each.communication += training::FlatParameters::predicted_gathered(layout);
  each.initialization = training::DeferredParameters::predicted_bytes(parameters);
  const bool sums_in_turns = gradients.way == training::GradientWay::summed_in_turns;
  const bool wait_in_backward = cuts && !parameters.blocks.empty();

  const std::vector<Range> workers = workers_here(placement);
  // Each set of them holds a copy of the parameters.
  const std::vector<Range> sets =
      placement.shares_memory ? std::vector{replicas_here(placement)} : workers;
  HostMemoryUse all;
  for (const Range& set : sets) {
    const std::vector<std::int64_t> holders = consecutive(set.offset, set.size);
    MemoryUse use = each;
    use.holders = set.size;
    use.shared_parameters =
        set.size > 1 ? training::FlatParameters::predicted_uncut_bytes(layout) : 0;
    all.host.parameters += use.shared_parameters;
    all.host.shared_parameters += use.shared_parameters;
    for (const std::int64_t replica : holders) {
      use.optimizer_state =
          training::ShardedUpdate::predicted_bytes(options.optimizer, layout,
                                                   training::parameter_updates(options.stage),
                                                   replica, holders) +
          (options.ema_decay ? training::AveragedParameters::predicted_bytes(layout, replica) : 0) +
          training::FrozenParameters::predicted_bytes(parameters, placement.replicas, replica);
      const auto worker =
          std::ranges::find_if(workers, [&](const Range& its) { return replica < its.end(); });
      use.gradients = each.gradients;
      if (sums_in_turns) {
        use.gradients += training::WorkerGradientSums::predicted_bytes(
            layout, *worker, wait_in_backward, replica - worker->offset);
      }
      all.host.parameters += use.parameters - use.shared_parameters;
      all.host.gradients += use.gradients;
      all.host.optimizer_state += use.optimizer_state;
      all.host.communication += use.communication;
      for (const auto what :
           {&MemoryUse::parameters, &MemoryUse::gradients, &MemoryUse::optimizer_state,
            &MemoryUse::communication, &MemoryUse::initialization, &MemoryUse::shared_parameters,
            &MemoryUse::holders}) {
        all.largest.*what = std::max(all.largest.*what, use.*what);
      }
    }
  }
  // Of replicas that run at once.
  all.host.initialization = std::ssize(workers) * each.initialization;
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
  const Range here = replicas_here(placement);
  for (std::int64_t replica = here.offset; replica < here.end(); ++replica) {
    // Steps, and updates of averages that warm up.
    const std::int64_t numbers = options.ema_decay && options.ema_warmup.value_or(true) ? 2 : 1;
    const auto number_bytes = static_cast<std::int64_t>(sizeof(std::int64_t));
    const std::int64_t steps = replica == 0 ? numbers * number_bytes : 0;
    const std::int64_t bytes =
        training::ShardedUpdate::predicted_saved_bytes(options.optimizer, layout, replica) +
        (options.ema_decay ? training::AveragedParameters::predicted_saved_bytes(layout, replica)
                           : 0) +
        residuals + bytes_of_shards(buffers, placement.replicas, replica) +
        training::FrozenParameters::predicted_saved_bytes(parameters, placement.replicas, replica) +
        steps;
    use.largest.checkpoint = std::max(use.largest.checkpoint, bytes);
    use.host.checkpoint += bytes;
  }
  return use;
}

}  // namespace lockstep
