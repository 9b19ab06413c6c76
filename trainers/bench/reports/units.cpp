#include "trainers/bench/reports/units.h"

#include <cmath>

#include "framework/base/text.h"

namespace lockstep::bench {

std::string digits_text(double value) {
  const double size = std::abs(value);
  const int decimals = size >= 99.95     ? 0
                       : size >= 9.995   ? 1
                       : size >= 0.9995  ? 2
                       : size >= 0.09995 ? 3
                                         : 4;
  return formatted("%.*f", decimals, value);
}

std::string time_text(double seconds) {
  // Compared as they are rounded: 999.7 us is 1.00 ms.
  if (seconds < 999.5e-6) return digits_text(seconds * 1e6) + " us";
  if (seconds < 999.5e-3) return digits_text(seconds * 1e3) + " ms";
  return digits_text(seconds) + " s";
}

}  // namespace lockstep::bench
