#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// Where something was written. Places order as they are read: the file's lines, then the flags.
struct YamlPosition {
  std::string
      text;  ///< what messages begin with: "configs/a.yaml:3:5", or the flag as it was typed
  std::int64_t line = 0;  ///< counted from 1, as the column is
  std::int64_t column = 0;
};

/// What a text is: a file, or the value of one of several flags.
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

/// The one YAML document in `text`, or null where there is none (nothing but comments and blanks).
/// Anchors and aliases are resolved. Stricter than YAML: ValueError, beginning with the place, for
/// duplicate keys, keys that are no scalars, tags, tabs in the indentation, control characters, a
/// second document and more than 64 levels of nesting, and for what is not YAML.
[[nodiscard]] std::shared_ptr<const YamlNode> parse_yaml(std::string text,
                                                         const YamlSource& source);

/// Throws the ValueError "place: message".
[[noreturn]] void yaml_fail(const YamlPosition& place, const std::string& message);

/// `text` in single quotes for a message of one line: control characters escaped, cut if long.
[[nodiscard]] std::string yaml_shown(const std::string& text);

/// What a node is, for a message: "'fast'", "the string '3'", "a list", "a map", "nothing".
[[nodiscard]] std::string yaml_described(const YamlNode& node);

/// A finite number as a YAML value: the fewest digits that read back as the same double.
[[nodiscard]] std::string yaml_number(double value);

/// `text` as a YAML string in double quotes.
[[nodiscard]] std::string yaml_quoted(const std::string& text);

}  // namespace lockstep
