#include "framework/keys/choice.h"

namespace lockstep::keys {

Choice choice(std::string name, std::string help) {
  return {std::move(name), std::move(help), std::any(false),
          [](std::any& /*options*/) { return ConfigKeys(); }};
}

void add_choices(ConfigKeys& section, ChoiceOptions& options, const std::vector<Choice>& choices,
                 std::size_t behind) {
  ConfigKeys of_choices;
  for (const Choice& choice : choices) {
    for (ConfigKey& key : choice.keys(options.of(choice))) {
      key.traits.owners = {choice.name};
      of_choices.push_back(std::move(key));
    }
  }
  section.insert(section.begin() + static_cast<std::ptrdiff_t>(behind), of_choices.begin(),
                 of_choices.end());
}

}  // namespace lockstep::keys
