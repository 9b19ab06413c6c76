#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The model, as in a config's `model` section.
struct ModelOptions {
  std::string name = "linear";
  std::vector<std::int64_t> hidden{1024, 1024};  // mlp: widths of the hidden layers
  std::vector<std::int64_t> channels{32, 64};    // cnn: of the convolutions' outputs
  std::vector<std::int64_t> dense{128};          // cnn: widths of the hidden layers after them

  bool operator==(const ModelOptions&) const = default;
};

/// The names that make_model (models/model.h) knows.
[[nodiscard]] const std::vector<std::string>& model_names();

}  // namespace lockstep
