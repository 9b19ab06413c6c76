#include "framework/base/number_text.h"

#include <algorithm>
#include <limits>
#include <ranges>

#include "framework/base/text.h"

namespace lockstep {
namespace {

struct Unit {
  const char* name;
  std::int64_t bytes;
};
// size_text() takes the first unit that divides the bytes.
constexpr Unit kUnits[] = {{"GiB", std::int64_t{1} << 30},
                           {"MiB", std::int64_t{1} << 20},
                           {"KiB", std::int64_t{1} << 10},
                           {"B", 1},
                           {"", 1},
                           {"KB", 1'000},
                           {"MB", 1'000'000},
                           {"GB", 1'000'000'000}};

}  // namespace

std::optional<std::int64_t> parse_size(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = parse_number<std::int64_t>(text.substr(0, digits));
  std::string_view name = text.substr(digits);
  name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
  const auto* const unit = std::ranges::find(kUnits, name, &Unit::name);
  if (!number || *number < 1 || unit == std::end(kUnits)) return std::nullopt;
  if (*number > std::numeric_limits<std::int64_t>::max() / unit->bytes) return std::nullopt;
  return *number * unit->bytes;
}

std::string size_text(std::int64_t bytes) {
  const auto* const unit =
      std::ranges::find_if(kUnits, [&](const Unit& known) { return bytes % known.bytes == 0; });
  return str(bytes / unit->bytes, ' ', unit->name);
}

}  // namespace lockstep
