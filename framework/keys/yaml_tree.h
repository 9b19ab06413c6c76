#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/keys/yaml_problems.h"

namespace lockstep::keys {

/// The source of a text: a file, or the value of a flag.
struct YamlSource {
  std::string name;  ///< the file's path, or the flag as it was typed
  int flag = -1;     ///< the flag's index, -1 for a file

  [[nodiscard]] YamlPosition at(std::int64_t line, std::int64_t column) const;
};

struct YamlEntry;

/// A YAML value that knows where it was written.
struct YamlNode {
  enum class Kind { null, scalar, list, map };

  Kind kind = Kind::null;
  YamlPosition place;
  std::string text;     ///< a scalar's, without its quotes
  bool quoted = false;  ///< a scalar in quotes is a string, whatever it looks like
  std::vector<std::shared_ptr<const YamlNode>> items;  ///< a list's
  std::vector<YamlEntry> entries;                      ///< a map's, in the order written
};

struct YamlEntry {
  std::string key;
  YamlPosition place;  ///< the key's
  std::shared_ptr<const YamlNode> value;
};

/// The one YAML document in `text`, or null if there is none (only comments and blanks). Anchors
/// and aliases are resolved. Stricter than YAML: duplicate keys, keys that are no scalars and tags
/// are problems, and left out of the tree. Null, with one problem, for text that is not YAML, tabs
/// in the indentation, control characters, a second document, an alias inside of its own anchor and
/// more than 64 levels of nesting.
[[nodiscard]] std::shared_ptr<const YamlNode> parse_yaml(std::string text, const YamlSource& source,
                                                         YamlProblems& problems);

/// What to write, in a shell, for a flag's value that YAML does not take: "; … quotes: '"*"'".
[[nodiscard]] std::string yaml_quoting(const std::string& text);

/// Describes a node for a message: "'fast'", "the string '3'", "a list", "a map", "nothing".
[[nodiscard]] std::string yaml_described(const YamlNode& node);

}  // namespace lockstep::keys
