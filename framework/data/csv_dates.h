#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// A date with its time of day, in UTC where its text says how far from that it is.
struct Moment {
  std::chrono::sys_days day;
  double seconds = 0;  ///< since midnight
};

/// The format of ISO 8601: 2024-03-01, with or without a time (T12:30, 12:30:05.25) and its offset
/// from UTC (Z, +01:00).
inline const std::string kIsoDates = "iso";

/// What a text says by `format`: kIsoDates, or strptime()'s; none if it is no such date.
[[nodiscard]] std::optional<Moment> moment_of(std::string_view text, const std::string& format);

/// The numbers that date_part() makes of a date: days since 1970-01-01 with the time of day as a
/// fraction, year, month, day, weekday (Monday is 0), yearday (from 1), hour, minute, second.
[[nodiscard]] std::vector<std::string> date_parts();
[[nodiscard]] double date_part(const Moment& moment, std::string_view part);

}  // namespace lockstep::data
