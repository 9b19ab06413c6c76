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

#include "framework/base/errors.h"
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
  const bool is_known = use_state_of<torch::optim::SGD, torch::optim::SGDParamState>(
                            optimizer, parameter, makes, use) ||
                        use_state_of<torch::optim::Adam, torch::optim::AdamParamState>(
                            optimizer, parameter, makes, use) ||
                        use_state_of<torch::optim::AdamW, torch::optim::AdamWParamState>(
                            optimizer, parameter, makes, use) ||
                        use_state_of<torch::optim::RMSprop, torch::optim::RMSpropParamState>(
                            optimizer, parameter, makes, use) ||
                        use_state_of<torch::optim::Adagrad, torch::optim::AdagradParamState>(
                            optimizer, parameter, makes, use);
  require(is_known,
          "ShardedOptimizer: the state of this optimizer can't be saved; that of LibTorch's SGD, "
          "Adam, AdamW, RMSprop and Adagrad can");
}

}  // namespace

void visit_torch_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                       const std::string& name, const VisitState& visit) {
  use_state(optimizer, parameter, /*makes=*/false, [&](const Fields& fields) {
    if (fields.step != nullptr) visit_number(kOptimizerStep + name, *fields.step, visit);
    for (const auto& [field, tensor] : fields.tensors) {
      if (tensor->defined()) visit_whole(kOptimizer + field + "/" + name, *tensor, visit);
    }
  });
}

void restore_torch_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                         const std::string& name, const StateSource& source) {
  const c10::AutoGradMode no_grad(false);
  // A parameter that was never updated had none.
  const bool makes =
      source.has(kOptimizerStep + name) || source.has(kOptimizer + "momentum_buffer/" + name);
  if (!makes) {
    use_state(optimizer, parameter, /*makes=*/false, [](const Fields&) {});  // one that is known
    auto& states = optimizer.state();
    states.erase(key_in(states, parameter));
    return;
  }
  use_state(optimizer, parameter, /*makes=*/true, [&](const Fields& fields) {
    if (fields.step != nullptr && source.has(kOptimizerStep + name)) {
      restore_number(kOptimizerStep + name, *fields.step, source);
    }
    for (const auto& [field, tensor] : fields.tensors) {
      const std::string whole_name = kOptimizer + field + "/" + name;
      if (!source.has(whole_name)) {
        tensor->reset();
        continue;
      }
      if (!tensor->defined()) *tensor = at::zeros_like(parameter.detach());
      (void)restore_whole(whole_name, *tensor, source);
    }
  });
}

}  // namespace lockstep::training
