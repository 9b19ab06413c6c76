#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/data/dataset.h"

namespace lockstep {

/// A sample that can't be made, or has a value that is NaN or infinite.
struct DamagedSample {
  std::int64_t index = 0;
  std::string reason;  ///< the DataError's text, which names the file, or non_finite_of()
};

struct DamageSearch {
  std::int64_t threads = 1;  ///< that make samples; at least 1
  /// Called again and again, if it is there, by the thread that searches.
  std::function<void(std::int64_t done, std::int64_t samples)> progress = {};
};

/// Makes all samples once, and drops them. Calls `found` for the damaged ones, in their order. What
/// is thrown for a sample, but DataError, is thrown here. All threads have ended when it returns.
void find_damaged(const Dataset& data, const DamageSearch& search,
                  const std::function<void(const DamagedSample& damaged)>& found);

}  // namespace lockstep
