#include "trainers/bench/reports/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <system_error>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 40;

struct Unit {
  const char* name;
  std::int64_t bytes;
};
constexpr std::array<Unit, 4> kUnits{{{"GiB", std::int64_t{1} << 30},
                                      {"MiB", std::int64_t{1} << 20},
                                      {"KiB", std::int64_t{1} << 10},
                                      {"B", 1}}};

}  // namespace

std::int64_t parse_size(const std::string& text) {
  const auto refused = [&] {
    return ValueError(
        str("'", text,
            "' is no size: expected a whole number of bytes from 1 to 1 TiB, such as 8, "
            "64KiB, 1MiB or 1GiB"));
  };
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number < 1) throw refused();
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  for (const Unit& known : kUnits) {
    if (unit != known.name && !(unit.empty() && known.bytes == 1)) continue;
    if (number > kLargest / known.bytes) throw refused();
    return number * known.bytes;
  }
  throw refused();
}

std::string size_text(std::int64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (unit.bytes > 1 && bytes % unit.bytes == 0) return str(bytes / unit.bytes, ' ', unit.name);
  }
  return str(bytes, " B");
}

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
