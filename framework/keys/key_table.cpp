#include "framework/keys/key_table.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <ranges>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/other_words.h"
#include "framework/base/text.h"
#include "framework/keys/yaml_problems.h"

namespace lockstep::keys {
namespace {

template <typename Named>
const Named* find(const std::vector<Named>& all, const std::string& name,
                  std::string Named::*member = &Named::name) {
  const auto found = std::ranges::find(all, name, member);
  return found == all.end() ? nullptr : &*found;
}

const YamlEntry* find(const YamlNode& map, const std::string& key) {
  return find(map.entries, key, &YamlEntry::key);
}

template <typename Named>
std::vector<std::string> all_names(const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const Named& one : all) {
    if (!std::ranges::count(names, one.name)) names.push_back(one.name);
  }
  return names;
}

bool belongs(const ConfigKey& key, const std::string& choice) {
  const auto& owners = key.traits.owners;
  return owners.empty() || std::ranges::count(owners, choice) > 0;
}

// The names of the keys that belong to `choice`.
std::vector<std::string> names_of(const ConfigKeys& keys, const std::string& choice) {
  const auto has = [&](const ConfigKey& key) { return belongs(key, choice); };
  return mapped(keys | std::views::filter(has), &ConfigKey::name);
}

// Calls use(name, key, is_used) for every key: "section.key", and whether what its section picks
// has it.
template <typename Use>
void for_each_key(const std::vector<Section>& table, const Use& use) {
  for (const Section& section : table) {
    const std::string choice = section.keys[0].value.print();
    for (const ConfigKey& key : section.keys) {
      use(section.name + "." + key.name, key, belongs(key, choice));
    }
  }
}

// What a section's map picks, before it is read.
std::string written_choice(const YamlNode& map, const ConfigKeys& keys) {
  const YamlEntry* entry = find(map, keys[0].name);
  return entry != nullptr && entry->value != nullptr ? entry->value->text : keys[0].value.print();
}

// The choices that have a key of this name, if none of these keys belongs to `choice`.
std::vector<std::string> other_owners(const ConfigKeys& keys, const std::string& name,
                                      const std::string& choice) {
  std::vector<std::string> owners;
  for (const ConfigKey& key : keys) {
    if (key.name != name) continue;
    if (belongs(key, choice)) return {};
    owners.insert(owners.end(), key.traits.owners.begin(), key.traits.owners.end());
  }
  return owners;
}

// Sets a variable to what the table itself says.
void read_yaml(const std::string& text, const Value& value) {
  YamlProblems problems;
  const auto node = parse_yaml(text, {"a key's default"}, problems);
  if (node) {
    value.read(*node, [&](const YamlPosition& place, const std::string& message) {
      problems.report(place, [&] { return message; });
    });
  }
  problems.finish();
}

// One reading of a text and its overrides.
class Reading {
 public:
  explicit Reading(const std::vector<Section>& table) : table_(table) {}

  KeyPlaces read(const std::string& text, const std::string& name,
                 const std::vector<Override>& overrides) {
    load(text, name);
    for (std::size_t i = 0; i < overrides.size(); ++i) apply(overrides[i], static_cast<int>(i));
    return finish();
  }

 private:
  struct WrittenSection {
    std::string name;
    YamlPosition place;
    YamlNode map;
  };

  void load(const std::string& text, const std::string& name) {
    const YamlSource source{name};
    begin_ = source.at(1, 1);
    const auto root = parse_yaml(text, source, problems_);
    const std::string sections = join(all_names(table_));
    if (root && root->kind == YamlNode::Kind::map) {
      for (const YamlEntry& entry : root->entries) {
        sections_.push_back({entry.key, entry.place, long_form(entry)});
      }
      return;
    }
    if (root && root->kind != YamlNode::Kind::null) {
      report(root->place,
             str("expected a map of sections (", sections, "), found ", yaml_described(*root)));
    } else if (problems_.count() == 0) {
      report(begin_, "the file is empty: its sections are " + sections);
    }
    problems_.finish();
  }

