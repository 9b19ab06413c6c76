#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::storage {

/// "'text'", of a foreign text no more than a line.
[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  std::string shown = str("'", cut(text), "'");
  std::ranges::replace(shown, '\0', '?');  // which would end the message
  return shown;
}

/// The value as a text, a number, or a list of such. DataError, with the value and the rule, if it
/// is of another kind: a whole number is never taken from a fraction, nor one that does not fit.
template <typename T>
[[nodiscard]] T exactly(const nlohmann::json& value) {
  const auto refuse = [&](const auto&... rule) {
    throw DataError(str(in_quotes(value.dump()), " stands where ", rule..., " should be"));
  };
  if constexpr (std::is_same_v<T, std::string>) {
    if (!value.is_string()) refuse("a text");
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!value.is_number()) refuse("a number");
  } else if constexpr (std::is_arithmetic_v<T>) {
    using Limits = std::numeric_limits<T>;
    const bool fits = value.is_number_unsigned()
                          ? std::cmp_less_equal(value.get<std::uint64_t>(), Limits::max())
                          : value.is_number_integer() &&
                                std::cmp_greater_equal(value.get<std::int64_t>(), Limits::min());
    if (!fits) refuse("a whole number from ", +Limits::min(), " to ", +Limits::max());
  } else {
    if (!value.is_array()) refuse("a list");
    return mapped(value, exactly<typename T::value_type>);
  }
  return value.get<T>();
}

}  // namespace lockstep::storage
