#include "framework/keys/choice.h"

namespace lockstep::keys {

Choice choice(std::string name, std::string help) {
  return {std::move(name), std::move(help), std::any(false),
          [](std::any& /*options*/) { return Keys(); }};
}

void add_choices(Keys& section, ChoiceOptions& options, const std::vector<Choice>& choices,
                 std::size_t behind) {
  Keys of_choices;
  for (const Choice& choice : choices) {
    for (Key& key : choice.keys(options.of(choice))) {
      key.traits.owners = {choice.name};
      of_choices.push_back(std::move(key));
    }
  }
  section.insert(section.begin() + static_cast<std::ptrdiff_t>(behind), of_choices.begin(),
                 of_choices.end());
}

}  // namespace lockstep::keys
