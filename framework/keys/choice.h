#pragma once

#include <algorithm>
#include <any>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/keys/key.h"

namespace lockstep::keys {

/// Options of several choices, by the choices' names.
class ChoiceOptions {
 public:
  /// The options of the choice called `name`: an `Options`, which was made if there was none.
  template <typename Options>
  [[nodiscard]] Options& of(const std::string& name) {
    std::any& options = options_[name];
    if (!options.has_value()) options = Options();
    return std::any_cast<Options&>(options);
  }
  template <typename Options>
  [[nodiscard]] Options of(const std::string& name) const {
    const auto found = options_.find(name);
    return found == options_.end() ? Options() : std::any_cast<const Options&>(found->second);
  }

 private:
  std::map<std::string, std::any> options_;
};

/// Something that a config picks by name, such as a model: its name, what it is, and its options,
/// with a key each. The keys' variables are in `All`, which has the options of all choices.
template <typename All>
struct ChoiceIn {
  using Base = ChoiceIn;

  std::string name;
  std::string help;  ///< one line
  std::function<ConfigKeys(All& all)> keys;
};
using Choice = ChoiceIn<ChoiceOptions>;

/// A Choice whose options are an `Options`.
template <typename Options>
[[nodiscard]] Choice choice(const std::string& name, std::string help,
                            ConfigKeys (*keys)(Options&)) {
  return {name, std::move(help),
          [name, keys](ChoiceOptions& all) { return keys(all.of<Options>(name)); }};
}

/// A Choice without options.
[[nodiscard]] inline Choice choice(std::string name, std::string help) {
  return {std::move(name), std::move(help), [](ChoiceOptions& /*all*/) { return ConfigKeys(); }};
}

/// The same choice as one of `All`, in whose member `own` its options are.
template <typename All>
[[nodiscard]] ChoiceIn<All> own_choice(Choice choice) {
  return {std::move(choice.name), std::move(choice.help),
          [keys = std::move(choice.keys)](All& all) { return keys(all.own); }};
}

/// What a config has picked, with the options of every choice that it has set.
struct Picked {
  Picked() = default;
  explicit Picked(std::string picked) : name(std::move(picked)) {}
  template <typename Options>
  Picked(std::string picked, Options of_picked) : name(std::move(picked)) {
    all.of<Options>(name) = std::move(of_picked);
  }

  /// The options of the choice that is picked.
  template <typename Options>
  [[nodiscard]] Options options() const {
    return all.of<Options>(name);
  }

  std::string name;
  ChoiceOptions all;
};

/// All that may be picked for one purpose: the models, the data sets. `Kind` is a Choice with what
/// makes the thing. One thread adds, before others look.
template <typename Kind>
class Registry {
 public:
  /// `what` is for messages: "model".
  Registry(std::string what, std::vector<Kind> kinds) : what_(std::move(what)) {
    for (Kind& kind : kinds) add(std::move(kind));
  }

  /// ValueError for an empty name and one that is there already.
  void add(Kind kind) {
    require(!kind.name.empty(), "a ", what_, " needs a name");
    require(!std::ranges::count(names(), kind.name), "there is a ", what_, " '", kind.name,
            "' already");
    // What was handed out stays where it is.
    kinds_.push_back(std::make_unique<const Kind>(std::move(kind)));
  }

  /// ValueError, with the nearest name, if there is none.
  [[nodiscard]] const Kind& at(const std::string& name) const {
    for (const auto& kind : kinds_) {
      if (kind->name == name) return *kind;
    }
    throw ValueError(str("there is no ", what_, " '", name, "'", did_you_mean(name, names()),
                         "; there are ", join(names())));
  }

  [[nodiscard]] std::vector<std::string> names() const {
    return mapped(kinds_, [](const auto& kind) { return kind->name; });
  }

  [[nodiscard]] std::vector<typename Kind::Base> choices() const {
    return mapped(kinds_, [](const auto& kind) -> typename Kind::Base { return *kind; });
  }

 private:
  std::string what_;
  std::vector<std::unique_ptr<const Kind>> kinds_;
};

/// Adds `choices` to a section, with their keys behind so many of its own: at least the one that
/// picks a choice. A variable that several choices have is one key.
template <typename All>
void add_choices(Section& section, All& all, const std::vector<ChoiceIn<All>>& choices,
                 std::size_t behind = 1) {
  ConfigKeys& keys = section.keys;
  for (const ChoiceIn<All>& choice : choices) {
    section.choices.emplace_back(choice.name, choice.help);
    for (ConfigKey& key : choice.keys(all)) {
      const auto same = std::ranges::find_if(keys, [&](const ConfigKey& other) {
        return key.value.variable != nullptr && other.value.variable == key.value.variable;
      });
      if (same != keys.end()) {
        same->traits.owners.push_back(choice.name);
        continue;
      }
      key.traits.owners = {choice.name};
      keys.insert(keys.begin() + static_cast<std::ptrdiff_t>(behind++), std::move(key));
    }
  }
}

}  // namespace lockstep::keys
