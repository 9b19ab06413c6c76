#include "framework/data/dataset.h"

#include <cstddef>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/wording.h"

namespace lockstep {

Batch Dataset::batch(std::span<const std::int64_t> indices) const {
  const std::int64_t count = size();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= 0 && indices[i] < count) continue;
    throw ValueError(str("dataset: index ", indices[i], " (number ", i, " of ", indices.size(),
                         " in the batch) is outside 0 ... ", count - 1, ": the set has ",
                         counted(count, "sample")));
  }
  return gather(indices);
}

}  // namespace lockstep
