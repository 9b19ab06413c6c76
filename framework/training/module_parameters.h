#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/environment.h"
#include "framework/base/non_copyable.h"
#include "framework/training/averaging_options.h"
#include "framework/tree/flat_layout.h"

namespace torch::nn {
class Module;
}

namespace lockstep {
class Block;
}

namespace lockstep::training {

/// A module's parameters, each once, under its first name.
struct ModuleParameters {
  torch::nn::Module* module = nullptr;  ///< must outlive this; nullptr for a tree's leaves
  std::size_t count = 0;                ///< of its parameters, each as often as it is registered
  std::vector<std::string> all_names;
  std::vector<at::Tensor> all;
  std::vector<bool> is_frozen;                ///< by tensor of `all`: requires no gradient
  std::map<std::string, at::Tensor> by_name;  ///< the same, under all of their names
  // Those of `all` that require a gradient:
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  std::vector<std::int64_t> block_of;  ///< by tensor: 1 for those of blocks[0], …; 0: of none
  std::vector<Block*> blocks;          ///< that have parameters that require a gradient
};

/// A parameter that two blocks share belongs to no block. Throws ValueError as check_parameter()
/// for those that require a gradient, for a module without any, for a Block inside another, and for
/// an Embedding with max_norm.
[[nodiscard]] ModuleParameters module_parameters(torch::nn::Module& module);

/// Throws ValueError, naming it, unless a parameter is a dense floating leaf on the CPU, or on the
/// meta device.
void check_parameter(const std::string& name, const at::Tensor& parameter);

/// Throws ValueError, naming it, for a parameter on the meta device: `owner` can't make values.
void check_values(const char* owner, const ModuleParameters& parameters);

/// Whether a tensor on the CPU has no memory for its elements: DeferredParameters made it so.
[[nodiscard]] bool lacks_memory(const at::Tensor& tensor);

/// Throws ValueError, naming it, for a parameter that requires a gradient now, but did not or was
/// not registered when `parameters` were taken from their module.
void check_still_all(const ModuleParameters& parameters, const AxisCall& call);

/// Throws ValueError unless `loss` is undefined, or one element that depends on parameters.
void check_loss(const at::Tensor& loss, const AxisCall& call);

/// The tensors that require a gradient, each once and checked as above; their names are numbers.
[[nodiscard]] ModuleParameters leaf_parameters(const std::vector<at::Tensor>& tensors);

/// The tensors as items to be laid out, with their groups.
[[nodiscard]] std::vector<tree::FlatItem> flat_items(const std::vector<at::Tensor>& tensors,
                                                     const std::vector<std::int64_t>& groups);

/// Lays out the parameters that require a gradient, in `order`, in buckets of bucket_sizes(). With
/// `cuts` each block is a group, and parameters of no block come behind them.
[[nodiscard]] tree::FlatLayout flat_layout(const ModuleParameters& parameters,
                                           std::vector<std::size_t> order,
                                           std::optional<double> bucket_mb,
                                           const std::optional<LinkCost>& link, std::int64_t shards,
                                           bool cuts = false);

/// What a trainer can have of a parameter.
enum class ParameterClaim { values, gradients };

/// The parameters that a trainer has while it lives. No two trainers of a program can keep the
/// values of one parameter, or average its gradients.
class ParameterClaims : private NonCopyable {
 public:
  /// Messages call the trainer `owner`. Throws ValueError, naming the parameter, if a living
  /// trainer has one of these of it.
  ParameterClaims(const char* owner, const std::vector<ParameterClaim>& claims,
                  const std::vector<std::string>& names, std::vector<at::Tensor> parameters);
  ~ParameterClaims();

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<std::pair<const void*, ParameterClaim>> claimed_;  // by the tensors' addresses
};

/// Whether a living trainer has this of the parameter.
[[nodiscard]] bool is_claimed(const at::Tensor& parameter, ParameterClaim claim);

/// Which parameters the losses of a step do not depend on; replica 0 logs each once.
class UnusedParameters {
 public:
  /// After a microbatch's backward: the parameters `indices` had no gradient.
  void add(const std::vector<std::size_t>& indices);
  /// Whether this replica has unused parameters in this step. Without a loss, all are unused.
  [[nodiscard]] bool any() const { return !unused_ || !unused_->empty(); }
  /// By parameter, whether no replica's losses of this step depend on it. All replicas together.
  [[nodiscard]] std::vector<bool> agree(const std::vector<std::string>& names,
                                        const AxisNames& axis_name);
  /// The next step begins.
  void end_step() { unused_.reset(); }

 private:
  std::optional<std::set<std::size_t>> unused_;  // in this step's microbatches so far
  std::set<std::size_t> told_;
};

}  // namespace lockstep::training