  void apply(const Override& override, int index) {
    const YamlSource source{override.origin, index};
    const YamlPosition place = source.at(1, 1);
    const std::size_t dot = override.key.find('.');
    const std::string name = override.key.substr(0, dot);
    const std::string key = dot == std::string::npos ? "" : override.key.substr(dot + 1);
    const Section* section = find(table_, name);
    if (dot == std::string::npos && section != nullptr) {
      const ConfigKey& first = section->keys.front();
      if (first.traits.is_short_form) {
        return apply(
            {.key = name + "." + first.name, .value = override.value, .origin = override.origin},
            index);
      }
      return report(place, str(name, " is a section: set one of its keys, as in ", name, ".",
                               first.name, "=…"));
    }
    if (name.empty() || key.empty() || key.find('.') != std::string::npos) {
      return report(place, str("expected section.key=value, the key is ", yaml_shown(override.key),
                               set_instead(override)));
    }
    const std::size_t problems = problems_.count();
    const auto value = parse_yaml(override.value, source, problems_);
    if (!value && problems_.count() == problems) {
      report(place, override.value.empty() ? "the value is missing after '='" + words_of(name, key)
                                           : "no value stands here" + yaml_quoting(override.value));
    }
    if (!value) return;
    YamlNode& map = written(name, place).map;
    if (map.kind != YamlNode::Kind::map) return;  // which check_keys() reports
    const ConfigKey* known = section != nullptr ? find(section->keys, key) : nullptr;
    std::erase_if(map.entries, [&](const YamlEntry& entry) {
      const bool is_of_file = entry.place.line < place.line;  // all flags are on one
      const bool is_excluded =
          known != nullptr && std::ranges::count(known->traits.instead_of, entry.key) > 0;
      return entry.key == key || (is_excluded && is_of_file);
    });
    map.entries.push_back({key, place, value});
  }

  // Sets the variables.
  KeyPlaces finish() {
    const std::vector<std::string> names = all_names(table_);
    for (const WrittenSection& section : sections_) {
      if (const Section* known = find(table_, section.name)) {
        check_keys(section.name, section.map, known->keys);
      } else {
        report_unknown(section.name, section.place, "", names, names);
      }
    }
    for (const Section& section : table_) {
      const WrittenSection& own = written(section.name, begin_);
      read_map(section.name, own.place, own.map, section.keys);
    }
    problems_.finish();
    return std::move(places_);
  }

  // A section as a map, though it is written as the value of its first key: "checkpoint: none".
  YamlNode long_form(const YamlEntry& entry) const {
    const Section* section = find(table_, entry.key);
    if (section == nullptr || !section->keys[0].traits.is_short_form ||
        entry.value->kind != YamlNode::Kind::scalar) {
      return *entry.value;
    }
    YamlNode map;
    map.kind = YamlNode::Kind::map;
    map.place = entry.value->place;
    map.entries.push_back({section->keys[0].name, entry.value->place, entry.value});
    return map;
  }

  void report(const YamlPosition& place, const std::string& message) {
    problems_.report(place, [&] { return message; });
  }

  WrittenSection& written(const std::string& name, const YamlPosition& place) {
    for (WrittenSection& section : sections_) {
      if (section.name == name) return section;
    }
    sections_.push_back({name, place, {}});
    sections_.back().map.kind = YamlNode::Kind::map;
    return sections_.back();
  }

