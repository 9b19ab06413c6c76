#include "trainers/strict_yaml.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <system_error>
#include <tuple>
#include <type_traits>

#include <yaml-cpp/yaml.h>

#include "framework/base/errors.h"

namespace lockstep {
namespace {

// Thrown by converters and caught by YamlSection::read, which knows the key.
struct Complaint {
  YamlPlace place;
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
    throw Complaint{node.place,
                    str("must be ", rule.holds(limit) ? bound : rule.text, ", is ", node.text)};
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
  throw Complaint{node.place,
                  str("must be ", rule.text, ", is ", kText ? yaml_shown(node.text) : node.text)};
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

const YamlEntry* find_entry(const std::vector<YamlEntry>& entries, const std::string& key) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const YamlEntry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

bool before(const YamlPlace& a, const YamlPlace& b) {
  return std::tie(a.line, a.column) < std::tie(b.line, b.column);
}

}  // namespace

Override parse_set(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  const std::string origin = "--set " + argument;
  if (equals == std::string::npos || equals == 0) {
    throw ValueError(origin + ": expected section.key=value, for example optimizer.lr=0.1");
  }
  return {argument.substr(0, equals), argument.substr(equals + 1), origin};
}

const YamlEntry* YamlSection::find(const std::string& key) const {
  return find_entry(node_.entries, key);
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
    // Sorted behind all others: a misspelt key is reported rather than the one it leaves missing.
    YamlPlace place = node_.place;
    place.line = std::numeric_limits<std::int64_t>::max();
    document_.report(place, str(name_, ".", key, " is missing: one of ", join(allowed)));
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
    if (node.kind != YamlNode::Kind::list) refuse_type(node, str("a list of ", count, " numbers"));
    if (node.items.size() != count) {
      throw Complaint{node.place, str("expected ", count, " numbers, found ", node.items.size())};
    }
    std::vector<double> values;
    for (const auto& item : node.items) values.push_back(obeying(rule, to_number(*item), *item));
    return values;
  });
}

std::vector<std::int64_t> YamlSection::integers(const std::string& key,
                                                std::vector<std::int64_t> fallback,
                                                const Rule<std::int64_t>& rule) {
  return read(key, std::move(fallback), [&](const YamlNode& node) {
    if (node.kind != YamlNode::Kind::list) refuse_type(node, "a list of integers");
    std::vector<std::int64_t> values;
    for (const auto& item : node.items) {
      values.push_back(obeying(rule, to_integer<std::int64_t>(*item, rule), *item));
    }
    return values;
  });
}

