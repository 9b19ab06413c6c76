#include "framework/training/deferred_parameters.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/core/TensorBody.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <torch/nn/module.h>

#include "framework/base/errors.h"
#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/maps/tensor_memory.h"
#include "framework/training/agreement.h"
#include "framework/training/keyed_draws.h"
#include "framework/training/state.h"

namespace lockstep::training {
namespace {

// Like a tensor, on the CPU and contiguous.
at::Tensor without_memory(const at::Tensor& like) {
  const std::size_t bytes = static_cast<std::size_t>(like.numel()) * like.itemsize();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), like.dtype());
  made.unsafeGetTensorImpl()->set_sizes_contiguous(like.sizes());
  return made;
}

// `parameter` stays the same tensor for all who hold it.
void become(const at::Tensor& parameter, const at::Tensor& other) {
  parameter.unsafeGetTensorImpl()->shallow_copy_from(other.getIntrusivePtr());
}

}  // namespace
// Makes values where a shard asks for its part of them.
class DeferredParameters::Values final : public StateSource {
 public:
  Values(const std::vector<Deferred>& parameters, const Initialize& initialize)
      : parameters_(parameters), initialize_(initialize), hashes_(parameters.size(), 0) {
    for (const Deferred& each : parameters)
      index_of_.emplace(kParameters + each.name, index_of_.size());
  }

  [[nodiscard]] bool has(const std::string& name) const override {
    return index_of_.contains(name);
  }

  bool read(const StatePiece& piece) const override {
    const auto found = index_of_.find(piece.name);
    if (found == index_of_.end()) return false;
    use(found->second, [&](const at::Tensor& values) {
      piece.values.copy_(values.view({-1}).narrow(0, piece.offset, piece.values.numel()));
    });
    return true;
  }

  // Makes a parameter, whole and contiguous, for the time of `work`.
  void use(std::size_t index, const std::function<void(const at::Tensor&)>& work) const {
    {
      const at::Tensor values = made(index);
      work(values);
      made_bytes_ += values.nbytes();
    }
    // The allocator's free blocks would come to be several parameters.
    constexpr std::size_t kOften = std::size_t{1} << 20;
    if (made_bytes_ < kOften) return;
    maps::TensorMemory::release();
    made_bytes_ = 0;
  }

  // Throws Error unless the replicas that have made a parameter have made the same. All replicas
  // together.
  void check_agreement(const AxisNames& axis_name) const {
    const auto found = first_difference(hashes_, axis_name, /*zero_is_none=*/true);
    if (!found) return;
    throw Error(lockstep::str("ZeroOptions::initialize gave parameter '",
                              parameters_[found->index].name, "' other values on replica ",
                              found->replicas[0], " than on replica ", found->first,
                              ": they must depend on its name alone"));
  }

  [[nodiscard]] std::int64_t largest_bytes() const noexcept { return largest_bytes_; }

 private:
  at::Tensor made(std::size_t index) const {
    const auto& [name, parameter, is_frozen, on_meta] = parameters_[index];
    const ScopedValue no_keys(draw_keys, DrawKeys::none);
    const at::Tensor values = initialize_(name);
    const auto refuse = [&](const auto&... what) {
      throw ValueError(lockstep::str("ZeroOptions::initialize gave parameter '", name, "' ",
                                     what..., ": it must give a dense floating tensor ",
                                     parameter.sizes(), " on the CPU"));
    };
    if (!values.defined()) refuse("no values");
    if (values.sizes() != parameter.sizes() || !values.is_floating_point() ||
        values.layout() != at::kStrided || !values.device().is_cpu()) {
      refuse("values ", values.sizes(), " ", values.scalar_type(), " on ", values.device());
    }
    largest_bytes_ = std::max(largest_bytes_, static_cast<std::int64_t>(values.nbytes()));
    const at::Tensor flat = values.detach().contiguous();
    hashes_[index] = std::max<std::int64_t>(1, hash_of(flat) & INT64_MAX);
    return flat;
  }

  const std::vector<Deferred>& parameters_;
  const Initialize& initialize_;
  std::map<std::string, std::size_t> index_of_;  // by name of the state's tensor
  mutable std::vector<std::int64_t> hashes_;     // by parameter; 0: not made here
  mutable std::int64_t largest_bytes_ = 0;
  mutable std::size_t made_bytes_ = 0;  // since freed memory was released
};

DeferredParameters::DeferredParameters(const ModuleParameters& parameters,
                                       const Initialize& initialize) {
  for (std::size_t i = 0; i < parameters.all.size(); ++i) {
    const at::Tensor& parameter = parameters.all[i];
    if (!parameter.is_meta()) continue;
    const std::string& name = parameters.all_names[i];
    require(initialize != nullptr, "ZeroTrainer: parameter '", name,
            "' is on the meta device and has no values: ZeroOptions::initialize can make them");
    require(parameter.storage().use_count() == 1, "ZeroTrainer: parameter '", name,
            "' is on the meta device, and other tensors use its storage, too: they would be left "
            "behind; register one tensor under all names");
    parameters_.push_back({name, parameter, parameters.is_frozen[i], {}});
  }
  for (Deferred& each : parameters_) {
    each.on_meta = each.parameter.detach();
    become(each.parameter, without_memory(each.parameter));
  }
}

DeferredParameters::~DeferredParameters() {
  if (is_made_) return;
  for (const Deferred& each : parameters_) become(each.parameter, each.on_meta);
}

void DeferredParameters::make_values(const Initialize& initialize, ShardedUpdate& update,
                                     FlatParameters& parameters, FrozenParameters& frozen,
                                     const AxisNames& axis_name) {
  const c10::AutoGradMode no_grad(false);
  const Values values(parameters_, initialize);
  update.archive_state(StateArchive(values));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Deferred& each = parameters_[i];
    if (!each.is_frozen) continue;
    // Its own memory: initialize() may keep what it gives.
    values.use(i, [&](const at::Tensor& made) {
      frozen.keep(each.name, made);
      become(each.parameter,
             made.to(each.parameter.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
    });
  }
  values.check_agreement(axis_name);
  parameters.publish();
  largest_bytes_ = values.largest_bytes();
  for (Deferred& each : parameters_) each.on_meta.reset();
  is_made_ = true;
}

}  // namespace lockstep::training

namespace lockstep {

void defer(torch::nn::Module& module) {
  const c10::AutoGradMode no_grad(false);
  for (const at::Tensor& parameter : module.parameters()) {
    training::become(
        parameter,
        at::empty(parameter.sizes(), parameter.options().device(at::kMeta).requires_grad(false)));
  }
}

}  // namespace lockstep
