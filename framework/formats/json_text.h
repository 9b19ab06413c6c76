#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::formats {

/// The most levels of foreign JSON: its reader, copier and printer recurse once a level.
inline constexpr std::size_t kMostJsonLevels = 16;
/// The most names of an object that keeps their order: a look-up goes through them one by one.
inline constexpr std::size_t kMostJsonNames = 20'000;
[[nodiscard]] bool has_too_many(std::string_view json, std::size_t most_names) noexcept;

/// Returns a foreign text's value; discarded if it is no JSON, or has too many levels or names.
template <typename Json>
[[nodiscard]] Json parse_json(std::string_view text) {
  constexpr bool kIsOrdered = std::is_same_v<Json, nlohmann::ordered_json>;
  if (has_too_many(text, kIsOrdered ? kMostJsonNames : text.size()))
    return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

/// Returns the field of an object. Throws DataError that names the field if it is missing.
template <typename Json>
[[nodiscard]] const Json& json_at(const Json& object, std::string_view name) {
  const auto found = object.find(std::string(name));
  require<DataError>(found != object.end(), "'", name, "' is missing");
  return *found;
}

/// The same as a T. Throws DataError also if the value is of another kind.
template <typename T, typename Json>
[[nodiscard]] T json_field(const Json& object, const std::string& name) {
  const Json& value = json_at(object, name);
  try {
    return value.template get<T>();
  } catch (const typename Json::exception&) {
    throw DataError(str("'", name, "' is of the wrong kind: ", cut(value.dump())));
  }
}
/// The same; returns `absent` if the field is missing.
template <typename T, typename Json>
[[nodiscard]] T json_field(const Json& object, const std::string& name, const T& absent) {
  return object.contains(name) ? json_field<T>(object, name) : absent;
}

}  // namespace lockstep::formats
