#pragma once

#include <string>
#include <vector>

#include "trainers/config/config.h"

namespace lockstep::testing {

/// What every config has to say.
inline const std::string kNames = "model: {name: linear}\ndata: {name: pmean_example}\n";

/// The config of a file's text and the arguments of --set.
[[nodiscard]] inline Config parse(const std::string& text,
                                  const std::vector<std::string>& sets = {}) {
  std::vector<keys::Override> overrides;
  for (const std::string& argument : sets) overrides.push_back(keys::parse_set(argument));
  return parse_config(text, "c.yaml", overrides);
}

}  // namespace lockstep::testing
