#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "framework/axes/axis_names.h"

namespace lockstep {

/// Says once of each parameter in the log that it had no gradient.
class UnusedParameters {
 public:
  /// `indices` of those called `names` had none in step `step`.
  void tell(const std::vector<std::size_t>& indices, const std::vector<std::string>& names,
            std::int64_t step, const AxisNames& axis_name);

 private:
  std::set<std::size_t> told_;
};

}  // namespace lockstep
