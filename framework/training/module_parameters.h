#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/environment.h"
#include "framework/tree/flat_layout.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

class Block;

/// A module's parameters, each once, under its first name.
struct ModuleParameters {
  torch::nn::Module* module = nullptr;  ///< which lives as long; nullptr: they are of a tree
  std::size_t count = 0;                ///< of its parameters, each as often as it is registered
  std::vector<std::string> all_names;
  std::vector<at::Tensor> all;
  std::vector<bool> is_frozen;                ///< by tensor of `all`: requires no gradient
  std::map<std::string, at::Tensor> by_name;  ///< the same, under all of their names
  // Of these, those that require a gradient:
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  std::vector<std::int64_t> block_of;  ///< by tensor: 1 for those of blocks[0], …; 0: of none
  std::vector<Block*> blocks;          ///< that have parameters that require a gradient
};

/// Throws ValueError for one that requires a gradient and is not a dense floating tensor on the
/// CPU, for a module without any, for a Block inside another, and for an Embedding with max_norm. A
/// parameter that two blocks share is of none.
[[nodiscard]] ModuleParameters module_parameters(torch::nn::Module& module);

/// Throws ValueError, naming it, for a parameter that is not as above.
void check_parameter(const std::string& name, const at::Tensor& parameter);

/// Throws ValueError, naming it, for the gradient of parameter `name` unless it is dense.
void check_dense(const at::Tensor& gradient, const std::string& name, const AxisCall& call);

/// Throws ValueError, naming it, for a parameter that requires a gradient now and did not when
/// `parameters` were taken from their module, or was not registered then.
void check_still_all(const ModuleParameters& parameters, const AxisCall& call);

/// Throws ValueError unless `loss` is undefined, or one element that depends on parameters.
void check_loss(const at::Tensor& loss, const AxisCall& call);

/// The tensors that require a gradient, each once and checked as above; their names are numbers.
[[nodiscard]] ModuleParameters leaf_parameters(const std::vector<at::Tensor>& tensors);

/// What is to be laid out, with the tensors' groups.
[[nodiscard]] std::vector<FlatItem> flat_items(const std::vector<at::Tensor>& tensors,
                                               const std::vector<std::int64_t>& groups);

/// Those that require a gradient, laid out in `order`. Where their blocks are `cut`, each is a
/// group, and what is in none comes behind them.
[[nodiscard]] FlatLayout flat_layout(const ModuleParameters& parameters,
                                     std::vector<std::size_t> order, double bucket_mb,
                                     std::int64_t shards, bool cuts = false);

}  // namespace lockstep
