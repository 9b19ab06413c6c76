#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Which model, as a config's `model` section says it.
struct ModelOptions {
  std::string name = "linear";
  std::vector<std::int64_t> hidden{1024, 1024};  // mlp: widths of the hidden layers

  bool operator==(const ModelOptions&) const = default;
};

/// The names that make_model (models/model.h) knows.
[[nodiscard]] const std::vector<std::string>& model_names();

}  // namespace lockstep
