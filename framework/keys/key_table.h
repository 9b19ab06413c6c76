#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/keys/key.h"

namespace lockstep::keys {

/// A value from the command line for one key of a config.
struct Override {
  std::string key;     ///< "optimizer.lr"
  std::string value;   ///< YAML: "0.1", "[0.9, 0.99]", "null"
  std::string origin;  ///< as the user wrote it, for messages: "--set optimizer.lr=0.1"
};

/// Parses the argument of --set: "optimizer.lr=0.1". ValueError if it has no '=' or no key before
/// it. Messages show only the beginning of a long one.
[[nodiscard]] Override parse_set(const std::string& argument);

/// The place of each key: by "section.key", or by "section.key.key" for keys of a list of maps, in
/// its order.
using KeyPlaces = std::map<std::string, std::vector<YamlPosition>>;

/// A table of keys is a list of sections, whose values are variables of the caller's.

/// Sets the variables of the keys in `text`, which messages call `name`, and in the overrides.
/// Overrides win over the text, later ones over earlier ones. A key removes the key of the text
/// that it stands instead of. ValueError (YamlProblems) with every key and value that is unknown,
/// of the wrong type, impossible or missing. If the text is not YAML (parse_yaml), only this is
/// reported.
KeyPlaces read_keys(const std::string& text, const std::string& name,
                    const std::vector<Section>& table, const std::vector<Override>& overrides = {});

/// Checks variables however they were set: ValueError where a key that applies does not obey its
/// rule, or not together with others, and where one that does not apply has another value than in
/// `defaults`, the same section of other variables. "optimizer sgd: lr must be …".
void check_section(const Section& section, const Section& defaults);

/// The keys that apply, with their values, as a text for read_keys.
[[nodiscard]] std::string keys_text(const std::vector<Section>& table);

/// Each key's value as YAML, by "section.key", including keys that do not apply.
[[nodiscard]] std::map<std::string, std::string> key_values(const std::vector<Section>& table);

/// The keys, as "section.key", of which holds(traits, whether the key applies).
[[nodiscard]] std::set<std::string> keys_of_which(
    const std::vector<Section>& table,
    const std::function<bool(const KeyTraits& traits, bool applies)>& holds);

/// Two lines a key for people: its purpose, its possible values and its default, which is the
/// variable's value. Gives lists of maps one entry.
[[nodiscard]] std::string keys_help(const std::vector<Section>& table);

/// The same of one section's keys, and only of those that belong to `choice`, with its defaults.
[[nodiscard]] std::string keys_help(const Section& section, const std::string& choice);

}  // namespace lockstep::keys
