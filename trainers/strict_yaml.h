#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "trainers/yaml_tree.h"

namespace lockstep {

/// A value from the command line for one key of a config.
struct Override {
  std::string key;     ///< "optimizer.lr"
  std::string value;   ///< YAML: "0.1", "[0.9, 0.99]", "null"
  std::string origin;  ///< as the user wrote it, for messages: "--set optimizer.lr=0.1"
};

/// The argument of --set: "optimizer.lr=0.1". ValueError if it has no '=' or no key before it.
/// Messages show the beginning of a long one.
[[nodiscard]] Override parse_set(const std::string& argument);

/// A section of a file and the keys that may stand in it, in the order that messages list them.
struct SectionSchema {
  std::string name;
  std::vector<std::string> keys;
  std::vector<std::string> exclusive;  ///< of these keys at most one may stand
};

/// What must hold for a value, with the words for it: "must be " + text.
template <typename T>
struct Rule {
  std::string text;
  std::function<bool(const T&)> holds;
};

template <typename T>
[[nodiscard]] Rule<T> at_least(T low) {
  return {str("at least ", low), [low](const T& value) { return value >= low; }};
}
template <typename T>
[[nodiscard]] Rule<T> greater_than(T low) {
  return {str("greater than ", low), [low](const T& value) { return value > low; }};
}
template <typename T>
[[nodiscard]] Rule<T> from_to(T low, T high) {
  return {str("from ", low, " to ", high),
          [low, high](const T& value) { return low <= value && value <= high; }};
}
template <typename T>
[[nodiscard]] Rule<T> from_to_below(T low, T high) {
  return {str("at least ", low, " and less than ", high),
          [low, high](const T& value) { return low <= value && value < high; }};
}

class YamlDocument;

/// One section of a YamlDocument: hands out the values of its keys. Where a key is left out, a
/// reader returns `fallback`; where its value is of the wrong type or breaks the rule, it reports
/// that to the document and returns `fallback`, so that one pass sees everything. Numbers must be
/// finite and not in quotes; integers are written in digits only.
class YamlSection {
 public:
  [[nodiscard]] bool has(const std::string& key) const;

  /// One of `allowed`; without a fallback the key is required. Returns "" after a problem.
  [[nodiscard]] std::string choice(const std::string& key, const std::vector<std::string>& allowed,
                                   const std::optional<std::string>& fallback = std::nullopt);
  [[nodiscard]] std::string string(const std::string& key, const std::string& fallback,
                                   const Rule<std::string>& rule);
  [[nodiscard]] bool boolean(const std::string& key, bool fallback);
  [[nodiscard]] double number(const std::string& key, double fallback, const Rule<double>& rule);
  [[nodiscard]] std::optional<double> number_or_null(const std::string& key,
                                                     std::optional<double> fallback,
                                                     const Rule<double>& rule);
  /// T is int, std::int64_t or std::uint64_t.
  template <typename T>
  [[nodiscard]] T integer(const std::string& key, T fallback, const Rule<T>& rule);

  /// A list whose every value obeys `rule`: of exactly `count` numbers, of any number of integers
  /// up to 1000, as all lists.
  [[nodiscard]] std::vector<double> numbers(const std::string& key, std::vector<double> fallback,
                                            std::size_t count, const Rule<double>& rule);
  [[nodiscard]] std::vector<std::int64_t> integers(const std::string& key,
                                                   std::vector<std::int64_t> fallback,
                                                   const Rule<std::int64_t>& rule);

  /// The maps of a list, none if it is left out, each as a section that knows `keys` alone.
  [[nodiscard]] std::vector<YamlSection> sections(const std::string& key,
                                                  const std::vector<std::string>& keys);

  /// Whether `key` is to be read, which has a meaning only where one of `owners` is `chosen`: what
  /// choice() returned for this section. Reports the key if it stands in vain.
  [[nodiscard]] bool applies(const std::string& key, const std::vector<std::string>& owners,
                             const std::string& chosen);

  /// Where `key` was written, or the section that leaves it out, as messages begin.
  [[nodiscard]] const std::string& place(const std::string& key) const;

  /// Reports what is wrong with `key`.
  void problem(const std::string& key, const std::string& message);
  /// Reports that `key` is left out, unless there is any other problem: a misspelt key is reported
  /// rather than the one it leaves missing.
  void missing(const std::string& key, const std::string& message);

 private:
  friend class YamlDocument;
  YamlSection(YamlDocument& document, std::string name, YamlNode node)
      : document_(document), name_(std::move(name)), node_(std::move(node)) {}

  [[nodiscard]] const YamlEntry* find(const std::string& key) const;
  template <typename T, typename Convert>
  [[nodiscard]] T read(const std::string& key, T fallback, const Convert& convert);

  YamlDocument& document_;
  std::string name_;
  YamlNode node_;
};

/// A YAML file of sections with keys, read strictly: what is not understood is an error that says
/// where it stands. Read all sections, then call finish().
class YamlDocument {
 public:
  /// Reads `text`, which messages call `name`, and lets the overrides win over it, later ones over
  /// earlier ones; setting a key removes those of the text that exclude it. ValueError for what
  /// parse_yaml refuses, an empty text and overrides that are not of the form section.key=value.
  /// What is wrong first of everything else is kept for finish().
  YamlDocument(const std::string& text, const std::string& name, std::vector<SectionSchema> schema,
               const std::vector<Override>& overrides = {});

  /// The section of that name, with no keys if it is left out.
  [[nodiscard]] YamlSection section(const std::string& name);

  /// Whether no problem is known so far. Rules across keys are worth checking only then.
  [[nodiscard]] bool ok() const { return !problem_; }

  /// Throws the problem that is the first in the order written, as a ValueError "file:line:column:
  /// message" (counted from 1), or "--flag as written: message" for an override.
  void finish() const;

 private:
  friend class YamlSection;
  struct Problem {
    YamlPosition place;
    std::string message;
  };

  /// Whether a problem at `place` would be the first. Where texts have thousands of them, only what
  /// may be told is put into words.
  [[nodiscard]] bool is_first(const YamlPosition& place) const;
  void apply(const Override& override, int index);
  void check_keys();
  void check_section(const SectionSchema& schema, const YamlEntry& entry);
  [[nodiscard]] YamlEntry& section_entry(const std::string& name, const YamlPosition& place);
  [[nodiscard]] const SectionSchema* find_schema(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> section_names() const;
  [[nodiscard]] std::string home_of(const std::string& key) const;
  void report(const YamlPosition& place, const std::string& message);

  std::string name_;
  std::vector<SectionSchema> schema_;
  std::vector<YamlEntry> sections_;
  std::optional<Problem> problem_;  // the first in the order written of those found so far
  std::set<std::string> read_;      // "section.key" of the keys that were asked for
};

}  // namespace lockstep
