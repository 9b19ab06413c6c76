#include "models/model.h"

#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

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
    if (model.name != options.name) continue;
    auto made = model.make(options, features, outputs, Key(seed));
    if (DeferredValues* const deferred = DeferredValues::current()) deferred->hand_over(*made);
    return made;
  }
  throw ValueError(str("unknown model '", options.name, "'",
                       did_you_mean(options.name, model_names()), "; known are ",
                       join(model_names())));
}

namespace {

thread_local DeferredValues* current_deferred = nullptr;

}  // namespace

DeferredValues::DeferredValues() : outer_(std::exchange(current_deferred, this)) {}

DeferredValues::~DeferredValues() {
  current_deferred = outer_;
}

DeferredValues* DeferredValues::current() noexcept {
  return current_deferred;
}

at::Tensor DeferredValues::deferred(const std::vector<std::int64_t>& sizes,
                                    std::function<at::Tensor()> make) {
  made_.push_back(
      {at::empty(sizes, at::TensorOptions(at::kFloat).device(at::kMeta)), std::move(make)});
  return made_.back().parameter;
}

void DeferredValues::hand_over(Model& model) {
  for (const auto& item : model.named_parameters()) {
    for (const Made& made : made_) {
      if (item.value().is_same(made.parameter)) model.initial_values_[item.key()] = made.make;
    }
  }
  made_.clear();
}

at::Tensor Model::initial_value(const std::string& name) const {
  const auto found = initial_values_.find(name);
  if (found == initial_values_.end()) {
    throw ValueError(str("model ", this->name(), " has no deferred parameter '", name, "'"));
  }
  return found->second();
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
