#include "framework/training/memory_prediction.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include <torch/nn/module.h>

#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_queue.h"
#include "framework/training/buffer_plan.h"
#include "framework/training/frozen_parameters.h"
#include "framework/training/module_parameters.h"
#include "framework/training/worker_gradient_sums.h"

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

training::BufferPlan plan_of(std::int64_t replica, const training::ModuleParameters& parameters,
                             const ZeroOptions& options, const ReplicaPlacement& placement) {
  const bool all_in_common = is_common(placement);
  const bool overlaps =
      collectives::AxisQueue::would_overlap(options.overlap != Overlap::off, !all_in_common);
  std::vector<std::size_t> order(parameters.tensors.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  const tree::FlatLayout layout = training::flat_layout(
      parameters, order, options.bucket_mb, overlaps ? std::optional(placement.link) : std::nullopt,
      placement.replicas,
      /*cuts=*/options.stage == 3 && !all_in_common);
  return training::plan_of_stage(options, layout,
                                 {.replica = replica,
                                  .overlaps = overlaps,
                                  .takes_turns = workers_of(placement) < placement.replicas,
                                  .is_common = all_in_common});
}

// What all replicas take must fit in 63 bits: no sum below overflows.
void check_size(const training::ModuleParameters& parameters) {
  constexpr std::int64_t kMost = std::int64_t{1} << 46;
  const std::int64_t count = sum_of(parameters.tensors, &at::Tensor::numel);
  require(count <= kMost, "the model's ", counted(count, "parameter"), " alone take ",
          text_of_bytes(count * 4), " a copy, and this host has ",
          text_of_bytes(available_memory()), " of memory left");
}

}  // namespace

HostMemoryUse predicted_memory(torch::nn::Module& module, const ZeroOptions& options,
                               const ReplicaPlacement& placement) {
  check_options(options);
  const training::ModuleParameters parameters = training::module_parameters(module);
  check_size(parameters);
  const std::vector<Range> workers = workers_here(placement);
  // Each set of them holds a copy of the parameters.
  const std::vector<Range> sets =
      placement.shares_memory ? std::vector{replicas_here(placement)} : workers;
  HostMemoryUse all;
  for (const Range& set : sets) {
    const std::vector<std::int64_t> holders = consecutive(set.offset, set.size);
    for (const std::int64_t replica : holders) {
      const training::BufferPlan plan = plan_of(replica, parameters, options, placement);
      MemoryUse use = plan.use(holders);
      use.communication += plan.gathered_bytes();
      for (std::size_t i = 0; i < parameters.all.size(); ++i) {
        const at::Tensor& parameter = parameters.all[i];
        if (!parameter.is_meta()) continue;
        use.initialization = std::max(use.initialization,
                                      training::FrozenParameters::bytes_of_part(parameter, 1, 0));
        if (parameters.is_frozen[i] &&
            training::master_dtype(parameter.scalar_type()) != parameter.scalar_type()) {
          use.optimizer_state +=
              training::FrozenParameters::bytes_of_part(parameter, placement.replicas, replica);
        }
      }
      if (plan.options.way == training::GradientWay::summed_in_turns) {
        const auto worker =
            std::ranges::find_if(workers, [&](const Range& its) { return replica < its.end(); });
        const std::int64_t made =
            training::WorkerGradientSums::sets_of(*worker, /*wait=*/plan.layout.has_groups());
        use.gradients +=
            shard(made * plan.set_bytes(), worker->size, replica - worker->offset).size;
      }
      // What they hold together counts once. They run at once, a worker's replicas in turn.
      const bool is_first = replica == set.offset;
      all.host.parameters += use.parameters - (is_first ? 0 : use.shared_parameters);
      all.host.shared_parameters += is_first ? use.shared_parameters : 0;
      all.host.gradients += use.gradients;
      all.host.optimizer_state += use.optimizer_state;
      all.host.communication += use.communication;
      all.host.initialization = std::ssize(workers) * use.initialization;
      for (const auto what :
           {&MemoryUse::parameters, &MemoryUse::gradients, &MemoryUse::optimizer_state,
            &MemoryUse::communication, &MemoryUse::initialization, &MemoryUse::shared_parameters,
            &MemoryUse::holders}) {
        all.largest.*what = std::max(all.largest.*what, use.*what);
      }
    }
  }
  return all;
}

HostMemoryUse predicted_checkpoint(torch::nn::Module& module, const ZeroOptions& options,
                                   const ReplicaPlacement& placement) {
  const training::ModuleParameters parameters = training::module_parameters(module);
  HostMemoryUse use;
  const Range here = replicas_here(placement);
  for (std::int64_t replica = here.offset; replica < here.end(); ++replica) {
    std::int64_t bytes = plan_of(replica, parameters, options, placement).saved_bytes();
    for (const at::Tensor& buffer : module.buffers()) {
      bytes += shard(buffer.numel(), placement.replicas, replica).size *
               static_cast<std::int64_t>(buffer.itemsize());
    }
    for (std::size_t i = 0; i < parameters.all.size(); ++i) {
      if (!parameters.is_frozen[i]) continue;
      bytes +=
          training::FrozenParameters::bytes_of_part(parameters.all[i], placement.replicas, replica);
    }
    // Steps, and updates of averages that warm up.
    const std::int64_t numbers = options.ema_decay && options.ema_warmup ? 2 : 1;
    if (replica == 0) bytes += numbers * static_cast<std::int64_t>(sizeof(std::int64_t));
    use.largest.checkpoint = std::max(use.largest.checkpoint, bytes);
    use.host.checkpoint += bytes;
  }
  return use;
}

}  // namespace lockstep
