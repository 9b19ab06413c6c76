#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/axes/axis_names.h"

namespace lockstep {

/// Which parameters the losses of a step do not depend on. Replica 0 says it once of each in the
/// log.
class UnusedParameters {
 public:
  /// After a microbatch's backward: those of these `indices` had no gradient.
  void add(const std::vector<std::size_t>& indices);
  /// Whether this replica has any in this step; one without a loss has all.
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

}  // namespace lockstep
