#include "trainers/bench/statistics.h"

#include <algorithm>
#include <cstddef>

#include "framework/base/errors.h"

namespace lockstep::bench {

Quartiles quartiles(std::vector<double> samples) {
  if (samples.empty()) throw ValueError("quartiles: there are no samples");
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) {
    const double place = part * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    return samples[below] +
           (place - static_cast<double>(below)) * (samples[above] - samples[below]);
  };
  return {.lower = at(0.25), .median = at(0.5), .upper = at(0.75)};
}

}  // namespace lockstep::bench
