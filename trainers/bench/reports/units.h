#pragma once

#include <string>

namespace lockstep::bench {

/// A number with three digits: "0.0123", "1.23", "12.3", "123", "1234".
[[nodiscard]] std::string digits_text(double value);

/// A duration in three digits: "3.02 us", "12.4 ms", "1.25 s".
[[nodiscard]] std::string time_text(double seconds);

}  // namespace lockstep::bench
