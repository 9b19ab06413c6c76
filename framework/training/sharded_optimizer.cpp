#include "framework/training/sharded_optimizer.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"
#include "framework/training/agreement.h"
#include "framework/training/module_parameters.h"
#include "framework/tree/flat_layout.h"

namespace lockstep {
namespace {

// The owner of each parameter.
std::vector<std::int64_t> owners_of(const std::vector<at::Tensor>& parameters,
                                    std::int64_t replicas) {
  std::vector<std::size_t> by_size(parameters.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) {
    return parameters[a].numel() > parameters[b].numel();
  });
  std::vector<std::int64_t> load(static_cast<std::size_t>(replicas), 0);
  std::vector<std::int64_t> owners(parameters.size());
  for (const std::size_t index : by_size) {
    const auto least = std::min_element(load.begin(), load.end());
    owners[index] = least - load.begin();
    *least += parameters[index].numel();
  }
  return owners;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(const std::vector<at::Tensor>& parameters, const Make& make,
                                   const AxisNames& axis_name)
    : axis_(axis_name) {
  const std::vector<at::Tensor> tensors = each_once(parameters);
  start_alike(tensors, axis_);
  const std::int64_t replica = axis_index(axis_);
  const auto owners = owners_of(tensors, axis_size(axis_));
  // A bucket for each owner and dtype: owners are groups, which are counted from 1.
  std::vector<std::int64_t> groups;
  for (const std::int64_t owner : owners) groups.push_back(owner + 1);
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const FlatLayout layout(flat_items(tensors, groups), order, 1, 1);
  std::vector<at::Tensor> own;
  {
    const c10::AutoGradMode no_grad(false);
    for (const FlatBucket& bucket : layout.buckets()) {
      const CommonZeros zeros = common_zeros({bucket.size}, bucket.dtype, axis_);
      is_common_ = zeros.is_common;
      for (const std::size_t item : bucket.items) {
        const at::Tensor view =
            part_of(zeros.tensor, layout.place(item).offset, tensors[item].sizes());
        if (!is_common_ || replica == 0) view.copy_(tensors[item]);
        tensors[item].set_data(view);
        if (owners[item] == replica) own.push_back(tensors[item]);
      }
      parts_.push_back({bucket.group - 1, zeros.tensor});
    }
  }
  parameters_ = tensors;
  if (is_common_) barrier(axis_);
  if (!own.empty()) optimizer_ = make(std::move(own));
}

ShardedOptimizer::~ShardedOptimizer() = default;

void ShardedOptimizer::step() {
  // Nobody reads the parameters any more: not where the gradients were averaged, but others may
  // have looked at them since.
  if (is_common_) barrier(axis_);
  if (optimizer_) optimizer_->step();
  if (is_common_) barrier(axis_);
  const c10::AutoGradMode no_grad(false);
  for (const Part& part : parts_) {
    if (!is_common_) pbroadcast_(part.values, axis_, part.owner);
  }
  // Others have written them, where autograd does not see it.
  for (const at::Tensor& parameter : parameters_) parameter.unsafeGetTensorImpl()->bump_version();
}

}  // namespace lockstep
