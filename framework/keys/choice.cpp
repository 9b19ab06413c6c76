#include "framework/keys/choice.h"

namespace lockstep::keys {

void add_choices(Keys& section, Picked& picked, const std::vector<Choice>& choices) {
  for (const Choice& choice : choices) {
    for (Key& key : choice.keys(picked.options_of(choice))) {
      key.traits.owners = {choice.name};
      section.push_back(std::move(key));
    }
  }
}

}  // namespace lockstep::keys
