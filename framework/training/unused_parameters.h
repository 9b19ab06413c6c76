#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/axes/axis_names.h"

namespace lockstep {

/// Says once of each parameter in the log that no gradient of a step was its own.
class UnusedParameters {
 public:
  /// After a microbatch's backward: those of these `indices` had none.
  void add(const std::vector<std::size_t>& indices);
  /// After the backward of step `step`, whose parameters are called `names`. In the first one all
  /// replicas together, and replica 0 says it for all; later each says what is new to it.
  void end_step(const std::vector<std::string>& names, std::int64_t step,
                const AxisNames& axis_name);

 private:
  void tell_for_all(const std::vector<std::string>& names, const AxisNames& axis_name);

  std::optional<std::set<std::size_t>> unused_;  // in this step's microbatches so far
  std::set<std::size_t> told_;
  bool is_first_ = true;
};

}  // namespace lockstep
