#include "framework/collectives/differentiable.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "framework/base/text.h"
#include "framework/collectives/autograd_node.h"
#include "framework/collectives/record.h"

namespace lockstep {
namespace {

using torch::autograd::variable_list;

struct Shape {
  std::vector<std::int64_t> sizes;
  at::TensorOptions options;
};

class CollectiveBackward final : public torch::autograd::Node {
 public:
  CollectiveBackward(ForwardCall forward, std::weak_ptr<const int> identity)
      : forward_(std::move(forward)), identity_(std::move(identity)) {}

  std::string name() const override { return std::string(forward_.call.operation) + "Backward"; }

  // Not set before the forward has run: the rule may need its results.
  void finish(const Leaves& results, BackwardRule rule) {
    for (const at::Tensor& result : results) {
      results_.push_back({result.sizes().vec(), result.options()});
    }
    rule_ = std::move(rule);
  }

  variable_list apply(variable_list&& gradients) override {
    const auto identity = identity_.lock();
    const Environment* const here = current_environment();
    if (!identity || here == nullptr || here->identity() != identity) {
      throw NameError(lockstep::str("the backward of ", forward_.call.text(),
                                    " runs outside the replica that its forward ran in: its result "
                                    "left the map by another way than as the function's result"));
    }
    const BackwardOf backward(forward_);
    Leaves dense(results_.size());
    for (std::size_t i = 0; i < dense.size(); ++i) {
      dense[i] =
          gradients[i].defined() ? gradients[i] : at::zeros(results_[i].sizes, results_[i].options);
    }
    return rule_(dense);
  }

 private:
  ForwardCall forward_;
  std::weak_ptr<const int> identity_;
  std::vector<Shape> results_;
  BackwardRule rule_;
};

// Announces a call, of which `record` tells the others, and runs it.
void run_announced(const AxisCall& call, ReplicaGroup& replicas, const CallRecord& record,
                   const std::function<void()>& run) {
  replicas.begin(record);
  communicate(call, run);
  replicas.end();
}

}  // namespace

void announced(const AxisCall& call, ReplicaGroup& replicas, const Leaves& leaves,
               const std::string& detail, const std::function<void()>& run) {
  if (!leaves.empty()) {
    refuse_if_tracked(call, "what works on memory is not followed: use what returns its result");
  }
  const CallRecord record = record_of(call, leaves, detail, false);
  (void)current_environment()->next_call(replicas);
  run_announced(call, replicas, record, run);
  if (!leaves.empty()) leaves[0].unsafeGetTensorImpl()->bump_version();
}

Leaves differentiable(const AxisCall& call, ReplicaGroup& replicas, const Leaves& leaves,
                      const std::string& detail,
                      const std::function<Leaves(const Leaves&)>& forward,
                      const std::function<BackwardRule(const Leaves& results)>& rule,
                      ResultAxes axes) {
  std::optional<Leaves> tracked;
  if (current_variance() != nullptr) tracked = tracked_operands(call, leaves, axes);
  const Leaves& operands = tracked ? *tracked : leaves;
  const bool any_requires_grad =
      c10::GradMode::is_enabled() &&
      std::any_of(operands.begin(), operands.end(),
                  [](const at::Tensor& operand) { return operand.requires_grad(); });
  const CallRecord record = record_of(call, operands, detail, any_requires_grad);
  const auto number = current_environment()->next_call(replicas);
  const auto announced_forward = [&] {
    const c10::AutoGradMode no_grad(false);
    Leaves results;
    run_announced(call, replicas, record, [&] {
      const Untracked untracked;
      results = forward(operands);
    });
    return tracked ? tracked_results(call, operands, results, axes) : results;
  };
  if (!any_requires_grad) return announced_forward();

  const auto node = make_node<CollectiveBackward>(forward_call(call, record, number),
                                                  current_environment()->identity());
  node->set_next_edges(torch::autograd::collect_next_edges(operands));
  Leaves results = announced_forward();
  node->finish(results, rule(results));
  for (at::Tensor& result : results) {
    if (result.is_floating_point()) {
      torch::autograd::set_history(result, node);
    } else {
      (void)node->add_input_metadata(torch::autograd::Node::undefined_input());
    }
  }
  return results;
}

}  // namespace lockstep