  void check_keys(const std::string& path, const YamlNode& map, const ConfigKeys& keys) {
    if (map.kind != YamlNode::Kind::map) {
      constexpr std::size_t kMostShown = 10;
      const ConfigKey& first = keys[0];
      return report(map.place, str(path, ": expected ",
                                   first.traits.is_short_form ? first.value.words + ", or " : "",
                                   "a map of keys (", listed(all_names(keys), kMostShown),
                                   "), found ", yaml_described(map)));
    }
    const std::vector<std::string> known = all_names(keys);
    const std::vector<std::string> shown = names_of(keys, written_choice(map, keys));
    for (const YamlEntry& entry : map.entries) {
      const ConfigKey* key = find(keys, entry.key);
      if (key == nullptr) {
        report_unknown(entry.key, entry.place, path, known, shown);
        continue;
      }
      for (const std::string& excluded : key->traits.instead_of) {
        const YamlEntry* other = find(map, excluded);
        if (other == nullptr || other > &entry) continue;
        report(entry.place, str(path, ".", entry.key, ": not together with ", path, ".", other->key,
                                " (", other->place.text, "): keep one of them"));
      }
    }
  }

  // Of a key that is none of the `known` in `path`, which is "" at the top level. `shown` may be
  // used.
  void report_unknown(const std::string& key, const YamlPosition& place, const std::string& path,
                      const std::vector<std::string>& known,
                      const std::vector<std::string>& shown) {
    problems_.report(place, [&] {
      const bool is_top = path.empty();
      std::string meant = badly_written(key, path, known);
      if (meant.empty()) meant = home_of(key);
      for (const auto& names : {shown, known}) {
        const std::string near = nearest(key, names);
        if (!meant.empty() || near.empty()) continue;
        meant_.insert(is_top ? near : path + "." + near);
        meant = str(" (did you mean '", near, "'?)");
      }
      if (meant.empty()) meant = meant_elsewhere(key);
      if (meant.empty()) meant = (is_top ? ": the sections are " : ": its keys are ") + join(shown);
      return str("unknown key ", yaml_shown(key), is_top ? "" : " in " + path, meant);
    });
  }

  // Of a key that YAML has read otherwise than it was meant: "lr:0.1" or, at the top level,
  // "optimizer.lr". "" for others.
  std::string badly_written(const std::string& key, const std::string& path,
                            const std::vector<std::string>& known) {
    const std::size_t end = key.find_first_of(path.empty() ? ":." : ":");
    if (end == std::string::npos || std::ranges::count(known, key.substr(0, end)) == 0) return "";
    if (key[end] == ':') return str(": a blank is missing behind '", key.substr(0, end + 1), "'");
    meant_.insert(key);
    return str(": write ", key.substr(0, end), ": {", cut(key.substr(end + 1)), ": …}");
  }

  // Of an unknown key that is another program's word for one elsewhere, all but the same, or near
  // to a section: what may be meant. Others that only look alike are about other things.
  std::string meant_elsewhere(const std::string& key) {
    const std::string other = nearest_of_all(key);
    const bool is_known =
        find(table_, other) != nullptr || std::ranges::count(own_words(key), other) > 0;
    return is_known || is_misspelt(key, other)
               ? str(" (did you mean '", other, "'?)", home_of(other))
               : "";
  }

  // Of a key and the nearest of all: whether only some letters in it differ. Hardly anyone mistypes
  // the first.
  static bool is_misspelt(const std::string& key, const std::string& nearest) {
    const auto [shorter, longer] = std::minmax({key.size(), nearest.size()});
    return shorter > 0 && longer - shorter <= 2 && folded(key)[0] == folded(nearest)[0];
  }

  // Of an override without a section: how it would be written.
  std::string set_instead(const Override& override) const {
    const std::string key =
        sections_of(override.key).empty() ? nearest_of_all(override.key) : override.key;
    std::vector<std::string> ways =
        mapped(sections_of(key), [&](const std::string& section) { return section + "." + key; });
    if (find(table_, key) != nullptr) ways = {key};
    for (std::string& way : ways) way = str("--set ", way, "=", cut(override.value));
    return ways.empty() ? "" : str(" (did you mean '", join(ways, "' or '"), "'?)");
  }

  // ": …", what may stand as this key's value.
  std::string words_of(const std::string& section, const std::string& key) const {
    std::set<std::string> words;
    for (const Section& each : table_) {
      for (const ConfigKey& own : each.keys) {
        if (each.name == section && own.name == key) words.insert(own.value.words);
      }
    }
    return words.empty() ? "" : ": " + join(words, ", or ");
  }

