#include "framework/tree/grad.h"

#include <stdexcept>
#include <typeinfo>

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/tree/error_place.h"
#include "framework/tree/variance.h"

namespace lockstep::tree_detail {
namespace {

Tensor variable_of(const Tensor& leaf, bool nested) {
  if (!nested) return leaf.detach().requires_grad_();
  // Under an outer differentiation the variable stays a function of the outer one.
  if (leaf.requires_grad()) return leaf.view_as(leaf);
  // Results keep their graph, which must end here: a map would differentiate by a leaf at its end.
  Tensor variable = leaf.detach().requires_grad_().view_as(leaf);
  variable.grad_fn()->set_next_edge(0, torch::autograd::Edge());
  return variable;
}

// In a shard_map with check_vma a gradient varies as its leaf does: operations see to that.
void check_variance(const Tensor& gradient, const Tensor& leaf, std::size_t index) {
  const tree::Variance* const variance = tree::current_variance();
  if (variance == nullptr) return;
  const tree::AxisSet axes = variance->of(gradient) & ~variance->of(leaf);
  if (axes == 0) return;
  throw ValueError(
      str("grad: the gradient by leaf ", index, " varies over ", join(variance->names_of(axes)),
          ", and the leaf does not: a function with a derivative of its own "
          "(torch::autograd::Function) used it with what varies; pvary the leaf before"));
}

}  // namespace

bool differentiated_outside(const Leaves& leaves) {
  return c10::GradMode::is_enabled() &&
         (grad_depth > 0 || std::any_of(leaves.begin(), leaves.end(), [](const Tensor& leaf) {
            return leaf.defined() && leaf.requires_grad();
          }));
}

void check_differentiable(const Leaves& leaves,
                          const std::function<std::vector<std::string>()>& paths,
                          std::size_t argument, const std::source_location& where) {
  for (std::size_t index = 0; index < leaves.size(); ++index) {
    const Tensor& leaf = leaves[index];
    if (leaf.defined() && leaf.is_floating_point()) continue;
    throw ValueError(str(
        "grad at ", place_of(where), ": ", leaf_name(paths(), index), " of argument ", argument,
        " is ", leaf.defined() ? toString(leaf.scalar_type()) : "undefined",
        "; only floating-point leaves have derivatives: convert it, as by to(torch::kFloat), or "
        "name others by argnums"));
  }
}

namespace {

std::pair<Tensor, Leaves> value_and_gradients(const std::function<Tensor(const Leaves&)>& loss,
                                              const Leaves& leaves,
                                              const std::source_location& where) {
  const bool nested = differentiated_outside(leaves);
  const c10::AutoGradMode enable_grad(true);

  const auto variables =
      mapped(leaves, [&](const Tensor& leaf) { return variable_of(leaf, nested); });

  const Tensor value = [&] {
    const ScopedValue deeper(grad_depth, grad_depth + 1);
    return loss(variables);
  }();
  if (!value.defined() || value.numel() != 1 || !value.is_floating_point()) {
    throw ValueError(str("grad at ", place_of(where),
                         ": the function's value must be one floating-point number, not ",
                         value.defined() ? lockstep::str("a tensor of ", value.sizes(), " ",
                                                         toString(value.scalar_type()))
                                         : std::string("undefined")));
  }
  Leaves gradients(variables.size());
  if (value.requires_grad() && !variables.empty()) {
    gradients = torch::autograd::grad({value}, variables, /*grad_outputs=*/{},
                                      /*retain_graph=*/nested, /*create_graph=*/nested,
                                      /*allow_unused=*/true);
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    check_variance(gradients[i], leaves[i], i);
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(leaves[i]).detach();
  }
  return {nested ? value : value.detach(), std::move(gradients)};
}

// Throws a T with the place in its message if the exception is a T, and of no class made from it.
template <typename T>
void rethrow_same(const std::exception& error, const std::string& place) {
  if (typeid(error) == typeid(T)) throw T(lockstep::str(error.what(), " (", place, ")"));
}

}  // namespace

std::pair<Tensor, Leaves> value_and_grad_of_leaves(const std::function<Tensor(const Leaves&)>& loss,
                                                   const Leaves& leaves,
                                                   const std::source_location& where) {
  const auto place = [&] {
    return lockstep::str("in grad at ", place_of(where), ", leaves ", forms_of(leaves));
  };
  try {
    return torch_placed(place, [&] { return value_and_gradients(loss, leaves, where); });
  } catch (const std::logic_error& error) {
    // Callers catch the standard library's commonest exceptions, as of a map's at(): they stay so.
    rethrow_same<std::out_of_range>(error, place());
    rethrow_same<std::invalid_argument>(error, place());
    throw;
  }
}

}  // namespace lockstep::tree_detail
