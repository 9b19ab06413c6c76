#include "framework/training/torch_optimizer_state.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "framework/base/text.h"

namespace lockstep::training {
namespace {

// What a parameter's state consists of.
struct Fields {
  std::int64_t* step;
  std::vector<std::pair<std::string, at::Tensor*>> tensors;
};

Fields fields_of(torch::optim::SGDParamState& state) {
  return {nullptr, {{"momentum_buffer", &state.momentum_buffer()}}};
}

Fields fields_of(torch::optim::AdagradParamState& state) {
  return {&state.step(), {{"sum", &state.sum()}}};
}

Fields fields_of(torch::optim::RMSpropParamState& state) {
  return {&state.step(),
          {{"square_avg", &state.square_avg()},
           {"momentum_buffer", &state.momentum_buffer()},
           {"grad_avg", &state.grad_avg()}}};
}

template <typename State>
Fields fields_of(State& state) {  // Adam's and AdamW's
  return {&state.step(),
          {{"exp_avg", &state.exp_avg()},
           {"exp_avg_sq", &state.exp_avg_sq()},
           {"max_exp_avg_sq", &state.max_exp_avg_sq()}}};
}

// How an optimizer's map of states calls a parameter. LibTorch 1.13 has texts.
template <typename Map>
auto key_in(const Map& /*states*/, const at::Tensor& parameter) {
  void* const address = parameter.unsafeGetTensorImpl();
  if constexpr (std::is_same_v<typename Map::key_type, std::string>) {
    return lockstep::str(address);
  } else {
    return address;
  }
}

// Calls `use` with the state that `optimizer` has for a parameter, or, if it `makes` one, a new
// one. False if the optimizer is no `Algorithm`.
template <typename Algorithm, typename State>
bool use_state_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, bool makes,
                  const std::function<void(Fields)>& use) {
  if (dynamic_cast<Algorithm*>(&optimizer) == nullptr) return false;
  auto& states = optimizer.state();
  const auto key = key_in(states, parameter);
  if (makes && states.find(key) == states.end()) states[key] = std::make_unique<State>();
  const auto found = states.find(key);
  if (found != states.end()) use(fields_of(static_cast<State&>(*found->second)));
  return true;
}

void use_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, bool makes,
               const std::function<void(Fields)>& use) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace)
  const bool is_known =
      use_state_of<SGD, SGDParamState>(optimizer, parameter, makes, use) ||
      use_state_of<Adam, AdamParamState>(optimizer, parameter, makes, use) ||
      use_state_of<AdamW, AdamWParamState>(optimizer, parameter, makes, use) ||
      use_state_of<RMSprop, RMSpropParamState>(optimizer, parameter, makes, use) ||
      use_state_of<Adagrad, AdagradParamState>(optimizer, parameter, makes, use);
  require(is_known,
          "ShardedOptimizer: the state of this optimizer can't be saved; that of LibTorch's SGD, "
          "Adam, AdamW, RMSprop and Adagrad can");
}

}  // namespace

void archive_torch_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                         const std::string& name, const StateArchive& archive) {
  const c10::AutoGradMode no_grad(false);
  const bool restores = archive.restores();
  // A parameter that was never updated had none.
  const bool makes = restores && (archive.has(kOptimizerStep + name) ||
                                  archive.has(kOptimizer + "momentum_buffer/" + name));
  use_state(optimizer, parameter, makes, [&](const Fields& fields) {
    if (fields.step != nullptr && (!restores || archive.has(kOptimizerStep + name))) {
      archive.number(kOptimizerStep + name, *fields.step);
    }
    for (const auto& [field, tensor] : fields.tensors) {
      const std::string whole_name = kOptimizer + field + "/" + name;
      if (restores && !archive.has(whole_name)) tensor->reset();
      if (restores && archive.has(whole_name) && !tensor->defined()) {
        *tensor = at::zeros_like(parameter.detach());
      }
      if (tensor->defined()) archive.whole(whole_name, *tensor);
    }
  });
  if (!restores || makes) return;
  auto& states = optimizer.state();
  states.erase(key_in(states, parameter));
}

}  // namespace lockstep::training
