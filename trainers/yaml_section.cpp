#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <type_traits>

#include <yaml-cpp/yaml.h>

#include "framework/base/wording.h"
#include "trainers/strict_yaml.h"

namespace lockstep {
namespace {

// Thrown by converters and caught by YamlSection::read, which knows the key.
struct Complaint {
  YamlPosition place;
  std::string message;
};

[[noreturn]] void refuse_type(const YamlNode& node, const std::string& wanted) {
  throw Complaint{node.place, str("expected ", wanted, ", found ", yaml_described(node))};
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

double to_number(const YamlNode& node) {
  if (!is_plain(node)) refuse_type(node, "a number");
  double value = 0;
  const std::errc error = parse(node.text, value);
  if (error == std::errc::result_out_of_range) refuse_type(node, "a number that a double can hold");
  static const std::set<std::string> kInfinite{".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"};
  const std::string unsigned_text =
      node.text.substr(node.text.find_first_not_of("+-") == 1 ? 1 : 0);
  if (kInfinite.count(unsigned_text) != 0) refuse_type(node, "a finite number");
  if (error != std::errc()) refuse_type(node, "a number");
  if (!std::isfinite(value)) refuse_type(node, "a finite number");
  return value;
}

// Digits only, and none after a leading zero: 010 is eight to some readers of YAML and ten to
// others.
bool is_integer(const std::string& text) {
  const std::string digits = text.substr(!text.empty() && (text[0] == '-' || text[0] == '+'));
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos &&
         (digits.size() == 1 || digits[0] != '0');
}

template <typename T>
T to_integer(const YamlNode& node, const Rule<T>& rule) {
  if (!is_plain(node) || !is_integer(node.text)) refuse_type(node, "an integer");
  T value = 0;
  if (parse(node.text, value) != std::errc()) {
    const bool negative = node.text[0] == '-';
    const T limit = negative ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
    const std::string bound = str(negative ? "at least " : "at most ", limit);
    throw Complaint{node.place, str("must be ", rule.holds(limit) ? bound : rule.text, ", is ",
                                    cut(node.text))};
  }
  return value;
}

std::string to_string(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar) refuse_type(node, "a string");
  return node.text;
}

bool to_boolean(const YamlNode& node) {
  bool value = false;
  if (!is_plain(node) || !YAML::convert<bool>::decode(YAML::Node(node.text), value)) {
    refuse_type(node, "true or false");
  }
  return value;
}

template <typename T>
T obeying(const Rule<T>& rule, const T& value, const YamlNode& node) {
  if (rule.holds(value)) return value;
  constexpr bool kText = std::is_same_v<T, std::string>;
  throw Complaint{node.place, str("must be ", rule.text, ", is ",
                                  kText ? yaml_shown(node.text) : cut(node.text))};
}

// A node's items, if it is a list of what `items` says.
const auto& to_list(const YamlNode& node, const char* items) {
  constexpr std::size_t kMost = 1000;
  if (node.kind != YamlNode::Kind::list) refuse_type(node, std::string("a list of ") + items);
  if (node.items.size() <= kMost) return node.items;
  throw Complaint{node.place,
                  str("a list has at most ", kMost, " entries, found ", node.items.size())};
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

const YamlEntry* YamlSection::find(const std::string& key) const {
  const auto found = std::find_if(node_.entries.begin(), node_.entries.end(),
                                  [&](const YamlEntry& entry) { return entry.key == key; });
  return found == node_.entries.end() ? nullptr : &*found;
}

bool YamlSection::has(const std::string& key) const {
  return find(key) != nullptr;
}

template <typename T, typename Convert>
T YamlSection::read(const std::string& key, T fallback, const Convert& convert) {
  document_.read_.insert(name_ + "." + key);
  const YamlEntry* entry = find(key);
  if (entry == nullptr) return fallback;
  try {
    return convert(*entry->value);
  } catch (const Complaint& complaint) {
    document_.report(complaint.place, str(name_, ".", key, ": ", complaint.message));
    return fallback;
  }
}

std::string YamlSection::choice(const std::string& key, const std::vector<std::string>& allowed,
                                const std::optional<std::string>& fallback) {
  if (!has(key)) {
    if (fallback) return read(key, *fallback, to_string);
    missing(key, "one of " + join(allowed));
    return "";
  }
  return read(key, std::string(), [&](const YamlNode& node) {
    const std::string value = to_string(node);
    if (contains(allowed, value)) return value;
    throw Complaint{node.place, str("must be one of ", join(allowed), ", is ", yaml_shown(value),
                                    did_you_mean(value, allowed))};
  });
}

std::string YamlSection::string(const std::string& key, const std::string& fallback,
                                const Rule<std::string>& rule) {
  return read(key, fallback,
              [&](const YamlNode& node) { return obeying(rule, to_string(node), node); });
}

bool YamlSection::boolean(const std::string& key, bool fallback) {
  return read(key, fallback, to_boolean);
}

double YamlSection::number(const std::string& key, double fallback, const Rule<double>& rule) {
  return read(key, fallback,
              [&](const YamlNode& node) { return obeying(rule, to_number(node), node); });
}

std::optional<double> YamlSection::number_or_null(const std::string& key,
                                                  std::optional<double> fallback,
                                                  const Rule<double>& rule) {
  return read(key, fallback, [&](const YamlNode& node) -> std::optional<double> {
    if (node.kind == YamlNode::Kind::null) return std::nullopt;
    return obeying(rule, to_number(node), node);
  });
}

template <typename T>
T YamlSection::integer(const std::string& key, T fallback, const Rule<T>& rule) {
  return read(key, fallback,
              [&](const YamlNode& node) { return obeying(rule, to_integer<T>(node, rule), node); });
}
template int YamlSection::integer(const std::string&, int, const Rule<int>&);
template std::int64_t YamlSection::integer(const std::string&, std::int64_t,
                                           const Rule<std::int64_t>&);
template std::uint64_t YamlSection::integer(const std::string&, std::uint64_t,
                                            const Rule<std::uint64_t>&);

std::vector<double> YamlSection::numbers(const std::string& key, std::vector<double> fallback,
                                         std::size_t count, const Rule<double>& rule) {
  return read(key, std::move(fallback), [&](const YamlNode& node) {
    const std::string numbers = counted(static_cast<std::int64_t>(count), "number");
    const auto& items = to_list(node, numbers.c_str());
    if (items.size() != count) {
      throw Complaint{node.place, str("expected ", numbers, ", found ", items.size())};
    }
    std::vector<double> values;
    for (const auto& item : items) values.push_back(obeying(rule, to_number(*item), *item));
    return values;
  });
}

std::vector<std::int64_t> YamlSection::integers(const std::string& key,
                                                std::vector<std::int64_t> fallback,
                                                const Rule<std::int64_t>& rule) {
  return read(key, std::move(fallback), [&](const YamlNode& node) {
    std::vector<std::int64_t> values;
    for (const auto& item : to_list(node, "integers")) {
      values.push_back(obeying(rule, to_integer<std::int64_t>(*item, rule), *item));
    }
    return values;
  });
}

std::vector<YamlSection> YamlSection::sections(const std::string& key,
                                               const std::vector<std::string>& keys) {
  const std::string list = name_ + "." + key;
  return read(key, std::vector<YamlSection>(), [&](const YamlNode& node) {
    std::vector<YamlSection> maps;
    for (const auto& item : to_list(node, "maps")) {
      document_.check_section({list, keys, {}}, {"", item->place, item});
      if (item->kind == YamlNode::Kind::map) maps.push_back({document_, list, *item});
    }
    return maps;
  });
}

bool YamlSection::applies(const std::string& key, const std::vector<std::string>& owners,
                          const std::string& chosen) {
  if (contains(owners, chosen)) return true;
  document_.read_.insert(name_ + "." + key);
  // After a problem with the choice itself nobody knows which keys belong.
  if (has(key) && !chosen.empty()) {
    problem(key, str("belongs to ", name_, " ", join(owners, " or "), ", not to ", chosen));
  }
  return false;
}

const std::string& YamlSection::place(const std::string& key) const {
  const YamlEntry* entry = find(key);
  return entry ? entry->place.text : node_.place.text;
}

void YamlSection::problem(const std::string& key, const std::string& message) {
  const YamlEntry* entry = find(key);
  document_.report(entry ? entry->place : node_.place, str(name_, ".", key, ": ", message));
}

void YamlSection::missing(const std::string& key, const std::string& message) {
  YamlPosition place = node_.place;
  place.line = std::numeric_limits<std::int64_t>::max();  // sorted behind all others
  document_.report(place, str(name_, ".", key, " is missing: ", message));
}

}  // namespace lockstep
