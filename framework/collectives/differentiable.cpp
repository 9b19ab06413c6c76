#include "framework/collectives/differentiable.h"

#include <memory>
#include <type_traits>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "framework/base/text.h"

namespace lockstep {
namespace {

using torch::autograd::variable_list;

struct Shape {
  std::vector<std::int64_t> sizes;
  at::TensorOptions options;
};

class CollectiveBackward final : public torch::autograd::Node {
 public:
  CollectiveBackward(AxisCall call, std::weak_ptr<AxisGroup> group)
      : call_(std::move(call)), group_(std::move(group)) {}

  std::string name() const override { return std::string(call_.operation) + "Backward"; }

  // Not set before the forward has run: the rule may need its results.
  void finish(const Leaves& results, BackwardRule rule) {
    for (const at::Tensor& result : results) {
      results_.push_back({result.sizes().vec(), result.options()});
    }
    rule_ = std::move(rule);
  }

  variable_list apply(variable_list&& gradients) override {
    const auto group = group_.lock();
    if (!group || axis_of(call_).group != group) {
      throw NameError(lockstep::str("the backward of ", call_.text(),
                                    " runs outside the map that its forward ran in; take the "
                                    "gradient inside the mapped function"));
    }
    Leaves dense(results_.size());
    for (std::size_t i = 0; i < dense.size(); ++i) {
      dense[i] =
          gradients[i].defined() ? gradients[i] : at::zeros(results_[i].sizes, results_[i].options);
    }
    return rule_(dense);
  }

 private:
  AxisCall call_;
  std::weak_ptr<AxisGroup> group_;
  std::vector<Shape> results_;
  BackwardRule rule_;
};

// Nodes are counted by a shared_ptr in older versions of LibTorch and by themselves in newer ones.
template <typename Node, typename... Args>
auto make_node(Args&&... args) {
  using Owner = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Owner, std::shared_ptr<torch::autograd::Node>>) {
    return std::shared_ptr<Node>(new Node(std::forward<Args>(args)...),
                                 [](auto* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<Node>(std::forward<Args>(args)...);
  }
}

}  // namespace

Leaves differentiable(const AxisCall& call, const Leaves& leaves,
                      const std::function<Leaves(const Leaves&)>& forward,
                      const std::function<BackwardRule(const Leaves& results)>& rule) {
  bool any_requires_grad = false;
  for (const at::Tensor& leaf : leaves) any_requires_grad |= leaf.requires_grad();
  if (!any_requires_grad || !c10::GradMode::is_enabled()) {
    const c10::AutoGradMode no_grad(false);
    return forward(leaves);
  }

  const auto node = make_node<CollectiveBackward>(call, axis_of(call).group);
  node->set_next_edges(torch::autograd::collect_next_edges(leaves));
  Leaves results;
  {
    const c10::AutoGradMode no_grad(false);
    results = forward(leaves);
  }
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