std::vector<YamlSection> YamlSection::sections(const std::string& key,
                                               const std::vector<std::string>& keys) {
  const std::string list = name_ + "." + key;
  return read(key, std::vector<YamlSection>(), [&](const YamlNode& node) {
    if (node.kind != YamlNode::Kind::list) refuse_type(node, "a list of maps");
    std::vector<YamlSection> maps;
    for (const auto& item : node.items) {
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

void YamlSection::problem(const std::string& key, const std::string& message) {
  const YamlEntry* entry = find(key);
  document_.report(entry ? entry->place : node_.place, str(name_, ".", key, ": ", message));
}

YamlDocument::YamlDocument(const std::string& text, const std::string& name,
                           std::vector<SectionSchema> schema,
                           const std::vector<Override>& overrides)
    : name_(name), schema_(std::move(schema)) {
  const YamlSource source{name};
  const auto root = parse_yaml(text, source);
  if (!root || root->kind == YamlNode::Kind::null) {
    yaml_fail(source.at(1, 1), "the file is empty: its sections are " + join(section_names()));
  }
  if (root->kind != YamlNode::Kind::map) {
    yaml_fail(root->place, str("expected a map of sections (", join(section_names()), "), found ",
                               yaml_described(*root)));
  }
  sections_ = root->entries;
  int index = 0;
  for (const Override& override : overrides) apply(override, index++);
  check_keys();
}

void YamlDocument::apply(const Override& override, int index) {
  const YamlSource source{override.origin, index};
  const YamlPlace place = source.at(1, 1);
  const std::size_t dot = override.key.find('.');
  const std::string name = override.key.substr(0, dot);
  const std::string key = dot == std::string::npos ? "" : override.key.substr(dot + 1);
  if (dot == std::string::npos && find_schema(name) != nullptr) {
    yaml_fail(place, str(name, " is a section: set one of its keys, as in ", name, ".",
                         find_schema(name)->keys.front(), "=…"));
  }
  if (name.empty() || key.empty() || key.find('.') != std::string::npos) {
    yaml_fail(place, str("expected section.key=value, the key is ", yaml_shown(override.key),
                         home_of(override.key)));
  }
  const auto value = parse_yaml(override.value, source);
  if (!value) yaml_fail(place, "the value is missing after '='");

  YamlEntry& section = section_entry(name, place);
  if (section.value->kind != YamlNode::Kind::map) return;  // which check_keys reports
  const SectionSchema* schema = find_schema(name);
  const bool excludes = schema != nullptr && contains(schema->exclusive, key);
  // A copy: an alias may share the node with another section.
  auto node = std::make_shared<YamlNode>(*section.value);
  std::erase_if(node->entries, [&](const YamlEntry& entry) {
    return entry.key == key || (excludes && contains(schema->exclusive, entry.key));
  });
  node->entries.push_back({key, place, value});
  section.value = node;
}

YamlEntry& YamlDocument::section_entry(const std::string& name, const YamlPlace& place) {
  for (YamlEntry& entry : sections_) {
    if (entry.key == name) return entry;
  }
  auto node = std::make_shared<YamlNode>();
  node->kind = YamlNode::Kind::map;
  node->place = place;
  sections_.push_back({name, place, node});
  return sections_.back();
}

void YamlDocument::check_keys() {
  for (const YamlEntry& entry : sections_) {
    if (const SectionSchema* schema = find_schema(entry.key)) {
      check_section(*schema, entry);
      continue;
    }
    const std::string home = home_of(entry.key);
    const std::string near = did_you_mean(entry.key, section_names());
    report(entry.place, str("unknown key ", yaml_shown(entry.key),
                            !home.empty()   ? home
                            : !near.empty() ? near
                                            : ": the sections are " + join(section_names())));
  }
}

void YamlDocument::check_section(const SectionSchema& schema, const YamlEntry& section) {
  if (section.value->kind != YamlNode::Kind::map) {
    report(section.value->place, str(schema.name, ": expected a map of keys (", join(schema.keys),
                                     "), found ", yaml_described(*section.value)));
    return;
  }
  const YamlEntry* first_exclusive = nullptr;
  for (const YamlEntry& entry : section.value->entries) {
    if (contains(schema.exclusive, entry.key)) {
      if (first_exclusive != nullptr) {
        report(entry.place,
               str(schema.name, ".", entry.key, ": not together with ", schema.name, ".",
                   first_exclusive->key, " (", first_exclusive->place.text, "): keep one of them"));
      }
      first_exclusive = &entry;
    }
    if (contains(schema.keys, entry.key)) continue;
    const std::string home = home_of(entry.key);
    const std::string near = did_you_mean(entry.key, schema.keys);
    report(entry.place, str("unknown key ", yaml_shown(entry.key), " in ", schema.name,
                            !home.empty()   ? home
                            : !near.empty() ? near
                                            : ": its keys are " + join(schema.keys)));
  }
}

YamlSection YamlDocument::section(const std::string& name) {
  YamlNode node;
  node.place = YamlSource{name_}.at(1, 1);
  if (const YamlEntry* entry = find_entry(sections_, name)) {
    node = *entry->value;
    node.place = entry->place;
  }
  return {*this, name, node};
}

const SectionSchema* YamlDocument::find_schema(const std::string& name) const {
  for (const SectionSchema& schema : schema_) {
    if (schema.name == name) return &schema;
  }
  return nullptr;
}

std::vector<std::string> YamlDocument::section_names() const {
  std::vector<std::string> names;
  for (const SectionSchema& schema : schema_) names.push_back(schema.name);
  return names;
}

// ": it belongs …" for a key that is known elsewhere, "" for one that is not.
std::string YamlDocument::home_of(const std::string& key) const {
  if (find_schema(key) != nullptr) return ": it is a section of its own, at the top level";
  std::vector<std::string> homes;
  for (const SectionSchema& schema : schema_) {
    if (contains(schema.keys, key)) homes.push_back(schema.name);
  }
  return homes.empty() ? "" : ": it belongs under " + join(homes, " or ");
}

void YamlDocument::report(const YamlPlace& place, const std::string& message) {
  problems_.push_back({place, message});
}

void YamlDocument::finish() const {
  if (!problems_.empty()) {
    const auto first = std::min_element(
        problems_.begin(), problems_.end(),
        [](const Problem& a, const Problem& b) { return before(a.place, b.place); });
    yaml_fail(first->place, first->message);
  }
  // Guards the caller: a key of the schema that nobody reads would be taken in silence.
  for (const YamlEntry& section : sections_) {
    for (const YamlEntry& entry : section.value->entries) {
      if (read_.count(section.key + "." + entry.key) != 0) continue;
      throw Error(str(entry.place.text, ": ", section.key, ".", entry.key, " was never read"));
    }
  }
}

}  // namespace lockstep
