#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/training/averaging_options.h"
#include "framework/training/state.h"

namespace torch::nn {
class Module;
}

namespace lockstep::training {

/// A module's buffers. All replicas of an axis start with equal ones, and every step makes them
/// equal again. If there are none, only one message is sent: the check that no replica has any.
class ModuleBuffers {
 public:
  /// Gives all replicas the buffers of replica 0. `module` may be nullptr; otherwise it must live
  /// as long as this is used. Throws ValueError for buffers that are not dense and on the CPU, or
  /// that differ in name, shape or dtype between replicas. All replicas together.
  ModuleBuffers(torch::nn::Module* module, const AxisNames& axis_name, Buffers rule);

  /// Makes the buffers equal, by the rule, including buffers registered since the last call, except
  /// those that a lockstep::BatchNorm over the same axis keeps equal. A buffer that is equal on all
  /// replicas keeps its bits. All replicas together.
  void synchronize();

  /// Remembers the buffers' values for restore_kept().
  void keep();
  /// Gives the buffers the values of the last keep(), and those registered since then equal ones.
  /// All replicas together.
  void restore_kept();

  /// Throws Error unless all replicas have equal buffers. The message names the first that differs
  /// and the replicas that differ from replica 0. All replicas together.
  void check_agreement() const;

  /// All replicas have equal buffers: each saves its part of every one.
  void archive_state(const StateArchive& archive) const { archive_state(archive, all()); }
  /// The same with the values of the last keep().
  void archive_kept(const StateArchive& archive) const { archive_state(archive, kept_); }

 private:
  struct Named {
    std::vector<std::string> names;
    std::vector<at::Tensor> tensors;
  };
  void archive_state(const StateArchive& archive, const Named& buffers) const;
  // Each once, under its first name, but for those in `seen` (by TensorImpl).
  [[nodiscard]] Named all(std::unordered_set<const void*> seen = {}) const;
  void synchronize(const std::vector<at::Tensor>& buffers, Buffers rule);

  torch::nn::Module* module_;
  AxisNames axis_;
  Buffers rule_;
  at::Tensor message_;  // kept between steps
  Named kept_;
};

}  // namespace lockstep::training
