#include "framework/training/frozen_parameters.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "framework/base/range.h"
#include "framework/collectives/axis_index.h"
#include "framework/training/buffer_plan.h"

namespace lockstep::training {
namespace {

bool is_half(const at::Tensor& tensor) {
  return master_dtype(tensor.scalar_type()) != tensor.scalar_type();
}

}  // namespace

at::Tensor FrozenParameters::own_part(const at::Tensor& tensor) const {
  const Range own = shard(tensor.numel(), axis_size(axis_), axis_index(axis_));
  return tensor.detach().contiguous().view({-1}).narrow(0, own.offset, own.size);
}

void FrozenParameters::keep(const std::string& name, const at::Tensor& values) {
  const auto found = std::ranges::find(parameters_.all_names, name);
  const auto index = static_cast<std::size_t>(found - parameters_.all_names.begin());
  if (is_half(parameters_.all[index])) {
    masters_[index] = own_part(values).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }
}

void FrozenParameters::archive_state(const StateArchive& archive) {
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (!parameters_.is_frozen[i]) continue;
    const at::Tensor& parameter = parameters_.all[i];
    const std::string name = kParameters + parameters_.all_names[i];
    if (!is_half(parameter)) {
      archive.alike(name, parameter, axis_);
    } else if (archive.restores()) {
      const at::Tensor values = at::empty(parameter.sizes(), at::kFloat);
      if (!archive.part({name, parameter.sizes().vec(), 0, values.view({-1})})) continue;
      parameter.copy_(values);
      masters_[i] = own_part(values).clone();
    } else {
      const at::Tensor part = own_part(parameter);
      const bool is_kept =
          masters_[i].defined() && masters_[i].to(parameter.scalar_type()).equal(part);
      const Range own = shard(parameter.numel(), axis_size(axis_), axis_index(axis_));
      archive.part(
          {name, parameter.sizes().vec(), own.offset, is_kept ? masters_[i] : part.to(at::kFloat)});
    }
  }
}

std::int64_t FrozenParameters::bytes_of_part(const at::Tensor& parameter, std::int64_t replicas,
                                             std::int64_t replica) {
  return shard(parameter.numel(), replicas, replica).size *
         std::max(static_cast<std::int64_t>(sizeof(float)),
                  static_cast<std::int64_t>(parameter.itemsize()));
}

}  // namespace lockstep::training
