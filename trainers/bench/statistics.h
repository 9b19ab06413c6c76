#pragma once

#include <vector>

namespace lockstep::bench {

/// The middle of samples and how far the middle half of them reaches.
struct Quartiles {
  double lower = 0;
  double median = 0;
  double upper = 0;
};

/// The quartiles of one or more samples, interpolated linearly between neighbours (as NumPy's
/// percentile does). ValueError without any.
[[nodiscard]] Quartiles quartiles(std::vector<double> samples);

}  // namespace lockstep::bench
