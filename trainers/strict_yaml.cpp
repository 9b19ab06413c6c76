#include "trainers/strict_yaml.h"

#include <algorithm>
#include <memory>
#include <tuple>

#include "framework/base/errors.h"
#include "framework/base/wording.h"

namespace lockstep {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

const YamlEntry* find_entry(const std::vector<YamlEntry>& entries, const std::string& key) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const YamlEntry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

bool before(const YamlPosition& a, const YamlPosition& b) {
  return std::tie(a.line, a.column) < std::tie(b.line, b.column);
}

}  // namespace

Override parse_set(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  const std::string origin = "--set " + cut(argument, 200);
  if (equals == std::string::npos || equals == 0) {
    throw ValueError(origin + ": expected section.key=value, for example optimizer.lr=0.1");
  }
  return {argument.substr(0, equals), argument.substr(equals + 1), origin};
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
  const YamlPosition place = source.at(1, 1);
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
    const bool is_of_file = entry.place.line < place.line;  // all flags are on one
    return entry.key == key || (excludes && is_of_file && contains(schema->exclusive, entry.key));
  });
  node->entries.push_back({key, place, value});
  section.value = node;
}

YamlEntry& YamlDocument::section_entry(const std::string& name, const YamlPosition& place) {
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
    if (!is_first(entry.place)) continue;
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
    if (contains(schema.keys, entry.key) || !is_first(entry.place)) continue;
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

bool YamlDocument::is_first(const YamlPosition& place) const {
  return !problem_ || before(place, problem_->place);
}

void YamlDocument::report(const YamlPosition& place, const std::string& message) {
  if (is_first(place)) problem_ = {place, message};
}

void YamlDocument::finish() const {
  if (problem_) yaml_fail(problem_->place, problem_->message);
  // Guards the caller: a key of the schema that nobody reads would be taken in silence.
  for (const YamlEntry& section : sections_) {
    for (const YamlEntry& entry : section.value->entries) {
      if (read_.count(section.key + "." + entry.key) != 0) continue;
      throw Error(str(entry.place.text, ": ", section.key, ".", entry.key, " was never read"));
    }
  }
}

}  // namespace lockstep
