#include "framework/training/gradient_hooks.h"

#include <algorithm>
#include <cstdint>
#include <queue>
#include <unordered_map>
#include <utility>

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "framework/base/text.h"
#include "framework/collectives/in_place.h"
#include "framework/training/autograd_graph.h"

namespace lockstep::training {

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

  // The hooks are on while the result lives: autograd destroys it without a call where it fails.
  static std::shared_ptr<void> switch_on(const std::shared_ptr<State>& state) {
    state->is_on = true;
    return {nullptr, [state](void*) { state->is_on = false; }};
  }
};

class GradientHooks::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(std::weak_ptr<State> state, std::size_t index) : state_(std::move(state)), index_(index) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    const auto state = state_.lock();
    if (!state) return outputs;
    at::Tensor& slot = state->parameters[index_].mutable_grad();
    if (!slot.defined()) return outputs;
    if (!state->is_on) {
      state->receiver.begin();
      torch::autograd::Engine::get_default_engine().queue_callback(
          [state, on = State::switch_on(state)] {
            state->is_on = false;
            state->receiver.end();
          });
    }
    state->receiver.ready(index_, std::exchange(slot, at::Tensor()));
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
  const auto on = State::switch_on(state_);
  loss.backward({}, options.retain_graph, options.create_graph);
}

namespace {

using torch::autograd::Node;

// agreed_backward_order(), by this replica's graph.
std::vector<std::size_t> backward_order(const at::Tensor& loss,
                                        const std::vector<at::Tensor>& parameters) {
  std::unordered_map<const Node*, std::size_t> index_of;
  std::vector<bool> found(parameters.size(), false);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    index_of.emplace(torch::autograd::impl::grad_accumulator(parameters[i]).get(), i);
  }
  std::vector<std::size_t> order;
  if (loss.defined() && loss.grad_fn()) {
    Node* const root = loss.grad_fn().get();
    auto dependencies = dependencies_of(root);
    const auto later = [](const Node* a, const Node* b) {
      return a->sequence_nr() < b->sequence_nr();
    };
    std::priority_queue<Node*, std::vector<Node*>, decltype(later)> ready(later);
    ready.push(root);
    while (!ready.empty()) {
      Node* const node = ready.top();
      ready.pop();
      const auto leaf = index_of.find(node);
      if (leaf != index_of.end()) {
        order.push_back(leaf->second);
        found[leaf->second] = true;
      }
      for (const auto& edge : node->next_edges()) {
        if (edge.function && --dependencies[edge.function.get()] == 0) {
          ready.push(edge.function.get());
        }
      }
    }
  }
  for (std::size_t i = parameters.size(); i-- > 0;) {
    if (!found[i]) order.push_back(i);
  }
  return order;
}

}  // namespace

std::vector<std::size_t> agreed_backward_order(const at::Tensor& loss,
                                               const std::vector<at::Tensor>& parameters,
                                               const AxisNames& axis_name) {
  const auto own = backward_order(loss, parameters);
  const at::Tensor order = at::empty({static_cast<std::int64_t>(own.size())}, at::kLong);
  auto* const data = order.data_ptr<std::int64_t>();
  std::copy(own.begin(), own.end(), data);
  pbroadcast_(order, axis_name, 0);
  return {data, data + own.size()};
}

}  // namespace lockstep::training
