#include "models/model.h"

#include <ATen/ops/empty.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/tree/error_place.h"
#include "models/cnn.h"
#include "models/gpt.h"
#include "models/linear.h"
#include "models/mlp.h"
#include "models/resnet.h"

namespace lockstep {

ModelKind model_kind(
    std::string name, std::string help,
    std::function<std::shared_ptr<Model>(const SampleType& sample, const Key& key)> make) {
  return {keys::choice(std::move(name), std::move(help)),
          [make = std::move(make)](const keys::Picked& /*picked*/, const SampleType& sample,
                                   const Key& key) { return make(sample, key); }};
}

namespace {

keys::Registry<ModelKind>& known_models() {
  // A new model is a file of its own and a line here.
  static keys::Registry<ModelKind> kinds(
      "model", {linear_kind(), mlp_kind(), cnn_kind(), resnet_kind(), gpt_kind()});
  return kinds;
}

}  // namespace

const keys::Registry<ModelKind>& model_registry() {
  return known_models();
}

void register_model(ModelKind kind) {
  known_models().add(std::move(kind));
}

std::shared_ptr<Model> make_model(const keys::Picked& picked, const SampleType& sample,
                                  std::uint64_t seed) {
  for (const std::int64_t size : sample.input.shape) {
    require(size >= 1, "model ", picked.name, ": inputs (", join(sample.input.shape),
            ") have a size below 1");
  }
  require(sample.outputs() >= 1, "model ", picked.name, ": outputs must be at least 1, not ",
          sample.outputs());
  const auto& make = model_registry().at(picked.name).make;
  auto made = foreign_placed([&] { return "in the making of model '" + picked.name + "'"; },
                             [&] { return make(picked, sample, Key(seed)); });
  if (DeferredValues* const deferred = DeferredValues::current()) deferred->hand_over(*made);
  return made;
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
  const at::Tensor parameter = at::empty(sizes, at::TensorOptions(at::kFloat).device(at::kMeta));
  made_[parameter.unsafeGetTensorImpl()] = {parameter, std::move(make)};
  return parameter;
}

void DeferredValues::hand_over(Model& model) {
  for (const auto& item : model.named_parameters()) {
    const auto found = made_.find(item.value().unsafeGetTensorImpl());
    if (found != made_.end()) model.initial_values_[item.key()] = found->second.make;
  }
  made_.clear();
}

at::Tensor Model::initial_value(const std::string& name) const {
  const auto found = initial_values_.find(name);
  require(found != initial_values_.end(), "model ", this->name(), " has no deferred parameter '",
          name, "'");
  return found->second();
}

std::map<std::string, at::Tensor> parameter_map(const torch::nn::Module& module) {
  const auto parameters = module.named_parameters().pairs();
  return {parameters.begin(), parameters.end()};
}

std::map<std::string, at::Tensor> buffer_map(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> buffers;
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) buffers.emplace(item.key(), item.value());
  }
  return buffers;
}

}  // namespace lockstep
