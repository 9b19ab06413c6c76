#include "framework/collectives/varying.h"

#include <c10/core/GradMode.h>

#include "framework/base/text.h"
#include "framework/collectives/psum.h"
#include "framework/tree/error_place.h"

namespace lockstep::collectives {

Leaves varying_over(tree::AxisSet axes, const Leaves& leaves) {
  tree::Variance& variance = *tree::current_variance();
  Leaves results;
  for (const at::Tensor& leaf : leaves) {
    const tree::AxisSet missing = axes & ~variance.of(leaf);
    if (missing == 0) {
      results.push_back(leaf);
    } else if (leaf.requires_grad() && c10::GradMode::is_enabled()) {
      const AxisCall call{"pvary", variance.names_of(missing), variance.where()};
      results.push_back(pvary_leaves(call, {leaf}, /*copies=*/false)[0]);
    } else {
      const tree::Untracked untracked;
      results.push_back(leaf.detach().clone());
      variance.add(results.back(), variance.of(leaf) | axes);
    }
  }
  return results;
}

Leaves tracked_operands(const AxisCall& call, const Leaves& leaves, ResultAxes result) {
  const tree::Variance& variance = *tree::current_variance();
  const tree::AxisSet axes = variance.set_of(call.axes.names());
  const auto text_of = [&](tree::AxisSet set) { return AxisNames(variance.names_of(set)).text(); };
  call.require(axes == 0 || variance.names_of(axes).size() == call.axes.names().size(),
               "in a shard_map with check_vma a call names axes of that map (", text_of(axes),
               ") or others, not both: call it for each");
  if (result == ResultAxes::gained) {
    for (const at::Tensor& leaf : leaves) {
      const tree::AxisSet own = variance.of(leaf) & axes;
      call.require(own == 0, "its operand varies over ", text_of(own), " already");
    }
    return leaves;
  }
  tree::AxisSet all = axes;
  for (const at::Tensor& leaf : leaves) {
    if (result == ResultAxes::as_all) all |= variance.of(leaf);
  }
  return varying_over(all, leaves);
}

Leaves tracked_results(const AxisCall& call, const Leaves& operands, const Leaves& results,
                       ResultAxes result) {
  tree::Variance& variance = *tree::current_variance();
  const tree::AxisSet call_axes = variance.set_of(call.axes.names());
  tree::AxisSet together = 0;
  for (const at::Tensor& operand : operands) together |= variance.of(operand);
  Leaves all;
  for (std::size_t i = 0; i < results.size(); ++i) {
    tree::AxisSet axes = result == ResultAxes::as_all ? together : variance.of(operands[i]);
    if (result == ResultAxes::dropped) axes &= ~call_axes;
    if (result == ResultAxes::gained) axes |= call_axes;
    // Results of one message share its memory.
    all.push_back(variance.alias(results[i], axes));
  }
  return all;
}

bool gives_invariant(const AxisNames& axes, const AxisIndexGroups& groups) {
  const tree::Variance* const variance = tree::current_variance();
  return variance != nullptr && groups.empty() && variance->set_of(axes.names()) != 0;
}

void check_one_kind(const AxisCall& call, const Leaves& leaves) {
  const tree::Variance& variance = *tree::current_variance();
  const tree::AxisSet axes = variance.set_of(call.axes.names());
  for (const at::Tensor& leaf : leaves) {
    const tree::AxisSet own = variance.of(leaf) & axes;
    call.require(own == 0 || own == axes, "its operand varies over ",
                 AxisNames(variance.names_of(own)).text(), " and not over ",
                 AxisNames(variance.names_of(axes & ~own)).text(),
                 "; sum over the axes that it varies over, or pvary it over the others");
  }
}

void refuse_if_tracked(const AxisCall& call, const char* instead) {
  const tree::Variance* const variance = tree::current_variance();
  if (variance == nullptr) return;
  call.require(variance->set_of(call.axes.names()) == 0, "in a shard_map with check_vma (",
               place_of(variance->where()), ") ", instead);
}

}  // namespace lockstep::collectives
