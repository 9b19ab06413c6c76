#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/base/random.h"
#include "tests/collectives/property_cases.h"

namespace lockstep::testing {

/// A training step made of random operators one after another over all axes of a world, with its
/// gradients. It must give the same bits whoever runs the replicas: that is its only reference.
class Program {
 public:
  using Parameters = std::map<std::string, at::Tensor>;
  using Result = std::tuple<at::Tensor, Parameters>;

  Program(const Key& key, const World& world);

  [[nodiscard]] const Parameters& parameters() const noexcept { return parameters_; }
  /// The samples of all replicas, (replicas, replicas, 3).
  [[nodiscard]] const at::Tensor& samples() const noexcept { return samples_; }

  /// A replica's loss.
  [[nodiscard]] at::Tensor loss(const Parameters& parameters, const at::Tensor& sample) const;
  /// The loss and its gradients.
  [[nodiscard]] Result step(const Parameters& parameters, const at::Tensor& sample) const;
  /// A digest of the step of replica `replica`.
  [[nodiscard]] std::uint64_t run(std::int64_t replica) const;

 private:
  [[nodiscard]] at::Tensor apply(std::int64_t operation, const at::Tensor& x) const;

  std::int64_t replicas_;
  AxisNames axes_;
  std::vector<std::int64_t> operations_;
  std::vector<std::int64_t> order_;  // a permutation of the replicas
  Parameters parameters_;
  at::Tensor samples_;
};

}  // namespace lockstep::testing
