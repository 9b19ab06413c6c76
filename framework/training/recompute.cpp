#include "framework/training/recompute.h"

#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/training/autocast.h"
#include "framework/training/keyed_draws.h"
#include "framework/training/run_record.h"

namespace lockstep {
namespace {

using torch::autograd::variable_list;

// The node of a whole block. All of the block's parameters are its inputs, so that the graph has
// the edges of a block that is not recomputed.
class RecomputeBackward final : public torch::autograd::Node {
 public:
  RecomputeBackward(std::shared_ptr<Block> block, const at::Tensor& input,
                    std::vector<at::Tensor> parameters)
      : block_(std::move(block)), parameters_(std::move(parameters)), saved_input_(input, false) {
    for (const at::Tensor& parameter : parameters_)
      saved_parameters_.emplace_back(parameter, false);
  }

  std::string name() const override { return "lockstep::RecomputeBackward"; }

  void release_variables() override {
    saved_input_.reset_data();
    for (auto& saved : saved_parameters_) saved.reset_data();
  }

  at::Tensor first_run(const at::Tensor& input) {
    const c10::AutoGradMode no_grad(false);
    const training::RecordedRun run(record_, training::RecordedRun::Which::first);
    // The result may be the input, or a part of it: it becomes this node's own.
    return block_->forward(input).detach();
  }

  variable_list apply(variable_list&& gradients) override {
    const bool create_graph = c10::GradMode::is_enabled();
    const c10::AutoGradMode with_grad(true);
    const at::Tensor input = saved_input_.unpack();
    // Throws if one has been written since the first run.
    for (const auto& saved : saved_parameters_) (void)saved.unpack();
    // A view, at which the inner backward ends.
    const at::Tensor own_input = input.requires_grad() ? input.view_as(input) : input;
    const at::Tensor output = second_run(own_input);
    std::vector<at::Tensor> wanted = parameters_;
    if (input.requires_grad()) wanted.insert(wanted.begin(), own_input);
    variable_list found(wanted.size());
    if (output.requires_grad()) {
      const at::Tensor gradient =
          gradients[0].defined() ? gradients[0] : at::zeros_like(output).detach();
      found = torch::autograd::grad({output}, wanted, {gradient}, create_graph, create_graph,
                                    /*allow_unused=*/true);
    }
    if (!input.requires_grad()) found.insert(found.begin(), at::Tensor());
    return found;
  }

 private:
  at::Tensor second_run(const at::Tensor& input) {
    const AutocastScope as_before(type_);
    const training::RecordedRun run(record_, training::RecordedRun::Which::second);
    const at::Tensor output = block_->forward(input);
    run.check_end();
    return output;
  }

  std::shared_ptr<Block> block_;
  std::vector<at::Tensor> parameters_;
  torch::autograd::SavedVariable saved_input_;
  std::vector<torch::autograd::SavedVariable> saved_parameters_;
  training::RunRecord record_;
  at::ScalarType type_ = AutocastScope::type();
};

at::Tensor recomputed(Block& block, const at::Tensor& input) {
  std::vector<at::Tensor> parameters = block.parameters();
  std::erase_if(parameters, [](const at::Tensor& each) { return !each.requires_grad(); });
  if (!c10::GradMode::is_enabled() || (parameters.empty() && !input.requires_grad())) {
    return block.forward(input);
  }
  training::keep_draws_keyed();
  const auto self = std::dynamic_pointer_cast<Block>(block.weak_from_this().lock());
  require(self != nullptr,
          "recompute: the block must belong to a shared_ptr, which keeps it for "
          "the backward");
  std::vector<at::Tensor> inputs = parameters;
  inputs.insert(inputs.begin(), input);
  const auto node = collectives::make_node<RecomputeBackward>(self, input, std::move(parameters));
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  at::Tensor output = node->first_run(input);
  require(output.is_floating_point(), "recompute: the block's result must be floating, not ",
          output.scalar_type());
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace

at::Tensor recompute(Block& block, const at::Tensor& input) {
  return block.run(input, [&block](const at::Tensor& own) { return recomputed(block, own); });
}

}  // namespace lockstep