  std::string nearest_of_all(const std::string& key) const {
    std::vector<std::string> names = all_names(table_);
    for (const Section& section : table_) {
      for (const std::string& name : all_names(section.keys)) names.push_back(name);
    }
    return nearest(key, names);
  }

  // Those that have a key of this name.
  std::vector<std::string> sections_of(const std::string& key) const {
    std::vector<std::string> names;
    for (const Section& section : table_) {
      if (find(section.keys, key) != nullptr) names.push_back(section.name);
    }
    return names;
  }

  // ": it belongs …" for a key that is known elsewhere, "" for one that is not.
  std::string home_of(const std::string& key) {
    if (find(table_, key) != nullptr) return ": it is a section of its own, at the top level";
    const std::vector<std::string> homes = sections_of(key);
    for (const std::string& home : homes) meant_.insert(home + "." + key);
    return homes.empty() ? "" : ": it belongs under " + join(homes, " or ");
  }

  // `place` is where a key that is missing would stand.
  void read_map(const std::string& path, const YamlPosition& place, const YamlNode& map,
                const ConfigKeys& keys) {
    if (map.kind != YamlNode::Kind::map) return;  // which check_keys() has reported
    std::set<std::string> wrong;
    const auto is_wrong = [&](const std::string& name) { return wrong.count(name) > 0; };
    for (const ConfigKey& key : keys) {
      const std::string name = path + "." + key.name;
      const YamlEntry* entry = find(map, key.name);
      // After a problem with the choice itself nobody knows which keys belong.
      const std::string choice = is_wrong(keys[0].name) ? "" : keys[0].value.print();
      const std::size_t problems = problems_.count();
      if (!belongs(key, choice)) {
        if (entry == nullptr || choice.empty()) continue;
        const auto owners = other_owners(keys, key.name, choice);
        if (owners.empty() || find(keys, key.name) != &key) continue;  // which is told by the first
        report(entry->place,
               str(name, ": belongs to ", path, " ", join(owners, " or "), ", not to ", choice));
      } else if (entry != nullptr) {
        places_[name].push_back(entry->place);
        read_value(name, *entry->value, key.value);
        for (const std::string& excluded : key.traits.instead_of) {
          const ConfigKey* const other = find(keys, excluded);
          if (other != nullptr && other->value.clear) other->value.clear();
        }
      } else if (key.traits.required) {
        wrong.insert(key.name);
        if (meant_.count(path) + meant_.count(name) > 0) continue;
        report(place, str(name, " is missing: ", key.value.words));
      } else if (const auto other = key.traits.defaults.find(choice);
                 other != key.traits.defaults.end()) {
        read_yaml(other->second, key.value);
      }
      if (problems_.count() > problems) wrong.insert(key.name);
    }
    for (const ConfigKey& key : keys) {
      const YamlEntry* entry = find(map, key.name);
      const auto& others = key.traits.others;
      const bool is_checked = key.traits.problem && entry != nullptr && !is_wrong(key.name);
      if (!is_checked || std::any_of(others.begin(), others.end(), is_wrong)) continue;
      const std::string problem = key.traits.problem();
      if (!problem.empty()) report(entry->place, str(path, ".", key.name, ": ", problem));
    }
  }

  void read_value(const std::string& path, const YamlNode& node, const Value& value) {
    const auto report_value = [&](const YamlPosition& place, const std::string& message) {
      report(place, path + ": " + message);
    };
    if (!value.resize) return value.read(node, report_value);
    if (!is_list(node, "maps", report_value)) return;
    const auto maps = value.resize(node.items.size());
    for (std::size_t i = 0; i < maps.size(); ++i) {
      check_keys(path, *node.items[i], maps[i]);
      read_map(path, node.items[i]->place, *node.items[i], maps[i]);
    }
  }

