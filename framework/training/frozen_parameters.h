#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/training/bucket_sizes.h"
#include "framework/training/module_parameters.h"
#include "framework/training/state.h"

namespace lockstep::training {

/// A module's parameters that require no gradient, as a checkpoint has them: those of half types as
/// float32 values, which the module has rounded. Each replica keeps its shard() of these.
class FrozenParameters {
 public:
  /// `parameters` must live as long.
  FrozenParameters(const ModuleParameters& parameters, AxisNames axis_name)
      : parameters_(parameters), axis_(std::move(axis_name)), masters_(parameters.all.size()) {}

  /// Keeps the own part of a parameter's values, whole, from before they are rounded. Of other than
  /// half types there is nothing to keep.
  void keep(const std::string& name, const at::Tensor& values);

  /// Values that the program has replaced are saved as they are. While they are restored, one
  /// parameter at a time is whole in float32.
  void archive_state(const StateArchive& archive);

  /// Bytes of the float32 values.
  [[nodiscard]] std::int64_t bytes() const { return total_bytes(masters_); }
  /// Predicts the bytes of a parameter that a replica saves: half types in float32.
  [[nodiscard]] static std::int64_t bytes_of_part(const at::Tensor& parameter,
                                                  std::int64_t replicas, std::int64_t replica);

 private:
  [[nodiscard]] at::Tensor own_part(const at::Tensor& tensor) const;

  const ModuleParameters& parameters_;
  AxisNames axis_;
  std::vector<at::Tensor> masters_;  // by parameter: the own part, where it is kept
};

}  // namespace lockstep::training
