#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "framework/data/dataset.h"

namespace lockstep {

/// A sample that can't be made, has a value that is NaN or infinite, or a target that is no class.
struct DamagedSample {
  std::int64_t index = 0;
  std::string
      reason;  ///< the DataError's text, which names the file, or what is wrong with a value
};

struct DamageSearch {
  std::int64_t threads = 1;  ///< that make samples; at least 1
  /// Called again and again, if it is there, by the thread that searches.
  std::function<void(std::int64_t done, std::int64_t samples)> progress = {};
  /// A target that is no class and no mistake, beside that of the data's type: the loss ignores it.
  std::optional<std::int64_t> ignored = {};
};

/// Makes all samples once, and drops them. Calls `found` for the damaged ones, in their order. What
/// is thrown for a sample, but DataError, is thrown here, with the sample. All threads have ended
/// when it returns.
void find_damaged(const Dataset& data, const DamageSearch& search,
                  const std::function<void(const DamagedSample& damaged)>& found);

}  // namespace lockstep
