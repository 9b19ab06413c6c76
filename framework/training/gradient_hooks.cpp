#include "framework/training/gradient_hooks.h"

#include <cstdint>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "framework/base/text.h"

namespace lockstep {

using torch::autograd::variable_list;

struct GradientHooks::State {
  Receiver receiver;
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;
  // The nodes that put gradients into .grad(), which must live for their hooks to.
  struct Attached {
    decltype(torch::autograd::Edge::function) node;
    std::uintptr_t key;
    unsigned check;  // the parameter's own hook
  };
  std::vector<Attached> attached{};
  bool is_on = false;
};

// A backward with the hooks on. What autograd destroys without having called it has failed.
class GradientHooks::Run {
 public:
  explicit Run(std::shared_ptr<State> state) : state_(std::move(state)) { state_->is_on = true; }
  ~Run() { state_->is_on = false; }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void end() {
    state_->is_on = false;
    state_->receiver.end();
  }

 private:
  std::shared_ptr<State> state_;
};

class GradientHooks::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(std::weak_ptr<State> state, std::size_t index) : state_(std::move(state)), index_(index) {}

  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    const auto state = state_.lock();
    if (!state) return outputs;
    at::Tensor& slot = state->parameters[index_].mutable_grad();
    if (!slot.defined()) return outputs;
    if (!state->is_on) {
      state->receiver.begin();
      torch::autograd::Engine::get_default_engine().queue_callback(
          [run = std::make_shared<Run>(state)] { run->end(); });
    }
    const at::Tensor gradient = std::move(slot);
    slot = at::Tensor();
    state->receiver.ready(index_, gradient);
    return outputs;
  }

 private:
  std::weak_ptr<State> state_;
  std::size_t index_;
};

GradientHooks::GradientHooks(std::vector<std::string> names,
                             const std::vector<at::Tensor>& parameters, Receiver receiver)
    : state_(std::make_shared<State>(State{std::move(receiver), std::move(names), parameters})) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto node = torch::autograd::impl::grad_accumulator(parameters[i]);
    const auto key = node->add_post_hook(std::make_unique<Hook>(state_, i));
    // A change of dtype gives the parameter another node, without our hook but with its own.
    const std::weak_ptr<State> weak = state_;
    const unsigned check = parameters[i].register_hook([weak, i](const at::Tensor&) {
      const auto state = weak.lock();
      if (!state) return;
      const auto now = torch::autograd::impl::grad_accumulator(state->parameters[i]);
      require(now == state->attached[i].node, "parameter '", state->names[i],
              "' has changed its dtype since its trainer was made, and its gradient would not be "
              "averaged: make a new trainer after such a change");
    });
    state_->attached.push_back({std::move(node), key, check});
  }
}

GradientHooks::~GradientHooks() {
  for (std::size_t i = 0; i < state_->attached.size(); ++i) {
    (void)state_->attached[i].node->del_post_hook(state_->attached[i].key);
    state_->parameters[i].remove_hook(state_->attached[i].check);
  }
}

void GradientHooks::backward(const at::Tensor& loss, const BackwardOptions& options) {
  for (const at::Tensor& parameter : state_->parameters) parameter.mutable_grad().reset();
  const Run run(state_);
  loss.backward({}, options.retain_graph, options.create_graph);
}

}  // namespace lockstep
