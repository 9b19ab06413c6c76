#include "framework/training/gradient_hooks.h"

#include <cstdint>
#include <utility>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep {

using torch::autograd::variable_list;

struct GradientHooks::State {
  Ready ready;
  std::vector<at::Tensor> parameters;
  bool is_on = false;
};

// The node that puts a parameter's gradient into .grad(), which must live for its hook to.
struct GradientHooks::Attached {
  decltype(torch::autograd::Edge::function) node;
  std::uintptr_t key;
};

class GradientHooks::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(std::weak_ptr<State> state, std::size_t index) : state_(std::move(state)), index_(index) {}

  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    const auto state = state_.lock();
    if (!state || !state->is_on) return outputs;
    at::Tensor& slot = state->parameters[index_].mutable_grad();
    if (!slot.defined()) return outputs;
    const at::Tensor gradient = std::move(slot);
    slot = at::Tensor();
    state->ready(index_, gradient);
    return outputs;
  }

 private:
  std::weak_ptr<State> state_;
  std::size_t index_;
};

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters, Ready ready)
    : state_(std::make_shared<State>(State{std::move(ready), parameters})) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto node = torch::autograd::impl::grad_accumulator(parameters[i]);
    const auto key = node->add_post_hook(std::make_unique<Hook>(state_, i));
    attached_.push_back({std::move(node), key});
  }
}

GradientHooks::~GradientHooks() {
  for (const Attached& attached : attached_) (void)attached.node->del_post_hook(attached.key);
}

void GradientHooks::backward(const at::Tensor& loss) {
  for (const at::Tensor& parameter : state_->parameters) parameter.mutable_grad().reset();
  struct Scope {
    bool& is_on;
    ~Scope() { is_on = false; }
  };
  const Scope scope{state_->is_on = true};
  loss.backward();
}

}  // namespace lockstep