  const std::vector<Section>& table_;
  YamlProblems problems_;
  std::vector<WrittenSection> sections_;
  YamlPosition begin_;  // of the text
  // Sections and keys ("section.key") that unknown ones seem to stand for: not told as missing.
  std::set<std::string> meant_;
  KeyPlaces places_;
};

// Of all keys, or of those that belong to `choice`.
std::string help_of(const std::string& path, const ConfigKeys& keys,
                    const std::optional<std::string>& choice = std::nullopt) {
  std::string text;
  for (const ConfigKey& key : keys) {
    if (choice && !belongs(key, *choice)) continue;
    const std::string name = path + "." + key.name;
    const KeyTraits& traits = key.traits;
    const auto own = choice ? traits.defaults.find(*choice) : traits.defaults.end();
    const std::string value = own == traits.defaults.end() ? key.value.print() : own->second;
    text += str(name, ": ", key.help, "\n    ", key.value.words);
    text += traits.required ? "; needed" : value.empty() ? "" : "; default " + value;
    if (!choice) {
      for (const auto& [other, its] : traits.defaults) text += str(", of ", other, " ", its);
      if (!traits.owners.empty()) text += "; only for " + join(traits.owners);
    }
    for (const std::string& other : traits.instead_of) {
      text +=
          str(&other == &traits.instead_of.front() ? "; instead of " : " or ", path, ".", other);
    }
    text += "\n";
    if (key.value.resize) text += help_of(name, key.value.resize(1).front());
  }
  return text;
}

}  // namespace

Override parse_set(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  const std::string origin = "--set " + cut(argument, 200);
  require(equals != std::string::npos && equals != 0, origin,
          ": expected section.key=value, for example optimizer.lr=0.1");
  return {argument.substr(0, equals), argument.substr(equals + 1), origin};
}

KeyPlaces read_keys(const std::string& text, const std::string& name,
                    const std::vector<Section>& table, const std::vector<Override>& overrides) {
  return Reading(table).read(text, name, overrides);
}

void check_section(const Section& section, const Section& defaults) {
  const std::string choice = section.keys[0].value.print();
  for (std::size_t i = 0; i < section.keys.size(); ++i) {
    const ConfigKey& key = section.keys[i];
    const std::string user = str(section.name, " ", choice);
    if (belongs(key, choice)) {
      check(user, {key});
    } else {
      require(key.value.print() == defaults.keys[i].value.print(), user, ": ", key.name,
              " is not an option of it");
    }
  }
}

std::string keys_text(const std::vector<Section>& table) {
  std::string text;
  for (const Section& section : table) {
    text += section.name + ":\n";
    for (const ConfigKey& key : section.keys) {
      const std::string value = key.value.print();
      if (value.empty() || !belongs(key, section.keys[0].value.print())) continue;
      text += "  " + key.name + (value[0] == '\n' ? ":" : ": ") + value + "\n";
    }
  }
  return text;
}

std::map<std::string, std::string> key_values(const std::vector<Section>& table) {
  std::map<std::string, std::string> values;
  for_each_key(table, [&](const std::string& name, const ConfigKey& key, bool is_used) {
    std::string& value = values[name];
    if (value.empty() || is_used) value = key.value.print();
  });
  return values;
}

std::set<std::string> keys_of_which(
    const std::vector<Section>& table,
    const std::function<bool(const KeyTraits& traits, bool applies)>& holds) {
  std::set<std::string> names;
  for_each_key(table, [&](const std::string& name, const ConfigKey& key, bool applies) {
    if (holds(key.traits, applies)) names.insert(name);
  });
  return names;
}

std::string keys_help(const std::vector<Section>& table) {
  std::string text;
  for (const Section& section : table) text += help_of(section.name, section.keys);
  return text;
}

std::string keys_help(const Section& section, const std::string& choice) {
  return help_of(section.name, section.keys, choice);
}

}  // namespace lockstep::keys
