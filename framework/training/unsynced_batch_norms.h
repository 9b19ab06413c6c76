#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/axes/environment.h"

namespace torch::nn {
class Module;
}

namespace lockstep::training {

/// The BatchNorms of LibTorch's own in a module: in training mode each normalizes by its replica's
/// samples alone, so the result depends on how many replicas there are.
class UnsyncedBatchNorms {
 public:
  /// Those of `module`, or none for nullptr, and none if `are_wanted` or the axis has one replica.
  UnsyncedBatchNorms(torch::nn::Module* module, const AxisNames& axis_name, bool are_wanted);

  /// Throws ValueError, naming them, if some are in training mode.
  void check(const AxisCall& call) const;

 private:
  std::vector<std::pair<std::string, std::shared_ptr<const torch::nn::Module>>> found_;
};

}  // namespace lockstep::training
