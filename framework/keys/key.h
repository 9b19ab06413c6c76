#pragma once

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/keys/yaml_text.h"
#include "framework/keys/yaml_tree.h"

namespace lockstep::keys {

/// A condition for a value, and the text for messages: "must be " + text. One that few values meet
/// has examples: see Samples.
template <typename T>
struct Rule {
  std::string text;
  std::function<bool(const T&)> holds;
  std::vector<T> examples = {};
};

template <typename T>
[[nodiscard]] Rule<T> at_least(T low) {
  return {str("at least ", yaml_text(low)), [low](const T& value) { return value >= low; }, {low}};
}
template <typename T>
[[nodiscard]] Rule<T> greater_than(T low) {
  return {
      str("greater than ", yaml_text(low)), [low](const T& value) { return value > low; }, {low}};
}
template <typename T>
[[nodiscard]] Rule<T> from_to(T low, T high) {
  return {str("from ", yaml_text(low), " to ", yaml_text(high)),
          [low, high](const T& value) { return low <= value && value <= high; },
          {low, high}};
}
/// Without `end`.
template <typename T>
[[nodiscard]] Rule<T> from_below(T low, T end) {
  return {str("at least ", yaml_text(low), " and less than ", yaml_text(end)),
          [low, end](const T& value) { return low <= value && value < end; },
          {low, end}};
}

/// Rules of many options.
inline const Rule<double> kPositive = greater_than(0.0);
inline const Rule<double> kNotNegative = at_least(0.0);
inline const Rule<double> kPart = from_to(0.0, 1.0);
inline const Rule<double> kPartBelow1 = from_below(0.0, 1.0);
inline const Rule<std::int64_t> kNatural = at_least<std::int64_t>(0);
inline const Rule<std::int64_t> kMillion = from_to<std::int64_t>(1, 1'000'000);
inline const Rule<std::int64_t> kBillion = from_to<std::int64_t>(1, 1'000'000'000);

/// Text of 1 to `most` bytes, which is `what`: "a file's path".
[[nodiscard]] Rule<std::string> of_length(const std::string& what, std::size_t most);

/// What is wrong with the value of an option: "must be at least 0, not -1", or "".
template <typename T>
[[nodiscard]] std::string broken(const Rule<T>& rule, const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return str("must be a finite number, ", rule.text, ", not ", value);
  }
  if (rule.holds(value)) return "";
  if constexpr (std::is_same_v<T, std::string>) {
    return str("must be ", rule.text, ", not ", yaml_shown(value));
  } else {
    return str("must be ", rule.text, ", not ", value);
  }
}

/// ValueError for the value of an option that does not obey its rule. `option` is "ZeRO: stage".
template <typename T>
void check(const std::string& option, const T& value, const Rule<T>& rule) {
  const std::string problem = broken(rule, value);
  require(problem.empty(), option, " ", problem);
}
template <typename T>
void check(const std::string& option, const std::optional<T>& value, const Rule<T>& rule) {
  if (value) check(option, *value, rule);
}

struct ConfigKey;
using ConfigKeys = std::vector<ConfigKey>;

/// Called with what is wrong with a value, and the place of the value.
using Report = std::function<void(const YamlPosition& place, const std::string& message)>;

/// Values of a key as YAML, by which keys are tried out: of those that the makers of Values know,
/// and the rule's examples, those that the rule lets pass, and those that it refuses.
struct Samples {
  std::vector<std::string> good, bad;
};

/// A variable as the value of a key. The functions below make Values for different types. The
/// variable must outlive the Value.
struct Value {
  std::string words;  ///< what may stand there: "a number, greater than 0"
  /// Sets the variable, or reports what is wrong and leaves it.
  std::function<void(const YamlNode& node, const Report& report)> read;
  std::function<std::string()> print;  ///< the variable as YAML; "" where its key is left out
  /// Only for a list of maps, which has no read(): sets its length and returns each map's keys.
  std::function<std::vector<ConfigKeys>(std::size_t)> resize = {};
  /// Takes the variable's value away, where a key that stands instead of this one is read.
  std::function<void()> clear = {};
  const void* variable = nullptr;
  /// What is wrong with the variable, however it was set: "must be at least 0, not -1", or "".
  std::function<std::string()> problem = {};
  std::function<Samples()> samples = {};
};

/// Numbers must be finite and not in quotes; integers are written in digits only. A list has up to
/// 1000 entries, each of which obeys the rule.
[[nodiscard]] Value flag(bool& variable);
/// T is double or std::int64_t; here also int and std::uint64_t.
template <typename T>
[[nodiscard]] Value number(T& variable, const Rule<T>& rule);
template <typename T>
[[nodiscard]] Value number_or_null(std::optional<T>& variable, const Rule<T>& rule);
/// "auto" for no value.
template <typename T>
[[nodiscard]] Value number_or_auto(std::optional<T>& variable, const Rule<T>& rule);
/// Seconds. The variable keeps the nearest milliseconds.
[[nodiscard]] Value seconds(std::chrono::milliseconds& variable, const Rule<double>& rule);
/// Its key is left out while it has no value, as after one that stands instead of it is read.
[[nodiscard]] Value number_instead(std::optional<std::int64_t>& variable,
                                   const Rule<std::int64_t>& rule);
[[nodiscard]] Value text(std::string& variable, const Rule<std::string>& rule);
[[nodiscard]] Value text_or_null(std::optional<std::string>& variable,
                                 const Rule<std::string>& rule);
/// T is std::string, std::int64_t or double.
template <typename T>
[[nodiscard]] Value list(std::vector<T>& variable, const Rule<T>& rule);
[[nodiscard]] Value list(std::array<double, 2>& variable, const Rule<double>& rule);
/// A string alone stands for a list of one.
[[nodiscard]] Value text_or_list(std::vector<std::string>& variable, const Rule<std::string>& rule);

[[nodiscard]] Value one_of(const std::vector<std::string>& names,
                           const std::function<void(std::size_t)>& set,
                           const std::function<std::string()>& get);
[[nodiscard]] Value one_of(std::string& variable, const std::vector<std::string>& names);
/// `names` are those of an enum's values, in their order.
template <typename Enum>
requires std::is_enum_v<Enum>
[[nodiscard]] Value one_of(Enum& variable, const std::vector<std::string>& names) {
  Value value = one_of(
      names, [&variable](std::size_t i) { variable = static_cast<Enum>(i); },
      [&variable, names] { return names.at(static_cast<std::size_t>(variable)); });
  value.variable = &variable;
  return value;
}

/// Rare properties of a key. The choice is the value of the section's first key.
struct KeyTraits {
  std::vector<std::string> owners = {};  ///< the choices that the key belongs to; none: all
  bool required = false;
  std::map<std::string, std::string> defaults = {};  ///< YAML, of choices that have another one
  std::vector<std::string> instead_of = {};          ///< keys that may not stand beside it
  std::function<std::string()> problem = {};         ///< what is wrong together with others, or ""
  std::vector<std::string> others = {};              ///< these keys of the section
  bool may_change = false;     ///< a run may go on from a checkpoint with another value
  bool is_short_form = false;  ///< of a section's first key: its value may stand for the section
  bool is_place = false;       ///< a path: what is there matters, wherever a host has it
};

/// A key of a config. Several of a section may have one name, if their owners differ.
struct ConfigKey {
  std::string name;
  Value value;
  std::string help;  ///< one line
  KeyTraits traits = {};
};

struct Section {
  std::string name;
  ConfigKeys keys;
  /// What the first key may name, each with a line of help; see add_choices().
  std::vector<std::pair<std::string, std::string>> choices = {};
};

/// ValueError where a key's variable does not obey its rule, alone or together with others, however
/// it was set: "model gpt: layers must be at least 1, not 0".
void check(const std::string& user, const ConfigKeys& keys);

[[nodiscard]] std::string print_maps(const std::vector<ConfigKeys>& maps);
[[nodiscard]] std::string problem_of_maps(const std::vector<ConfigKeys>& maps);
[[nodiscard]] Samples samples_of_maps(const ConfigKeys& map);

/// A list of maps. `keys_of` returns the keys of one map.
template <typename T>
[[nodiscard]] Value maps(std::vector<T>& variable, ConfigKeys (*keys_of)(T&)) {
  const auto keys = [&variable, keys_of] { return mapped(variable, keys_of); };
  return {.words = "a list of maps",
          .read = {},
          .print = [keys] { return print_maps(keys()); },
          .resize =
              [&variable, keys](std::size_t size) {
                variable.assign(size, T());
                return keys();
              },
          .variable = &variable,
          .problem = [keys] { return problem_of_maps(keys()); },
          .samples =
              [keys_of] {
                T map{};
                return samples_of_maps(keys_of(map));
              }};
}

/// Whether `node` is a list of at most 1000 `items`. Otherwise reports what is wrong.
[[nodiscard]] bool is_list(const YamlNode& node, const std::string& items, const Report& report);

}  // namespace lockstep::keys
