#include "framework/keys/key.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <system_error>

#include <yaml-cpp/yaml.h>

namespace lockstep::keys {
namespace {

std::nullopt_t refuse_type(const YamlNode& node, const std::string& wanted, const Report& report) {
  report(node.place, str("expected ", wanted, ", found ", yaml_described(node)));
  return std::nullopt;
}

bool is_plain(const YamlNode& node) {
  return node.kind == YamlNode::Kind::scalar && !node.quoted;
}

// `text` as a T if from_chars takes all of it, a leading '+' aside. The error is out of range or
// anything else for "not one".
template <typename T>
std::errc parse(const std::string& text, T& value) {
  const bool plus = text.size() > 1 && text[0] == '+' && text[1] != '-';
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + (plus ? 1 : 0), end, value);
  return stop == end ? error : std::errc::invalid_argument;
}

bool are_digits(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

std::string without_sign(const std::string& text) {
  return text.substr(!text.empty() && (text[0] == '-' || text[0] == '+'));
}

// Returns true for digits behind a zero: 010 is eight to some readers of YAML and ten to others.
bool may_be_octal(const std::string& text) {
  const std::string digits = without_sign(text);
  return digits.size() > 1 && digits[0] == '0' && are_digits(digits);
}

bool is_integer(const std::string& text) {
  return are_digits(without_sign(text)) && !may_be_octal(text);
}

// The number that a text is, in the form that keys take; "" if it is none.
std::string number_text(std::string text, bool is_whole) {
  std::erase(text, '_');
  double value = 0;
  if (parse(text, value) != std::errc() || !std::isfinite(value)) return "";
  if (!is_whole) return yaml_text(value);
  constexpr double kMost = 1e15;  // where doubles have all integers
  if (std::fabs(value) > kMost || value != std::floor(value)) return "";
  return yaml_text(static_cast<std::int64_t>(value));
}

// For a number that is written otherwise: "0.1" in quotes, or 1e3 for an integer.
std::nullopt_t refuse_number(const YamlNode& node, bool is_whole, const Report& report) {
  const std::string plain =
      node.kind == YamlNode::Kind::scalar ? number_text(node.text, is_whole) : "";
  report(node.place, str("expected ", is_whole ? "an integer" : "a number", ", found ",
                         yaml_described(node), plain.empty() ? "" : "; write " + plain));
  return std::nullopt;
}

std::optional<double> convert(const YamlNode& node, const Rule<double>& /*rule*/,
                              const Report& report) {
  if (!is_plain(node)) return refuse_number(node, false, report);
  double value = 0;
  const std::errc error = parse(node.text, value);
  if (error == std::errc::result_out_of_range) {
    return refuse_type(node, "a number that a double can hold", report);
  }
  static const std::set<std::string> kInfinite{".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"};
  const std::string unsigned_text =
      node.text.substr(node.text.find_first_not_of("+-") == 1 ? 1 : 0);
  const bool is_number = error == std::errc();
  if (kInfinite.count(unsigned_text) != 0 || (is_number && !std::isfinite(value))) {
    return refuse_type(node, "a finite number", report);
  }
  if (!is_number || may_be_octal(node.text)) return refuse_number(node, false, report);
  return value;
}

template <std::integral T>
std::optional<T> convert(const YamlNode& node, const Rule<T>& rule, const Report& report) {
  if (!is_plain(node) || !is_integer(node.text)) {
    // Where null is not known, 0 may be what turns it off.
    const std::string zero =
        yaml_described(node) == "nothing" && rule.holds(0) ? "; it may be 0" : "";
    return refuse_number(node, true, [&](const YamlPosition& place, const std::string& message) {
      report(place, message + zero);
    });
  }
  T value = 0;
  if (parse(node.text, value) == std::errc()) return value;
  const bool negative = node.text[0] == '-';
  const T limit = negative ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
  const std::string bound = str(negative ? "at least " : "at most ", limit);
  report(node.place,
         str("must be ", rule.holds(limit) ? bound : rule.text, ", is ", cut(node.text)));
  return std::nullopt;
}

std::optional<std::string> convert(const YamlNode& node, const Rule<std::string>& rule,
                                   const Report& report) {
  if (node.kind != YamlNode::Kind::scalar) {
    return refuse_type(node, "a string, " + rule.text, report);
  }
  return node.text;
}

// The node's value, if it is one that obeys the rule.
template <typename T>
std::optional<T> obeying(const Rule<T>& rule, const YamlNode& node, const Report& report) {
  std::optional<T> value = convert(node, rule, report);
  if (!value || rule.holds(*value)) return value;
  constexpr bool kText = std::is_same_v<T, std::string>;
  report(node.place,
         str("must be ", rule.text, ", is ", kText ? yaml_shown(node.text) : cut(node.text)));
  return std::nullopt;
}

template <typename T>
constexpr const char* kKind = std::is_same_v<T, std::string> ? ""
                              : std::is_same_v<T, double>    ? "a number, "
                                                             : "an integer, ";
template <typename T>
constexpr const char* kKinds = std::is_same_v<T, std::string> ? "strings"
                               : std::is_same_v<T, double>    ? "numbers"
                                                              : "integers";

// Values of all sizes and forms.
template <typename T>
std::vector<T> usual_values() {
  if constexpr (std::is_same_v<T, std::string>) {
    return {"data", "a b", "x.npy", "*.bias", "null", "3", "é", ""};
  } else if constexpr (std::is_same_v<T, double>) {
    return {-1e300, -1, 0, 1e-300, 0.5, 1, 2, 3, 1e9, 1e300};
  } else {
    using Limits = std::numeric_limits<T>;
    return {Limits::min(), 0, 1, 2, 3, 8, 1000, 1'000'000, Limits::max()};
  }
}

template <typename T>
Samples samples_of(const Rule<T>& rule) {
  std::vector<T> values = usual_values<T>();
  values.insert(values.end(), rule.examples.begin(), rule.examples.end());
  Samples samples;
  for (const T& value : values) {
    auto& texts = rule.holds(value) ? samples.good : samples.bad;
    const std::string text = yaml_text(value);
    if (!std::ranges::count(texts, text)) texts.push_back(text);
  }
  return samples;
}

// As the items of a list that says the same `size` times.
std::vector<std::string> as_lists(const std::vector<std::string>& texts, std::size_t size = 1) {
  return mapped(
      texts, [&](const std::string& text) { return str("[", join(std::vector(size, text)), "]"); });
}

// `word` is for a variable without a value.
template <typename Variable, typename T>
Value value_of(Variable& variable, const Rule<T>& rule, const std::string& word = "") {
  const auto read = [&variable, rule](const YamlNode& node, const Report& report) {
    if (const auto value = obeying(rule, node, report)) variable = *value;
  };
  const auto print = [&variable, word] {
    if constexpr (std::is_same_v<Variable, T>) return yaml_text(variable);
    if constexpr (!std::is_same_v<Variable, T>) return variable ? yaml_text(*variable) : word;
  };
  const auto problem = [&variable, rule]() -> std::string {
    if constexpr (std::is_same_v<Variable, T>) return broken(rule, variable);
    if constexpr (!std::is_same_v<Variable, T>) return variable ? broken(rule, *variable) : "";
  };
  return {.words = kKind<T> + rule.text,
          .read = read,
          .print = print,
          .variable = &variable,
          .problem = problem,
          .samples = [rule] { return samples_of(rule); }};
}

// Whether the node is the word for no value: "null" by its kind, or "auto" by its text.
bool is_word(const YamlNode& node, const std::string& word) {
  return word == "null" ? node.kind == YamlNode::Kind::null : is_plain(node) && node.text == word;
}

template <typename T>
Value optional_value(std::optional<T>& variable, const Rule<T>& rule, const std::string& word) {
  Value value = value_of(variable, rule, word);
  value.words += ", or " + word;
  value.read = [&variable, word, read = value.read](const YamlNode& node, const Report& report) {
    if (is_word(node, word)) return variable.reset();
    read(node, [&](const YamlPosition& place, const std::string& message) {
      report(place, str(message, "; or write ", word));
    });
  };
  value.samples = [rule, word] {
    Samples samples = samples_of(rule);
    samples.good.push_back(word);
    return samples;
  };
  return value;
}

// `size` is how many items the list has, if that is fixed.
template <typename List, typename T>
Value list_of(const std::string& items, List& variable, const Rule<T>& rule,
              std::optional<std::size_t> size) {
  const auto read = [=, &variable](const YamlNode& node, const Report& report) {
    if (!is_list(node, items, report)) return;
    if (size && node.items.size() != *size) {
      return report(node.place, str("expected ", items, ", found ", node.items.size()));
    }
    std::vector<T> values;
    for (const auto& item : node.items) {
      if (const auto value = obeying(rule, *item, report)) values.push_back(*value);
    }
    if (values.size() != node.items.size()) return;
    if constexpr (requires { variable.resize(0); }) variable.resize(values.size());
    std::copy(values.begin(), values.end(), variable.begin());
  };
  const auto print = [&variable] {
    return str("[", join(mapped(variable, [](const T& value) { return yaml_text(value); })), "]");
  };
  const auto problem = [&variable, rule] {
    std::string first;
    for (const T& value : variable) first = first.empty() ? broken(rule, value) : first;
    return first;
  };
  const auto samples = [rule, size] {
    const Samples each = samples_of(rule);
    Samples lists{as_lists(each.good, size.value_or(1)), as_lists(each.bad, size.value_or(1))};
    if (!size) lists.good.push_back(str("[", join(each.good), "]"));
    if (!size) lists.good.emplace_back("[]");
    return lists;
  };
  return {.words = str("a list of ", items, ", each ", rule.text),
          .read = read,
          .print = print,
          .variable = &variable,
          .problem = problem,
          .samples = samples};
}

}  // namespace

Rule<std::string> of_length(const std::string& what, std::size_t most) {
  return {str(what, " of 1 to ", most, " bytes"),
          [most](const std::string& text) { return !text.empty() && text.size() <= most; }};
}

Value flag(bool& variable) {
  const auto read = [&variable](const YamlNode& node, const Report& report) {
    if (is_plain(node) && YAML::convert<bool>::decode(YAML::Node(node.text), variable)) return;
    refuse_type(node, "true or false", report);
  };
  return {.words = "true or false",
          .read = read,
          .print = [&variable] { return yaml_text(variable); },
          .variable = &variable,
          .samples =
              [] {
                return Samples{{"true", "false"}, {"1"}};
              }};
}

template <typename T>
Value number(T& variable, const Rule<T>& rule) {
  return value_of(variable, rule);
}
template Value number(double&, const Rule<double>&);
template Value number(int&, const Rule<int>&);
template Value number(std::int64_t&, const Rule<std::int64_t>&);
template Value number(std::uint64_t&, const Rule<std::uint64_t>&);

template <typename T>
Value number_or_null(std::optional<T>& variable, const Rule<T>& rule) {
  return optional_value(variable, rule, "null");
}
template Value number_or_null(std::optional<double>&, const Rule<double>&);
template Value number_or_null(std::optional<std::int64_t>&, const Rule<std::int64_t>&);

template <typename T>
Value number_or_auto(std::optional<T>& variable, const Rule<T>& rule) {
  return optional_value(variable, rule, "auto");
}
template Value number_or_auto(std::optional<double>&, const Rule<double>&);
template Value number_or_auto(std::optional<std::int64_t>&, const Rule<std::int64_t>&);

Value seconds(std::chrono::milliseconds& variable, const Rule<double>& rule) {
  const auto read = [&variable, rule](const YamlNode& node, const Report& report) {
    const auto value = obeying(rule, node, report);
    if (value) variable = std::chrono::milliseconds(std::llround(*value * 1000));
  };
  const auto value = [&variable] { return static_cast<double>(variable.count()) / 1000; };
  return {.words = "a number, " + rule.text,
          .read = read,
          .print = [value] { return yaml_text(value()); },
          .variable = &variable,
          .problem = [value, rule] { return broken(rule, value()); },
          .samples =
              [rule] {
                Samples samples = samples_of(rule);
                // What prints as it was written.
                std::erase(samples.good, yaml_text(1e-300));
                return samples;
              }};
}

Value number_instead(std::optional<std::int64_t>& variable, const Rule<std::int64_t>& rule) {
  Value value = value_of(variable, rule);
  value.clear = [&variable] { variable.reset(); };
  return value;
}

Value text(std::string& variable, const Rule<std::string>& rule) {
  return value_of(variable, rule);
}

Value text_or_null(std::optional<std::string>& variable, const Rule<std::string>& rule) {
  return optional_value(variable, rule, "null");
}

template <typename T>
Value list(std::vector<T>& variable, const Rule<T>& rule) {
  return list_of(kKinds<T>, variable, rule, std::nullopt);
}
template Value list(std::vector<std::string>&, const Rule<std::string>&);
template Value list(std::vector<std::int64_t>&, const Rule<std::int64_t>&);
template Value list(std::vector<double>&, const Rule<double>&);

Value list(std::array<double, 2>& variable, const Rule<double>& rule) {
  return list_of("2 numbers", variable, rule, variable.size());
}

Value text_or_list(std::vector<std::string>& variable, const Rule<std::string>& rule) {
  const Value several = list(variable, rule);
  const auto read = [&variable, rule, several](const YamlNode& node, const Report& report) {
    if (node.kind == YamlNode::Kind::list) return several.read(node, report);
    if (const auto value = obeying(rule, node, report)) variable = {*value};
  };
  const auto print = [&variable, several] {
    return variable.size() == 1 ? yaml_text(variable[0]) : several.print();
  };
  const auto samples = [rule] {
    Samples all = samples_of(rule);
    all.good.push_back(str("[", join(all.good), "]"));
    return all;
  };
  return {.words = rule.text + ", or a list of such",
          .read = read,
          .print = print,
          .variable = &variable,
          .problem = several.problem,
          .samples = samples};
}

Value one_of(const std::vector<std::string>& names, const std::function<void(std::size_t)>& set,
             const std::function<std::string()>& get) {
  const auto read = [names, set](const YamlNode& node, const Report& report) {
    if (node.kind != YamlNode::Kind::scalar) {
      refuse_type(node, "one of " + join(names), report);
      return;
    }
    const auto found = std::find(names.begin(), names.end(), node.text);
    if (found != names.end()) return set(static_cast<std::size_t>(found - names.begin()));
    report(node.place, str("must be one of ", join(names), ", is ", yaml_shown(node.text),
                           did_you_mean(node.text, names)));
  };
  const auto samples = [names] {
    return Samples{mapped(names, [](const std::string& name) { return yaml_text(name); }),
                   {names.front() + "_or_so"}};
  };
  return {.words = "one of " + join(names),
          .read = read,
          .print = [get] { return yaml_text(get()); },
          .samples = samples};
}

Value one_of(std::string& variable, const std::vector<std::string>& names) {
  Value value = one_of(
      names, [&variable, names](std::size_t i) { variable = names[i]; },
      [&variable] { return variable; });
  value.variable = &variable;
  return value;
}

void check(const std::string& user, const ConfigKeys& keys) {
  for (const ConfigKey& key : keys) {
    for (const auto& problem : {key.value.problem, key.traits.problem}) {
      const std::string text = problem ? problem() : "";
      require(text.empty(), user, ": ", key.name, " ", text);
    }
  }
}

std::string print_maps(const std::vector<ConfigKeys>& maps) {
  std::string text;
  for (const ConfigKeys& map : maps) {
    std::vector<std::string> entries;
    for (const ConfigKey& key : map) {
      const std::string value = key.value.print();
      if (value != "null") entries.push_back(key.name + ": " + value);
    }
    text += str("\n    - {", join(entries), "}");
  }
  return maps.empty() ? "[]" : text;
}

std::string problem_of_maps(const std::vector<ConfigKeys>& maps) {
  for (const ConfigKeys& map : maps) {
    for (const ConfigKey& key : map) {
      const std::string problem = key.value.problem ? key.value.problem() : "";
      if (!problem.empty()) return str(map[0].value.print(), ": ", key.name, " ", problem);
    }
  }
  return "";
}

Samples samples_of_maps(const ConfigKeys& map) {
  std::string needed;
  std::vector<std::string> good, bad;
  for (const ConfigKey& key : map) {
    const Samples values = key.value.samples();
    const std::string begin = needed + (needed.empty() ? "" : ", ") + key.name + ": ";
    for (const std::string& value : values.good) good.push_back(str("{", begin, value, "}"));
    for (const std::string& value : values.bad) bad.push_back(str("{", begin, value, "}"));
    if (key.traits.required) needed = begin + values.good.front();
  }
  return {as_lists(good), as_lists(bad)};
}

bool is_list(const YamlNode& node, const std::string& items, const Report& report) {
  constexpr std::size_t kMost = 1000;
  if (node.kind != YamlNode::Kind::list) {
    std::string item;
    if (node.kind == YamlNode::Kind::scalar) {
      const bool has_several = items != "maps" && node.text.find(',') != std::string::npos;
      item = has_several          ? node.text
             : items == "strings" ? yaml_text(node.text)
                                  : number_text(node.text, false);
    }
    report(node.place, str("expected a list of ", items, ", found ", yaml_described(node),
                           item.empty() ? "" : str("; write [", cut(item), "]")));
    return false;
  }
  if (node.items.size() <= kMost) return true;
  report(node.place, str("a list has at most ", kMost, " entries, found ", node.items.size()));
  return false;
}

}  // namespace lockstep::keys
