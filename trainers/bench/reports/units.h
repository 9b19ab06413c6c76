#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

/// A number of bytes as users write it: "8", "8B", "64KiB", "1 MiB", "1GiB". ValueError for
/// anything else, also for none at all and for more than 1 TiB.
[[nodiscard]] std::int64_t parse_size(const std::string& text);

/// The inverse, in the largest unit that gives a whole number: "64 KiB".
[[nodiscard]] std::string size_text(std::int64_t bytes);

/// A number with three digits: "0.0123", "1.23", "12.3", "123", "1234".
[[nodiscard]] std::string digits_text(double value);

/// A duration in three digits: "3.02 us", "12.4 ms", "1.25 s".
[[nodiscard]] std::string time_text(double seconds);

}  // namespace lockstep::bench
