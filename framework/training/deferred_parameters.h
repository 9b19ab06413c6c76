#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/base/non_copyable.h"
#include "framework/training/flat_parameters.h"
#include "framework/training/frozen_parameters.h"
#include "framework/training/module_parameters.h"
#include "framework/training/sharded_update.h"

namespace lockstep {

/// Puts the parameters of a module, made layer by layer, on the meta device: the deferred form that
/// ZeroOptions::initialize is for. The tensor objects stay the same. Their values go, and so does
/// their memory unless other tensors share it.
void defer(torch::nn::Module& module);

}  // namespace lockstep

namespace lockstep::training {

/// Makes a parameter's first values: ZeroOptions::initialize.
using Initialize = std::function<at::Tensor(const std::string& name)>;

/// A module's parameters that are on the meta device, until a trainer has given them values.
class DeferredParameters : private NonCopyable {
 public:
  /// Turns them into parameters on the CPU, for which lacks_memory() holds until FlatParameters or
  /// make_values() give them memory. Throws ValueError, naming the parameter, without `initialize`
  /// and where other tensors use its storage, too.
  DeferredParameters(const ModuleParameters& parameters, const Initialize& initialize);
  /// Without make_values() they are on the meta device again.
  ~DeferredParameters();

  /// Whether there are any.
  [[nodiscard]] bool any() const noexcept { return !parameters_.empty(); }
  /// Gives them values: the replica's part of those that are laid out, and frozen ones whole. One
  /// parameter at a time is whole. Throws ValueError, naming it, for values that are not as
  /// ZeroOptions says, and Error if replicas have made others. All replicas together.
  void make_values(const Initialize& initialize, ShardedUpdate& update, FlatParameters& parameters,
                   FrozenParameters& frozen, const AxisNames& axis_name);
  /// Bytes of the largest parameter that was made.
  [[nodiscard]] std::int64_t largest_bytes() const noexcept { return largest_bytes_; }

 private:
  struct Deferred {
    std::string name;
    at::Tensor parameter;
    bool is_frozen;
    at::Tensor on_meta;  // as it was
  };
  class Values;

  std::vector<Deferred> parameters_;
  std::int64_t largest_bytes_ = 0;
  bool is_made_ = false;
};

}  // namespace lockstep::training
