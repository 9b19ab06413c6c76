#include "models/model.h"

#include <vector>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "models/cnn.h"
#include "models/linear.h"
#include "models/mlp.h"

namespace lockstep {
namespace {

struct Registered {
  std::string name;
  std::shared_ptr<Model> (*make)(const ModelOptions& options, std::int64_t features,
                                 std::int64_t outputs, const Key& key);
};

// A new model is a file of its own and a line here.
const std::vector<Registered>& registry() {
  static const std::vector<Registered> models{
      {"linear", make_linear},
      {"mlp", make_mlp},
      {"cnn", make_cnn},
  };
  return models;
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Registered& model : registry()) all.push_back(model.name);
    return all;
  }();
  return names;
}

std::shared_ptr<Model> make_model(const ModelOptions& options, std::int64_t features,
                                  std::int64_t outputs, std::uint64_t seed) {
  if (features < 1) {
    throw ValueError(str("model ", options.name, ": features must be at least 1, not ", features));
  }
  if (outputs < 1) {
    throw ValueError(str("model ", options.name, ": outputs must be at least 1, not ", outputs));
  }
  for (const Registered& model : registry()) {
    if (model.name == options.name) return model.make(options, features, outputs, Key(seed));
  }
  throw ValueError(str("unknown model '", options.name, "'",
                       did_you_mean(options.name, model_names()), "; known are ",
                       join(model_names())));
}

at::Tensor outputs_of(Model& model, const at::Tensor& inputs) {
  const auto parameters = model.parameters();
  const at::ScalarType dtype = parameters.empty() ? at::kFloat : parameters[0].scalar_type();
  if (dtype == at::kFloat) return model.forward(inputs);
  return model.forward(inputs.to(dtype)).to(at::kFloat);
}

std::map<std::string, at::Tensor> parameter_map(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& item : module.named_parameters()) parameters.emplace(item.key(), item.value());
  return parameters;
}

std::map<std::string, at::Tensor> buffer_map(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> buffers;
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) buffers.emplace(item.key(), item.value());
  }
  return buffers;
}

}  // namespace lockstep
